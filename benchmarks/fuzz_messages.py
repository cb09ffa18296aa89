"""Hostile messages for some minutes: to the decoder, to clients in every state, and to the server.

    python benchmarks/fuzz_messages.py [--minutes 10] [--seed 0]

Prints, of each, how many messages were changed, how many of them were refused, how long the slowest took, and
the exceptions that are not fedkge's own, of which there must be none; then the memory at its peak.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict

from fedkge.errors import FedkgeError
from fedkge.exchange import Download, Table, Upload, decode, encode
from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs
from fedkge.simulations.runs.engines import Envelope, InlineGrid
from fedkge.simulations.runs.worker import Worker

SMALL = [
    "data.dataset=synthetic:entities=40,relations=4,triples=160",
    "model.dim=4",
    "training.negatives=2",
    "federation.rounds=3",
    "federation.evaluate_every=2",
    "engine.name=inline",
    "engine.workers=1",
    "privacy.query_budget=64",
]
OPEN = ["data.clients=3", "privacy.union=plain", "privacy.secure_aggregation=false"]
SETTINGS = [
    ["data.clients=4", "privacy.union=private", "federation.strategy=FedE"],
    [*OPEN, "federation.strategy=FedE"],
    ["data.clients=4", "privacy.union=hashed", "federation.strategy=FedR", "privacy.consistency=true"],
    [*OPEN, "federation.strategy=FedER", "federation.weighting=triples"],
    ["data.clients=4", "privacy.union=oprf", "federation.strategy=FedR"],
    ["data.clients=4", "privacy.union=plain", "federation.strategy=FedER", "federation.precision=float16"],
]
VERBS = ("join", "assign", "union", "advertise", "share", "count", "consent", "unmask")
KINDS = [*(f"query.{verb}" for verb in VERBS), "train", "evaluate", "evaluate.test"]
NEED_ALL = {"query.join", "query.assign", "query.union", "query.count", "query.advertise", "query.share"}
NUMBERS: list[Any] = [None, True, -1, 0, 7, 2**31, 2**63, 10**30, 1.5]
JUNK: list[Any] = [*NUMBERS, "", "delta", "x" * 999, [], [1], {}, {"a": [1]}]
MARKS = (b"[", b"]", b"{", b"}", b'"', b",")
TOKENS = (*MARKS, b"\\ud800", b"1e999", b"NaN", b"9" * 30, b"-1", b"null", b"[" * 99)


@dataclass
class Tally:
    """What became of the messages that were changed."""

    sent: int = 0
    refused: int = 0
    slowest: float = 0.0
    foreign: Counter[str] = field(default_factory=Counter)

    def run(self, step: Callable[[], object]) -> None:
        """Take a step that may raise errors of fedkge, and no others."""
        self.sent += 1
        start = time.perf_counter()
        try:
            step()
        except FedkgeError:
            self.refused += 1
        except Exception as error:  # noqa: BLE001 - these are what is looked for
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            self.foreign[f"{type(error).__name__} at {place}: {error}"[:160]] += 1
        self.slowest = max(self.slowest, time.perf_counter() - start)

    def __str__(self) -> str:
        lines = [f"{self.sent:>9,} sent {self.refused:>9,} refused, slowest {self.slowest:.2f} s, "]
        lines[0] += f"{sum(self.foreign.values())} foreign exceptions"
        return "\n".join(
            [*lines, *(f"    {count:>6} {what}" for what, count in self.foreign.most_common(20))]
        )


def mutated(raw: bytes, rng: np.random.Generator, kind: type[Upload | Download]) -> bytes:
    """These bytes with some changed, or the message with some of its parts changed."""
    return _bytes_changed(raw, rng) if rng.random() < 0.5 else _parts_changed(raw, rng, kind)


def _bytes_changed(raw: bytes, rng: np.random.Generator) -> bytes:
    data = bytearray(raw)
    header = int.from_bytes(data[4:8], "little")
    for _ in range(rng.integers(1, 5)):
        near = min(len(data), header + 8) if rng.random() < 0.7 else len(data)  # the header is the weak place
        place, choice = int(rng.integers(near + 1)), rng.integers(5)
        before = len(data)
        if choice == 0 and place < len(data):
            data[place] ^= 1 << int(rng.integers(8))
        elif choice == 1:
            data[place:place] = rng.bytes(int(rng.integers(1, 9)))
        elif choice == 2:
            del data[place : place + int(rng.integers(1, 9))]
        elif choice == 3:
            data[place:place] = TOKENS[rng.integers(len(TOKENS))]
        else:
            other = int(rng.integers(len(data) + 1))
            data[place:place] = data[other : other + 20]
        header += len(data) - before if 8 <= place < header + 8 else 0
    if rng.random() < 0.7:
        data[4:8] = max(header, 0).to_bytes(4, "little")
    return bytes(data)


def _parts_changed(raw: bytes, rng: np.random.Generator, kind: type[Upload | Download]) -> bytes:
    try:
        message: Any = decode(raw, kind)
        for _ in range(rng.integers(1, 3)):
            message = _one_changed(message, rng)
        return encode(message)
    except (FedkgeError, ValueError, TypeError, OverflowError):  # what cannot be said at all
        return _bytes_changed(raw, rng)


def _one_changed(message: Any, rng: np.random.Generator) -> Any:
    choice, metadata = rng.integers(4), json.loads(json.dumps(message.metadata))
    if choice == 0:
        return replace(message, round=int(rng.choice([0, 1, message.round + 1, message.round + 2, 99])))
    if choice == 1 and metadata:
        _spoil(metadata, rng)
        return replace(message, metadata=metadata)
    if choice == 2 and message.protocol:
        protocol = dict(message.protocol)
        name = str(rng.choice(list(protocol)))
        content = protocol.pop(name)
        if rng.random() < 0.9:
            other = "union entity" if rng.random() < 0.1 else name
            protocol[other] = _bytes_changed(content, rng) if len(content) > 8 else rng.bytes(9)
        return replace(message, protocol=protocol)
    if message.tables:
        tables = dict(message.tables)
        name = str(rng.choice(list(tables)))
        table = tables.pop(name)
        if rng.random() < 0.9:
            tables["relation" if rng.random() < 0.1 else name] = _table_changed(table, rng)
        return replace(message, tables=tables)
    return replace(
        message, metadata={**metadata, str(rng.choice(["sum", "next", "keep", "best"])): _junk(rng)}
    )


def _junk(rng: np.random.Generator) -> Any:
    return JUNK[rng.integers(len(JUNK))]


def _spoil(metadata: Any, rng: np.random.Generator) -> None:
    """Change or remove one thing, however deep."""
    while True:
        keys = list(metadata) if isinstance(metadata, dict) else list(range(len(metadata)))
        key = keys[rng.integers(len(keys))]
        inner = metadata[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.7:
            metadata = inner
        elif rng.random() < 0.2:
            del metadata[key]
            return
        else:
            metadata[key] = _junk(rng)
            return


def _table_changed(table: Table, rng: np.random.Generator) -> Table:
    ids, rows = table.ids.copy(), table.rows.copy()
    choice = rng.integers(6)
    if choice == 0 and len(ids):
        ids[rng.integers(len(ids))] = rng.choice([-1, 0, 99, 2**31 - 1])
    elif choice == 1:
        ids, rows = ids[1:], rows[1:]
    elif choice == 2:
        rows = rows[:, 1:] if rng.random() < 0.5 else np.repeat(rows, 2, axis=1)
    elif choice == 3 and rows.size:
        rows[tuple(rng.integers(rows.shape))] = rng.choice([np.nan, np.inf, 1e8, -3e5])
    elif choice == 4:
        ids = rng.permutation(ids)
    else:
        return replace(table, holders=rng.integers(-1, 9, len(ids)), weights=rng.normal(size=len(ids)))
    return Table(ids, rows)


def fuzz_decode(tally: Tally, rng: np.random.Generator, count: int) -> None:
    """Changed bytes to the decoder."""
    table = Table(np.arange(3), np.ones((3, 2)), holders=np.ones(3), weights=np.ones(3))
    named = {"purpose": "delta", "round": 1, "attempt": 3}
    messages = [
        encode(Upload(1, 2, {"entity": table}, {"labels": {"entity": ["a", "\x01b"]}, "loss": 0.5})),
        encode(Download(1, {"entity": table, "r": table}, {"sum": named}, {"keys": bytes(40)}), "float16"),
    ]
    for number in range(count):
        kind: Any = (Upload, Download)[number % 2]
        change = _bytes_changed if number % 8 < 6 else partial(_parts_changed, kind=kind)
        raw = change(messages[number % 2], rng)
        tally.run(lambda raw=raw, kind=kind: decode(raw, kind))


class HostileServer:
    """Before each message that a grid carries to clients, some that are like it, and some of other kinds."""

    def __init__(self, tally: Tally, rng: np.random.Generator, each: int, enough: Callable[[], bool]) -> None:
        self.tally, self.rng, self.each, self.enough = tally, rng, each, enough

    def __call__(self, worker: Worker, envelope: Envelope) -> None:
        if self.rng.random() < 0.4:  # let some pass, so that all states are reached
            return
        for _ in range(self.each):
            if self.enough():
                return
            kind = envelope.kind if self.rng.random() < 0.7 else str(self.rng.choice(KINDS))
            own = envelope.own and mutated(envelope.own, self.rng, Download)
            content = {
                "payload": mutated(envelope.payload, self.rng, Download),
                **({"own": own} if own else {}),
            }
            message = Message(
                RecordDict({"fedkge": ConfigRecord(content)}), envelope.node, kind, group_id=envelope.group
            )
            app, context = worker.apps[envelope.node], worker.contexts[envelope.node]
            self.tally.run(lambda app=app, message=message, context=context: app(message, context))


class HostileClient:
    """Some of one client's replies, changed."""

    def __init__(self, tally: Tally, rng: np.random.Generator, share: float) -> None:
        self.tally, self.rng, self.share = tally, rng, share

    def __call__(self, kind: str, node: int, payload: bytes) -> bytes:
        share = self.share / 20 if kind in NEED_ALL else self.share  # or no round would ever begin
        if (node != 1 and self.rng.random() < 0.9) or self.rng.random() > share:
            return payload
        self.tally.sent += 1
        return mutated(payload, self.rng, Upload)


