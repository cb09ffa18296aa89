"""Masks: AES-256 keystreams added straight into a vector.

The GCM ciphertext of zeros under a zero nonce is the CTR keystream from counter 2, and OpenSSL makes it
faster than CTR itself. Each key is used for one stream and never again, so the fixed nonce repeats nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import GCM
from numpy.typing import NDArray

from fedkge.crypto.rings import Ring
from fedkge.errors import SettingError

__all__ = ["CHUNK_BYTES", "add_masks"]

CHUNK_BYTES = 1 << 17  # stream, zeros and a piece of the vector stay in the second-level cache
MAX_BYTES = (1 << 36) - 32  # what one GCM key may encrypt
SLACK_BYTES = 16  # update_into wants room for one more block
ZEROS = memoryview(bytes(CHUNK_BYTES))
NONCE = bytes(12)


def add_masks(vector: NDArray[Any], ring: Ring, signed_keys: Iterable[tuple[bytes, int]]) -> None:
    """vector ← vector + Σ sign · stream(key), in place, chunk by chunk so that the vector is read once."""
    if vector.nbytes > MAX_BYTES:
        raise SettingError(
            f"a vector of {vector.nbytes} bytes is longer than one mask key may cover ({MAX_BYTES})"
        )
    streams = [(Cipher(AES256(key), GCM(NONCE)).encryptor(), sign) for key, sign in signed_keys]
    buffer = np.empty(CHUNK_BYTES + SLACK_BYTES, dtype=np.uint8)
    words = buffer[:CHUNK_BYTES].view(ring.dtype)
    step = CHUNK_BYTES // ring.word_size
    for start in range(0, len(vector), step):
        piece = vector[start : start + step]
        zeros = ZEROS[: piece.nbytes]
        for stream, sign in streams:
            stream.update_into(zeros, buffer)  # type: ignore[arg-type]
            ring.absorb(piece, words[: len(piece)], sign)
    ring.settle(vector)
