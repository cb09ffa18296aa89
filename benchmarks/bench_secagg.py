"""Secure aggregation on one core: a whole round of all parties, against Flower's SecAgg+ and the AES stream.

Run: python benchmarks/bench_secagg.py

A round goes from each client's float32 rows to the mean, all messages as bytes; nobody drops out. Flower's
rows call the functions that its SecAgg+ mod and workflow call, in their order. At 50 clients one of Flower's
clients and five of its server's secrets are measured and scaled to all, since each client does the same work.
Times are CPU seconds of one core, the best of a few.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR, GCM
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

SIZES = [(5, 30_573), (5, 1_710_000), (50, 30_573), (50, 1_710_000)]
MASKED_WORDS = 4_000_000
CLIP = 8.0
MOD_RANGE = 1 << 32  # this and the next are Flower's defaults
TARGET_RANGE = 1 << 22
MASK_KEYS = [(bytes([i]) * 32, (-1) ** i) for i in range(5)]  # what a client of five expands
SAMPLED_SECRETS = 5


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def best_of(repeats: int, *works: Callable[[], object]) -> list[float]:
    """The shortest time of each work, taken in turns: the machine is noisy, and noise only adds."""
    times = [[seconds(work) for work in works] for _ in range(repeats)]
    return [min(column) for column in zip(*times, strict=True)]


def aes_stream(mode: GCM | CTR) -> None:
    """The keystream alone, thrown away."""
    encryptor = Cipher(AES256(b"k" * 32), mode).encryptor()
    zeros, buffer = bytes(CHUNK_BYTES), bytearray(CHUNK_BYTES + 16)
    for _ in range(4 * MASKED_WORDS // CHUNK_BYTES):
        encryptor.update_into(zeros, buffer)


def our_round(identities: list[Identity], rows: list[np.ndarray], words: list[np.ndarray]) -> np.ndarray:
    """The mean of all rows; `words` is each client's memory for what it encodes."""
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
        encoded = point.encode(rows[u], out=words[u])
        server.collect(u, client.mask(deliveries[u], encoded.words))
    request = server.announce_survivors()
    for u, client in enumerate(clients):
        server.collect(u, client.unmask(request))
    mean = point.decode(server.total())
    mean /= len(rows)
    return mean


class FlowerParty:
    """The work of one client in Flower's SecAgg+, in the order of its mod."""

    def __init__(self, index: int, num_clients: int) -> None:
        from flwr.supercore.primitives import asymmetric

        self.index, self.n = index, num_clients
        pairs = [asymmetric.generate_key_pairs() for _ in range(2)]
        self.secret = [asymmetric.private_key_to_bytes(private) for private, _ in pairs]
        self.public = [asymmetric.public_key_to_bytes(public) for _, public in pairs]

    def share_keys(self, keys: dict[int, list[bytes]]) -> dict[int, bytes]:
        from flwr.common.secure_aggregation.crypto.shamir import create_shares
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt, generate_shared_key
        from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat
        from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

        self.keys, self.seed = keys, os.urandom(32)
        threshold = default_threshold(self.n)
        self.seed_shares = create_shares(self.seed, threshold, self.n)
        self.key_shares = create_shares(self.secret[0], threshold, self.n)
        self.channels, sealed = {}, {}
        for place, (v, (_, public)) in enumerate(keys.items()):
            if v == self.index:
                continue
            key = generate_shared_key(bytes_to_private_key(self.secret[1]), bytes_to_public_key(public))
            self.channels[v] = key
            plain = share_keys_plaintext_concat(
                self.index, v, self.seed_shares[place], self.key_shares[place]
            )
            sealed[v] = encrypt(key, plain)
        return sealed

    def mask(self, envelopes: dict[int, bytes], rows: np.ndarray) -> bytes:
        from flwr.common import ndarray_to_bytes
        from flwr.common.secure_aggregation import ndarrays_arithmetic as arithmetic
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, generate_shared_key
        from flwr.common.secure_aggregation.quantization import quantize
        from flwr.common.secure_aggregation.secaggplus_utils import (
            pseudo_rand_gen,
            share_keys_plaintext_separate,
        )
        from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

        for u, envelope in envelopes.items():
            share_keys_plaintext_separate(decrypt(self.channels[u], envelope))
        shapes = [rows.shape]
        vector = quantize(arithmetic.parameters_multiply([rows], 1.0), CLIP, TARGET_RANGE)
        masked = arithmetic.parameters_addition(vector, pseudo_rand_gen(self.seed, MOD_RANGE, shapes))
        for v in envelopes:
            public = bytes_to_public_key(self.keys[v][0])
            shared = generate_shared_key(bytes_to_private_key(self.secret[0]), public)
            mask = pseudo_rand_gen(shared, MOD_RANGE, shapes)
            join = arithmetic.parameters_addition if self.index > v else arithmetic.parameters_subtraction
            masked = join(masked, mask)
        return ndarray_to_bytes(arithmetic.parameters_mod(masked, MOD_RANGE)[0])