def run_with(
    settings: list[str],
    folder: Path,
    before: Callable[[Worker, Envelope], None] | None = None,
    after: Callable[[str, int, bytes], bytes] | None = None,
) -> None:
    """A small run whose messages are looked at, or changed, on their way."""
    deliver = InlineGrid.deliver

    def hostile(self: InlineGrid, envelopes: list[Envelope], timeout: float | None) -> Iterator[Any]:
        if before:
            for envelope in envelopes:
                before(self.worker, envelope)
        for node, (payload, reason) in deliver(self, envelopes, timeout):
            changed = after(envelopes[0].kind, node, payload) if after and payload else payload
            yield node, (changed, reason)

    InlineGrid.deliver = hostile  # type: ignore[method-assign]
    try:
        runs.run(Experiment().override([*SMALL, *settings]), folder)
    finally:
        InlineGrid.deliver = deliver  # type: ignore[method-assign]


def fuzz_clients(
    tally: Tally, rng: np.random.Generator, enough: Callable[[], bool], folder: Path, each: int
) -> None:
    """Runs with a hostile server; what it breaks may end them with an error of fedkge."""
    outer, number = Tally(), 0
    while not enough():
        settings = [*SETTINGS[number % len(SETTINGS)], f"seed={number}"]
        hostile = HostileServer(tally, rng, each, enough)
        outer.run(lambda settings=settings, number=number, hostile=hostile: run_with(
            settings, folder / f"clients-{number}", before=hostile
        ))  # fmt: skip
        number += 1
    tally.foreign += outer.foreign


