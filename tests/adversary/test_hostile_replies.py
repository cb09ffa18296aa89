"""Nodes that answer the server with anything at all harm themselves alone (findings 10 and 13)."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata

from fedkge.errors import FederationError, FedkgeError
from fedkge.exchange import Download, Table, Upload, encode
from fedkge.experiment import FederationSettings
from fedkge.server.ledger import Ledger
from fedkge.server.messenger import Messenger
from fedkge.server.records import Records
from fedkge.server.transcript import Transcript
from fedkge.simulations.runs.engines import SimulatedGrid
from fedkge.simulations.runs.worker import identify

NODES = {101: 0, 102: 1, 103: 2}  # node -> its client
VICTIM = 1  # the client that is hostile
ROUND = 3
SUPERLINK = 1
NUM_MUTATIONS = 6000

Program = Callable[[Message], Iterable[Message]]


class FakeGrid(SimulatedGrid):
    """Carries messages to programs, one for each node."""

    def __init__(self, programs: dict[int, Program]) -> None:
        identify(7)
        self.programs = programs
        self.online = set(programs)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterator[Message]:
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = f"message {number}"
            yield from self.programs[message.metadata.dst_node_id](message)

    def get_node_ids(self) -> list[int]:
        return sorted(self.online)

    def start(self) -> None: ...

    def deliver(self, envelopes: Any, timeout: float | None) -> Iterator[Any]:
        yield from ()

    def close(self) -> None: ...


def payload_of(client: int, round: int = ROUND) -> bytes:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    said = {"loss": 0.5, "nested": {"list": [1, "two", None]}}
    return encode(Upload(round, client, {"entity": Table(np.arange(4), rows)}, said, {"masked": b"\x01\x02"}))


def reply(message: Message, payload: Any) -> Message:
    return Message(RecordDict({"fedkge": ConfigRecord({"payload": payload})}), reply_to=message)


def honest(client: int) -> Program:
    return lambda message: [reply(message, payload_of(client, int(message.metadata.group_id)))]


def forged(message: Message, **changes: Any) -> Message:
    """An honest reply whose metadata say something else."""
    plain = reply(message, payload_of(VICTIM)).metadata
    keys = ("run_id", "message_id", "src_node_id", "dst_node_id", "reply_to_message_id", "group_id")
    said = {key: getattr(plain, key) for key in (*keys, "created_at", "ttl", "message_type")}
    content = RecordDict({"fedkge": ConfigRecord({"payload": payload_of(VICTIM)})})
    return make_message(Metadata(**{**said, **changes}), content=content)


def away(message: Message) -> list[Message]:
    """What the SuperLink itself says of a node that is away: it names the message, not the node."""
    said = forged(message, src_node_id=SUPERLINK, dst_node_id=SUPERLINK).metadata
    return [make_message(said, error=Error(5, "Destination node is unavailable."))]


def messenger_of(folder: Path, programs: dict[int, Program], **settings: Any) -> Messenger:
    records = Records(folder)
    options = FederationSettings(timeout=2.0, **settings)
    messenger = Messenger(FakeGrid(programs), options, Ledger(), records, Transcript(folder, "off"))
    messenger.node_of = {client: node for node, client in NODES.items()}
    return messenger


def with_hostile(folder: Path, program: Program, **settings: Any) -> Messenger:
    programs = {node: honest(client) for node, client in NODES.items()}
    return messenger_of(folder, programs | {101 + VICTIM: program}, **settings)


def ask(messenger: Messenger) -> dict[int, Upload]:
    return messenger.ask(dict.fromkeys(messenger.clients, Download(ROUND)), "train", "train", ROUND)


def failures(messenger: Messenger) -> list[tuple[Any, ...]]:
    table = pd.read_csv(messenger.records.folder / "failures.csv", dtype=str, keep_default_na=False)
    return list(table.itertuples(index=False, name=None))


HEADER = b'{"round":3,"metadata":{},"tables":[],"client":%s}'


def with_header(text: bytes) -> bytes:
    return struct.pack("<4sI", b"FKX1", len(text)) + text


REPLIES: dict[str, tuple[Program, str]] = {
    "the SuperLink for a node that is away": (away, "unavailable"),
    "nothing": (lambda message: [], "no answer in time"),
    "no bytes": (lambda message: [reply(message, b"")], "not a Upload"),
    "noise": (lambda message: [reply(message, b"\xff" * 100)], "not a Upload"),
    "numbers for bytes": (lambda message: [reply(message, [1, 2, 3])], "without a payload"),
    "text for bytes": (lambda message: [reply(message, "payload")], "without a payload"),
    "no record": (lambda message: [Message(RecordDict(), reply_to=message)], "without a payload"),
    "another record": (
        lambda message: [Message(RecordDict({"fedkge": MetricRecord({"payload": 1})}), reply_to=message)],
        "without a payload",
    ),
    "another client's number": (lambda message: [reply(message, payload_of(0))], "names client 0"),
    "another round": (lambda message: [reply(message, payload_of(VICTIM, 9))], "for round 9"),
    "true for one": (lambda message: [reply(message, with_header(HEADER % b"true"))], ""),
    "a fraction for one": (lambda message: [reply(message, with_header(HEADER % b"1.0"))], ""),
    "deep JSON": (
        lambda message: [reply(message, with_header(b'{"round":' + b"[" * 100_000 + b"]" * 100_000 + b"}"))],
        "",
    ),
    "JSON that is no object": (lambda message: [reply(message, with_header(b"[1,2]"))], ""),
    "a false sender": (lambda message: [forged(message, src_node_id=103)], "another node"),
    "an answer for another": (
        lambda message: [forged(message, reply_to_message_id="message 0")],
        "no answer in time",
    ),
    "an error that breaks lines": (
        lambda message: [Message(Error(2, 'a\r\nb,"c"\x00\u202e\r\n' + "x" * 100_000), reply_to=message)],
        "xxx",
    ),
    "an error without words": (lambda message: [Message(Error(2), reply_to=message)], "error 2"),
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_hostile_reply_excludes_its_sender_alone(name: str, tmp_path: Path) -> None:
    program, reason = REPLIES[name]
    messenger = with_hostile(tmp_path, program)
    assert set(ask(messenger)) == {0, 2}
    ((round, phase, client, why),) = failures(messenger)
    assert (round, phase, client) == (str(ROUND), "train", str(VICTIM))
    assert reason in why
    assert why.isprintable()
    assert len(why) <= 500


def test_a_huge_reply_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedkge.server.messenger._LARGEST_UPLOAD", 1000)
    messenger = with_hostile(tmp_path, lambda message: [reply(message, payload_of(VICTIM) + bytes(1000))])
    assert set(ask(messenger)) == {0, 2}
    assert "1000 are the most" in failures(messenger)[0][3]


def test_the_first_of_two_answers_counts(tmp_path: Path) -> None:
    other = encode(Upload(ROUND, VICTIM, metadata={"loss": 9.0}))
    messenger = with_hostile(
        tmp_path, lambda message: [reply(message, payload_of(VICTIM)), reply(message, other)]
    )
    assert ask(messenger)[VICTIM].metadata["loss"] == 0.5


def test_what_flower_cannot_carry_is_an_error_of_ours(tmp_path: Path) -> None:
    def broken(message: Message) -> list[Message]:
        raise ValueError("cannot inflate")

    with pytest.raises(FederationError, match=r"cannot inflate.*go on with: fedkge run --resume"):
        ask(with_hostile(tmp_path, broken))


def test_too_few_answers_end_the_run_with_the_way_on(tmp_path: Path) -> None:
    messenger = with_hostile(tmp_path, away, min_clients=3)
    with pytest.raises(FederationError, match=r"2 of 3 clients answered.*client 1: .*unavailable.*--resume"):
        ask(messenger)


def test_a_node_that_returns_is_asked_again(tmp_path: Path) -> None:
    asked = []

    def restarted(message: Message) -> list[Message]:
        asked.append(message)
        return away(message) if len(asked) == 1 else list(honest(VICTIM)(message))

    messenger = with_hostile(tmp_path, restarted, on_failure="repeat")
    grid = messenger.grid
    grid.online.remove(102)
    looks = iter(range(3))

    def returning() -> list[int]:
        if next(looks) == 2:
            grid.online.add(102)
        return sorted(grid.online)

    grid.get_node_ids = returning
    assert set(ask(messenger)) == {0, 1, 2}
    assert len(asked) == 2
    assert len(failures(messenger)) == 1


# Joining.


def meet(folder: Path, programs: dict[int, Program], **settings: Any) -> dict[int, int]:
    messenger = messenger_of(folder, programs, **settings)
    messenger.meet(3, Download(ROUND))
    return messenger.node_of


def test_nodes_that_do_not_join_take_no_place(tmp_path: Path) -> None:
    programs = {node: honest(client) for node, client in NODES.items()}
    strangers = {5: away, 500: lambda message: [reply(message, b"?")]}
    assert meet(tmp_path, strangers | programs) == {client: node for node, client in NODES.items()}


@pytest.mark.parametrize("named", [0, 3])
def test_clients_that_share_a_number_or_have_none_are_refused(named: int, tmp_path: Path) -> None:
    programs = {node: honest(client) for node, client in NODES.items()} | {102: honest(named)}
    with pytest.raises(FederationError, match=r"call themselves \[0, .*partition-id"):
        meet(tmp_path, programs)


def test_a_client_that_does_not_join_is_named(tmp_path: Path) -> None:
    programs = {node: honest(client) for node, client in NODES.items()} | {102: away}
    with pytest.raises(FederationError, match=r"2 of 3 clients joined.*node 102: .*unavailable"):
        meet(tmp_path, programs)


# Mutations.


def mutate(raw: bytes, rng: np.random.Generator) -> bytes:
    """Bytes changed, cut, added or repeated; or the header's JSON rewritten."""
    if rng.random() < 0.4:
        return mutate_header(raw, rng)
    data = bytearray(raw)
    for _ in range(rng.integers(1, 6)):
        at = int(rng.integers(0, len(data) + 1))
        match rng.integers(0, 4):
            case 0:
                data[at : at + 1] = rng.bytes(1)
            case 1:
                del data[at : at + int(rng.integers(1, 40))]
            case 2:
                data[at:at] = rng.bytes(int(rng.integers(1, 40)))
            case _:
                data[at:at] = data[at : at + int(rng.integers(1, 40))]
    return bytes(data)