def flower_unmask(total: np.ndarray, quorums: list[list[bytes]]) -> np.ndarray:
    """The work of Flower's server: rebuild every seed and take its mask off."""
    from flwr.common.secure_aggregation import ndarrays_arithmetic as arithmetic
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    masked = [total]
    for shares in quorums:
        mask = pseudo_rand_gen(combine_shares(shares), MOD_RANGE, [total.shape])
        masked = arithmetic.parameters_subtraction(masked, mask)
    return arithmetic.parameters_mod(masked, MOD_RANGE)[0]


def flower_round(rows: list[np.ndarray]) -> np.ndarray:
    """The mean of all rows."""
    from flwr.common import bytes_to_ndarray
    from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition, parameters_mod
    from flwr.common.secure_aggregation.quantization import dequantize

    parties = [FlowerParty(u, len(rows)) for u in range(len(rows))]
    keys = {party.index: party.public for party in parties}
    sealed = {party.index: party.share_keys(keys) for party in parties}
    total = [np.zeros(len(rows[0]), dtype=np.int64)]
    for v, party in enumerate(parties):
        message = party.mask({u: sealed[u][v] for u in keys if u != v}, rows[v])
        total = parameters_addition(total, [bytes_to_ndarray(message)])
    total = parameters_mod(total, MOD_RANGE)
    unmasked = flower_unmask(total[0], [party.seed_shares for party in parties])
    offset = (len(rows) - 1) * CLIP
    return (dequantize([unmasked], CLIP, TARGET_RANGE)[0] - offset) / len(rows)


def flower_sample(num_clients: int, rows: np.ndarray) -> float:
    """Seconds of a whole round, scaled up from one client and a few of the server's secrets."""
    from flwr.common import bytes_to_ndarray

    others = [FlowerParty(u, num_clients) for u in range(num_clients)]
    keys = {party.index: party.public for party in others}
    start = time.process_time()
    party = FlowerParty(0, num_clients)
    sealed = party.share_keys(keys | {0: party.public})
    masked = bytes_to_ndarray(party.mask(sealed, rows))  # what it sealed opens under the same channel keys
    one_client = time.process_time() - start
    start = time.process_time()
    flower_unmask(masked, [party.seed_shares] * SAMPLED_SECRETS)
    return num_clients * (one_client + (time.process_time() - start) / SAMPLED_SECRETS)


def compare(num_clients: int, length: int) -> tuple[float, float]:
    """Seconds of our round and of Flower's, with both means checked."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(0, 1, length).astype(np.float32) for _ in range(num_clients)]
    identities = [Identity.generate() for _ in range(num_clients)]
    words = [np.empty(length, dtype=np.uint32) for _ in rows]
    mean = np.mean(rows, axis=0, dtype=np.float64)
    assert (
        np.abs(our_round(identities, rows, words) - mean).max() <= FixedPoint(CLIP, num_clients).error_bound
    )
    if num_clients > 5:
        return best_of(2, lambda: our_round(identities, rows, words))[0], flower_sample(num_clients, rows[0])
    assert np.abs(flower_round(rows) - mean).max() <= 2 * CLIP / TARGET_RANGE
    ours, theirs = best_of(5, lambda: our_round(identities, rows, words), lambda: flower_round(rows))
    return ours, theirs


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    vector = np.zeros(MASKED_WORDS // len(MASK_KEYS), dtype=np.uint32)
    add_masks(vector, WORD32, MASK_KEYS, out=vector)
    gcm, ctr, masks = best_of(
        9,
        lambda: aes_stream(GCM(bytes(12))),
        lambda: aes_stream(CTR(bytes(15) + b"\2")),
        lambda: add_masks(vector, WORD32, MASK_KEYS, out=vector),
    )
    size = 4 * MASKED_WORDS / 1e9
    rates = Table("one core", "GB/s", "of the fastest AES stream")
    fastest = min(gcm, ctr)
    rates.add_row("AES-256 stream, GCM of zeros", f"{size / gcm:.2f}", f"{fastest / gcm:.0%}")
    rates.add_row("AES-256 stream, CTR", f"{size / ctr:.2f}", f"{fastest / ctr:.0%}")
    rates.add_row(
        f"five masks added to a vector ({fastest_stream()})", f"{size / masks:.2f}", f"{fastest / masks:.0%}"
    )
    rounds = Table(
        "full round, all parties", "ours", "Flower's SecAgg+", "faster", "AES bound", "bound: faster"
    )
    for num_clients, length in SIZES:
        ours, theirs = compare(num_clients, length)
        bound = num_clients * (num_clients + 1) * 4 * length / 1e9 / (size / fastest)
        name = f"{num_clients} × {length:,} words"
        scaled = " (1 of 50, scaled)" if num_clients > 5 else ""
        rounds.add_row(
            name,
            f"{1000 * ours:.1f} ms",
            f"{1000 * theirs:,.0f} ms{scaled}",
            f"{theirs / ours:.1f}×",
            f"{1000 * bound:.1f} ms",
            f"{theirs / bound:.0f}×",
        )
    console = Console(width=120)
    console.print(rates)
    console.print(rounds)


if __name__ == "__main__":
    main()
