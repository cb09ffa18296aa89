"""Initial values of parameters: a row depends on the key of its table and on its label alone.

Two clients that hold the same entity under different row numbers start from the same row, without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from fedkge.client.kernels.arrays import Floats

__all__ = ["generator_of", "seed_key", "uniform_rows"]


def seed_key(seed: int, name: str) -> bytes:
    """The key of a parameter that all who know the seed start alike."""
    return blake2b(f"{seed}/{name}".encode(), digest_size=32).digest()


def generator_of(key: bytes) -> np.random.Generator:
    """For initial values that belong to no label."""
    return np.random.default_rng(np.frombuffer(blake2b(key, digest_size=32).digest(), dtype=np.uint32))


def uniform_rows(key: bytes, labels: Sequence[str], width: int) -> Floats:
    """Uniform numbers in (0, 1), one row of that width per label; a key has at most 64 bytes."""
    digests = b"".join(blake2b(label.encode(), digest_size=8, key=key).digest() for label in labels)
    states = np.frombuffer(digests, dtype="<u8")[:, None]  # (n, 1)
    rows = np.empty((len(labels), width), dtype=np.float32)
    block = max(1, 2**18 // width)  # a block fits in the cache
    for start in range(0, len(labels), block):
        rows[start : start + block] = _uniform(states[start : start + block], width)
    return rows


def _uniform(states: np.ndarray[tuple[int, ...], np.dtype[np.uint64]], width: int) -> Floats:
    """The splitmix64 stream of each state (Steele, Lea and Flood, 2014), its top 23 bits as a fraction."""
    steps = np.arange(1, width + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = states + steps  # (n, width), wrapping
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    bits = (z >> np.uint64(41)).astype(np.float32)  # 23 bits, so that adding a half is exact
    fractions: Floats = (bits + np.float32(0.5)) * np.float32(2**-23)
    return fractions