HOSTILE = [None, True, -1, 0, 1.5, 1e308, 2**63, 10**400, "", "\ud800", "x" * 300, [], [[]], {}, {"a": [{}]}]


def mutate_header(raw: bytes, rng: np.random.Generator) -> bytes:
    length = struct.unpack_from("<4sI", raw)[1]
    header, body = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    places: list[tuple[Any, Any]] = []

    def visit(node: Any) -> None:
        keys: Sequence[Any] = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                visit(node[key])

    visit(header)
    node, key = places[rng.integers(len(places))]
    value = HOSTILE[rng.integers(len(HOSTILE))]
    if rng.random() < 0.2 and isinstance(node, dict):
        del node[key]
    else:
        node[key] = value
    text = json.dumps(header).encode()
    return struct.pack("<4sI", b"FKX1", len(text)) + text + body


def test_no_mutated_reply_ends_the_run_or_harms_another_client(tmp_path: Path) -> None:
    rng = np.random.default_rng(16)
    messenger = with_hostile(tmp_path, lambda message: [reply(message, mutate(payload_of(VICTIM), rng))])
    excluded = 0
    for _ in range(NUM_MUTATIONS):
        answers = ask(messenger)
        assert {0, 2} <= set(answers)
        excluded += VICTIM not in answers
    assert excluded == len(failures(messenger))
    assert excluded > NUM_MUTATIONS / 2


def test_no_mutated_greeting_ends_in_a_foreign_exception(tmp_path: Path) -> None:
    rng = np.random.default_rng(17)
    programs = {node: honest(client) for node, client in NODES.items()}
    programs[102] = lambda message: [reply(message, mutate(payload_of(VICTIM), rng))]
    messenger, stopped = messenger_of(tmp_path, programs), 0
    for _ in range(1000):
        try:
            messenger.meet(3, Download(ROUND))
        except FedkgeError:
            stopped += 1
    assert stopped > 500
