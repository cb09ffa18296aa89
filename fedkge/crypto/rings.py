"""The two rings that sums live in: words mod 2^32 for vectors, the field mod 2^61 − 1 for counted tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedkge.crypto.kernels import P, absorb_elements, absorb_words
from fedkge.errors import MessageError

__all__ = ["FIELD61", "FUSED", "WORD32", "Field61", "Ring", "Word32"]

FUSED = 5  # mask streams added in one call
_BITS = np.uint64(61)


class Ring(ABC):
    """A modulus, the words that hold its elements, and how a mask stream becomes elements."""

    code: ClassVar[int]
    modulus: ClassVar[int]
    dtype: ClassVar[str]

    @property
    def word_size(self) -> int:
        return np.dtype(self.dtype).itemsize

    @abstractmethod
    def add(self, total: NDArray[Any], values: NDArray[Any]) -> None:
        """total ← total + values, for elements of the ring."""

    @abstractmethod
    def absorb(self, total: NDArray[Any], streams: NDArray[Any], flips: NDArray[Any]) -> None:
        """total ← total + Σ ± stream, for up to FUSED rows of uniformly random words."""

    @abstractmethod
    def flips(self, signs: Sequence[int]) -> NDArray[Any]:
        """What turns a stream into its negative, for each sign."""

    @abstractmethod
    def settle(self, total: NDArray[Any]) -> None:
        """Bring every word to its one canonical form, which alone may be shown."""

    def check(self, values: NDArray[Any], name: str) -> None:
        """Raise unless the array holds canonical elements of the ring."""
        if values.ndim != 1 or values.dtype != np.dtype(self.dtype):
            raise MessageError(
                f"{name}: expected a vector of {self.dtype} words, got {values.ndim}-d {values.dtype}"
            )


class Word32(Ring):
    """Integers mod 2^32: the machine's own addition."""

    code = 1
    modulus = 1 << 32
    dtype = "<u4"

    def add(self, total: NDArray[Any], values: NDArray[Any]) -> None:
        np.add(total, values, out=total)

    def absorb(self, total: NDArray[Any], streams: NDArray[Any], flips: NDArray[Any]) -> None:
        absorb_words(total, streams, flips)

    def flips(self, signs: Sequence[int]) -> NDArray[Any]:
        return np.array([0 if sign > 0 else 0xFFFFFFFF for sign in signs], dtype=self.dtype)

    def settle(self, total: NDArray[Any]) -> None:
        """Every word is already canonical."""


class Field61(Ring):
    """Integers mod the Mersenne prime p = 2^61 − 1, kept in [0, p] between steps and in [0, p) when shown.

    A mask word is 61 bits of the stream with p read as 0: at most 2^-61 from uniform.
    """

    code = 2
    modulus = (1 << 61) - 1
    dtype = "<u8"

    def add(self, total: NDArray[Any], values: NDArray[Any]) -> None:
        np.add(total, values, out=total)
        carry = total >> _BITS
        np.bitwise_and(total, P, out=total)
        np.add(total, carry, out=total)

    def absorb(self, total: NDArray[Any], streams: NDArray[Any], flips: NDArray[Any]) -> None:
        absorb_elements(total, streams, flips)

    def flips(self, signs: Sequence[int]) -> NDArray[Any]:
        return np.array([0 if sign > 0 else self.modulus for sign in signs], dtype=self.dtype)

    def settle(self, total: NDArray[Any]) -> None:
        total[total == P] = 0

    def check(self, values: NDArray[Any], name: str) -> None:
        super().check(values, name)
        if len(values) and values.max() >= P:
            raise MessageError(f"{name}: a word is not below 2^61 − 1; an unreduced sum would leak counts")


WORD32 = Word32()
FIELD61 = Field61()
