"""Masks: AES-256 keystreams added to a vector, a chunk at a time.

The keystream is CTR mode from counter 2, which equals the GCM ciphertext of zeros under a zero nonce bit for
bit. Which of the two OpenSSL makes faster, by a factor of two either way, depends on the processor: the first
use times both. Each key is used for one stream and never again, so the fixed counter repeats nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR, GCM
from numpy.typing import NDArray

from fedkge.crypto.rings import FUSED, Ring
from fedkge.errors import SettingError

__all__ = ["CHUNK_BYTES", "STREAMS", "add_masks", "fastest_stream"]

CHUNK_BYTES = 1 << 17  # longer pieces leave the cache, shorter ones spend their time in calls
MAX_BYTES = (1 << 36) - 32  # where GCM's 32-bit counter would wrap
SLACK_BYTES = 16  # update_into wants room for one more block
ZEROS = memoryview(bytes(CHUNK_BYTES))
TRIALS = 3

SignedKeys = Iterable[tuple[bytes, int]]


def _counter_mode(key: bytes) -> CipherContext:
    return Cipher(AES256(key), CTR(bytes(15) + b"\2")).encryptor()


def _galois_mode(key: bytes) -> CipherContext:
    return Cipher(AES256(key), GCM(bytes(12))).encryptor()


STREAMS: dict[str, Callable[[bytes], CipherContext]] = {"CTR": _counter_mode, "GCM": _galois_mode}


@cache
def fastest_stream() -> str:
    """The name of the mode that makes this stream faster here."""
    buffer = bytearray(CHUNK_BYTES + SLACK_BYTES)
    taken = dict.fromkeys(STREAMS, float("inf"))
    for name in list(STREAMS) * TRIALS:
        stream = STREAMS[name](bytes(32))
        start = time.perf_counter()
        stream.update_into(ZEROS, buffer)
        taken[name] = min(taken[name], time.perf_counter() - start)
    return min(taken, key=taken.__getitem__)


def add_masks(vector: NDArray[Any], ring: Ring, signed_keys: SignedKeys) -> None:
    """vector ← vector + Σ sign · stream(key), all streams of a chunk before the next chunk."""
    absorb = _absorber(vector, ring, signed_keys)
    step = CHUNK_BYTES // ring.word_size
    for start in range(0, len(vector), step):
        absorb(vector[start : start + step])


def _absorber(vector: NDArray[Any], ring: Ring, signed_keys: SignedKeys) -> Callable[[NDArray[Any]], None]:
    """What adds the next bytes of all streams to a chunk."""
    if vector.nbytes > MAX_BYTES:
        raise SettingError(
            f"a vector of {vector.nbytes} bytes is longer than one mask key may cover ({MAX_BYTES})"
        )
    make = STREAMS[fastest_stream()]
    streams = [(make(key), sign) for key, sign in signed_keys]
    groups = [streams[i : i + FUSED] for i in range(0, len(streams), FUSED)]
    flips = [ring.flips([sign for _, sign in group]) for group in groups]
    buffer = np.empty((FUSED, CHUNK_BYTES + SLACK_BYTES), dtype=np.uint8)
    words, rows = buffer.view(ring.dtype), [memoryview(row) for row in buffer]  # type: ignore[arg-type]

    def absorb(chunk: NDArray[Any]) -> None:
        zeros = ZEROS[: chunk.nbytes]
        for group, flip in zip(groups, flips, strict=True):
            for (stream, _), row in zip(group, rows, strict=False):
                stream.update_into(zeros, row)
            ring.absorb(chunk, words, flip)
        ring.settle(chunk)

    return absorb
