"""Secure aggregation on one core: a whole round of all parties, against Flower's SecAgg+ and the AES stream.

Run: python benchmarks/bench_secagg.py

A round goes from each client's float32 rows to their mean, every message as bytes; nobody drops out. Ours
includes what Flower's lacks: signed keys, checked secrets, a journal. Flower's clients are the functions of
its SecAgg+ mod; its server calls what the workflow calls, in that order. Its vectors become bytes, its other
messages stay Python objects, which favours Flower. Of Flower's 50 clients two are measured, and the server's
work for two, then scaled to 50: each client does the same work.

Times are CPU seconds of one core. Each line has a process of its own: what another has left of the memory
allocator changes Flower's times by a third. Both sides run in turns, each a few rounds in a row of which the
quickest counts, and "faster" is the median of the ratios turn by turn: what slows the machine for a while
slows both. "Unsigned" is the same without our signatures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR, GCM
from flwr.client.mod.secure_aggregation.secaggplus_mod import (
    SecAggPlusState,
    _collect_masked_vectors,
    _setup,
    _share_keys,
    _unmask,
)
from flwr.common import ConfigRecord, Parameters, bytes_to_ndarray, ndarrays_to_parameters
from flwr.common.secure_aggregation import ndarrays_arithmetic as arithmetic
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt
from flwr.common.secure_aggregation.quantization import dequantize
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import (
    pseudo_rand_gen,
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from rich.console import Console
from rich.table import Table

from fedkge.crypto import (
    WORD32,
    FixedPoint,
    Identity,
    Journal,
    Roster,
    SecureAggregationClient,
    SecureAggregationServer,
    Session,
    default_threshold,
)
from fedkge.crypto.masks import CHUNK_BYTES, add_masks, fastest_stream

TURNS = {(5, 30_573): 31, (5, 1_710_000): 9, (50, 30_573): 7, (50, 1_710_000): 5}
IN_A_ROW = {5: 3, 50: 2}
TARGETS = {5: 10, 50: 20}  # times faster than Flower
MASKED_WORDS = 4_000_000
CLIP = 8.0
MOD_RANGE = 1 << 32  # this and the next are Flower's defaults
TARGET_RANGE = 1 << 22
MASK_KEYS = [(bytes([i]) * 32, (-1) ** i) for i in range(5)]  # what a client of five expands
SAMPLE = 2

Work = Callable[[], float]  # returns CPU seconds
Integers = list[np.ndarray]


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@dataclass(frozen=True)
class Timed:
    """What the turns of one comparison took."""

    ours: list[float]
    theirs: list[float]
    signing: list[float]  # the part of ours that makes and checks signatures

    @property
    def ratio(self) -> float:
        return median(theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True))

    @property
    def unsigned_ratio(self) -> float:
        """For the same work: Flower signs nothing."""
        turns = zip(self.ours, self.signing, self.theirs, strict=True)
        return median(theirs / (ours - signing) for ours, signing, theirs in turns)


class Signing:
    """Counts the seconds of all signatures while it is entered."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Signing:
        self.patches = [
            mock.patch.object(owner, name, self._timed(getattr(owner, name)))
            for owner, name in ((Roster, "verify"), (Identity, "sign"))
        ]
        for patch in self.patches:
            patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        for patch in self.patches:
            patch.stop()

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            start = time.process_time()
            try:
                return function(*arguments)
            finally:
                self.seconds += time.process_time() - start

        return timed


def in_turns(turns: int, *works: Work) -> list[list[float]]:
    """The times of each work; taken in turns, so that all see the same machine."""
    times = [[work() for work in works] for _ in range(turns)]
    return [list(column) for column in zip(*times, strict=True)]


