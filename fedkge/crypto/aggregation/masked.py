"""A masked vector as it travels, for whoever reads a transcript without being a party."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from fedkge.crypto.aggregation.pairwise_keys import BINDING_SIZE
from fedkge.crypto.keys import SIGNATURE_SIZE
from fedkge.crypto.rings import WORD32, Ring
from fedkge.crypto.wire import Kind, Reader

__all__ = ["masked_words"]


def masked_words(message: bytes, ring: Ring = WORD32) -> NDArray[Any]:
    """(length,) the words of a client's masked vector: uniformly random to all who lack its masks."""
    reader = Reader.outsider(message, Kind.MASKED)
    reader.raw(BINDING_SIZE + SIGNATURE_SIZE)
    words = reader.array(ring.dtype)
    reader.finish()
    return words