def fuzz_server(tally: Tally, rng: np.random.Generator, enough: Callable[[], bool], folder: Path) -> None:
    """Runs with hostile clients."""
    outer, number = Tally(), 0
    while not enough():
        settings = [*SETTINGS[number % len(SETTINGS)], f"seed={number}", "federation.rounds=4"]
        hostile = HostileClient(tally, rng, share=float(rng.choice([0.05, 0.2, 0.6])))
        outer.run(lambda settings=settings, number=number, hostile=hostile: run_with(
            settings, folder / f"server-{number}", after=hostile
        ))  # fmt: skip
        number += 1
    tally.refused, tally.slowest = outer.refused, outer.slowest  # of runs
    tally.foreign += outer.foreign


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rng = np.random.default_rng(options.seed)
    decoder, clients, server = Tally(), Tally(), Tally()
    start = time.monotonic()

    def until(share: float) -> Callable[[], bool]:
        return lambda: time.monotonic() > start + share * options.minutes * 60

    with tempfile.TemporaryDirectory() as folder:
        while not until(0.2)():
            fuzz_decode(decoder, rng, 1000)
        fuzz_clients(clients, rng, until(0.7), Path(folder), each=20)
        fuzz_server(server, rng, until(1.0), Path(folder))
    print("decoder", decoder)
    print("clients", clients)
    print("server ", server, "(refused and slowest: runs)")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    sys.exit(any(tally.foreign for tally in (decoder, clients, server)))


if __name__ == "__main__":
    main()