def aes_stream(mode: GCM | CTR) -> None:
    """The keystream alone, thrown away."""
    encryptor = Cipher(AES256(b"k" * 32), mode).encryptor()
    zeros, buffer = bytes(CHUNK_BYTES), bytearray(CHUNK_BYTES + 16)
    for _ in range(4 * MASKED_WORDS // CHUNK_BYTES):
        encryptor.update_into(zeros, buffer)


def our_round(identities: list[Identity], rows: list[np.ndarray]) -> np.ndarray:
    """The mean of all rows."""
    point = FixedPoint(CLIP, len(rows))
    roster = Roster.of(identity.public for identity in identities)
    session = Session(roster, "bench", 1, "delta", len(rows[0]))
    server = SecureAggregationServer(session)
    clients = [SecureAggregationClient(session, u, i, Journal()) for u, i in enumerate(identities)]
    for u, client in enumerate(clients):
        server.collect(u, client.advertise())
    keys = server.announce_keys()
    for u, client in enumerate(clients):
        server.collect(u, client.share_keys(keys))
    deliveries = server.deliver_shares()
    for u, client in enumerate(clients):
        masked = client.mask_in_place(deliveries[u], lambda room, u=u: point.encode(rows[u], out=room))
        server.collect(u, masked)
    request = server.announce_survivors()
    for u, client in enumerate(clients):
        server.collect(u, client.unmask(request))
    return point.decode(server.total(), divisor=len(rows))


class FlowerClient:
    """One client of Flower's SecAgg+; every step is its mod's own function for that stage."""

    def __init__(self, index: int, num_clients: int) -> None:
        self.state = SecAggPlusState(nid=index)
        settings: dict[str, Any] = {
            Key.SAMPLE_NUMBER: num_clients,
            Key.SHARE_NUMBER: num_clients,
            Key.THRESHOLD: default_threshold(num_clients),
            Key.CLIPPING_RANGE: CLIP,
            Key.TARGET_RANGE: TARGET_RANGE,
            Key.MOD_RANGE: MOD_RANGE,
            Key.MAX_WEIGHT: 1.0,
        }
        reply = _setup(self.state, ConfigRecord(settings))
        self.public = [reply[Key.PUBLIC_KEY_1], reply[Key.PUBLIC_KEY_2]]

    def share_keys(self, keys: Mapping[int, list[bytes]]) -> dict[int, bytes]:
        reply = _share_keys(self.state, ConfigRecord({str(v): own for v, own in keys.items()}))
        return dict(zip(reply[Key.DESTINATION_LIST], reply[Key.CIPHERTEXT_LIST], strict=True))

    def mask(self, envelopes: Mapping[int, bytes], rows: Parameters) -> list[bytes]:
        delivery = {Key.CIPHERTEXT_LIST: list(envelopes.values()), Key.SOURCE_LIST: list(envelopes)}
        reply = _collect_masked_vectors(self.state, ConfigRecord(delivery), 1, rows)
        return reply[Key.MASKED_PARAMETERS]

    def unmask(self, active: Sequence[int]) -> list[bytes]:
        request = ConfigRecord({Key.ACTIVE_NODE_ID_LIST: list(active), Key.DEAD_NODE_ID_LIST: []})
        return _unmask(self.state, request)[Key.SHARE_LIST]


def flower_add(total: Integers | None, message: list[bytes]) -> Integers:
    vector = [bytes_to_ndarray(part) for part in message]
    return vector if total is None else arithmetic.parameters_addition(total, vector)


def flower_unmask(total: Integers, quorums: Sequence[list[bytes]]) -> Integers:
    """Rebuild every client's seed and take its mask off."""
    for shares in quorums:
        mask = pseudo_rand_gen(combine_shares(shares), MOD_RANGE, arithmetic.get_parameters_shape(total))
        total = arithmetic.parameters_subtraction(total, mask)
    return total


def flower_mean(total: Integers, num_clients: int) -> np.ndarray:
    weight, words = arithmetic.factor_extract(arithmetic.parameters_mod(total, MOD_RANGE))
    (mean,) = dequantize(words, CLIP, TARGET_RANGE)
    mean += -(num_clients - 1) * CLIP
    mean *= TARGET_RANGE / weight
    return mean


def flower_round(rows: list[Parameters]) -> np.ndarray:
    """The mean of all rows."""
    clients = [FlowerClient(u, len(rows)) for u in range(len(rows))]
    keys = {u: client.public for u, client in enumerate(clients)}
    sealed = {u: client.share_keys(keys) for u, client in enumerate(clients)}
    total: Integers | None = None
    for v, client in enumerate(clients):
        total = flower_add(total, client.mask({u: sealed[u][v] for u in keys if u != v}, rows[v]))
    assert total is not None
    total = arithmetic.parameters_mod(total, MOD_RANGE)
    reveals = [client.unmask(list(keys)) for client in clients]
    return flower_mean(flower_unmask(total, list(zip(*reveals, strict=True))), len(rows))


def flower_sample(keys: Mapping[int, list[bytes]], rows: Parameters) -> float:
    """CPU seconds of a whole round, scaled up from a few clients and the server's work for them."""
    spent, total, quorums = 0.0, None, []
    for u in range(SAMPLE):
        start = time.process_time()
        client = FlowerClient(u, len(keys))
        sealed = client.share_keys({**keys, u: client.public})
        spent += time.process_time() - start
        channels = client.state.ss2_dict
        shares = {v: share_keys_plaintext_separate(decrypt(channels[v], sealed[v]))[2:] for v in sealed}
        # In place of what the others would seal for it, of the same size.
        envelopes = {
            v: encrypt(channels[v], share_keys_plaintext_concat(v, u, *share)) for v, share in shares.items()
        }
        quorums.append([client.state.rd_seed_share_dict[u], *(seed for seed, _ in shares.values())])
        start = time.process_time()
        total = flower_add(total, client.mask(envelopes, rows))
        client.unmask(list(keys))
        spent += time.process_time() - start
    assert total is not None
    spent += seconds(lambda: flower_unmask(total, quorums))
    return len(keys) / SAMPLE * spent + seconds(lambda: flower_mean(total, len(keys)))


def compare(num_clients: int, length: int) -> Timed:
    """Our rounds and Flower's in turns, with both means checked."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(0, 1, length).astype(np.float32) for _ in range(num_clients)]
    sent = [ndarrays_to_parameters([own]) for own in rows[: 5 if num_clients == 5 else 1]]
    identities = [Identity.generate() for _ in range(num_clients)]
    mean = np.mean(rows, axis=0, dtype=np.float64)
    assert np.abs(our_round(identities, rows) - mean).max() <= FixedPoint(CLIP, num_clients).error_bound
    if num_clients == 5:
        assert np.abs(flower_round(sent) - mean).max() <= 2 * CLIP / TARGET_RANGE

        def theirs() -> float:
            return seconds(lambda: flower_round(sent))
    else:
        keys = {u: FlowerClient(u, num_clients).public for u in range(num_clients)}

        def theirs() -> float:
            return flower_sample(keys, sent[0])

    def ours() -> tuple[float, float]:
        with Signing() as signatures:
            spent = seconds(lambda: our_round(identities, rows))
        return spent, signatures.seconds

    times = range(IN_A_ROW[num_clients])
    turns = [
        (min(ours() for _ in times), min(theirs() for _ in times)) for _ in range(TURNS[num_clients, length])
    ]
    return Timed(
        [own for (own, _), _ in turns], [other for _, other in turns], [own for (_, own), _ in turns]
    )


def in_milliseconds(times: Sequence[float]) -> str:
    """The least and the median."""
    return f"{1000 * min(times):,.1f} – {1000 * median(times):,.1f} ms"


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    vector = np.zeros(MASKED_WORDS // len(MASK_KEYS), dtype=np.uint32)
    add_masks(vector, WORD32, MASK_KEYS)
    works = (
        lambda: aes_stream(GCM(bytes(12))),
        lambda: aes_stream(CTR(bytes(15) + b"\2")),
        lambda: add_masks(vector, WORD32, MASK_KEYS),
    )
    gcm, ctr, masks = map(min, in_turns(25, *(lambda work=work: seconds(work) for work in works)))
    size = 4 * MASKED_WORDS / 1e9
    rates = Table("one core", "GB/s", "of the fastest AES stream")
    fastest = min(gcm, ctr)
    rates.add_row("AES-256 stream, GCM of zeros", f"{size / gcm:.2f}", f"{fastest / gcm:.0%}")
    rates.add_row("AES-256 stream, CTR", f"{size / ctr:.2f}", f"{fastest / ctr:.0%}")
    rates.add_row(
        f"five masks added to a vector ({fastest_stream()})", f"{size / masks:.2f}", f"{fastest / masks:.0%}"
    )
    console = Console(width=130)
    console.print(rates)
    rounds = Table(
        "round, least – median", "ours", "Flower's SecAgg+", "faster", "unsigned", "wanted", "AES bound"
    )
    context = get_context("spawn")
    for num_clients, length in TURNS:
        with ProcessPoolExecutor(1, context) as own:
            timed = own.submit(compare, num_clients, length).result()
        scaled = f", {SAMPLE} of {num_clients} scaled" if num_clients > 5 else ""
        bound = num_clients * (num_clients + 1) * 4 * length / 1e9 / (size / fastest)
        rounds.add_row(
            f"{num_clients} × {length:,}",
            in_milliseconds(timed.ours),
            in_milliseconds(timed.theirs) + scaled,
            f"{timed.ratio:.1f}×",
            f"{timed.unsigned_ratio:.1f}×",
            f"{TARGETS[num_clients]}×",
            f"{1000 * bound:,.1f} ms",
        )
    console.print(rounds)


if __name__ == "__main__":
    main()
