"""The two rings that sums live in: words mod 2^32 for vectors, the field mod 2^61 − 1 for counted tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import MessageError

__all__ = ["FIELD61", "RINGS", "WORD32", "Field61", "Ring", "Word32"]


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
    def absorb(self, total: NDArray[Any], stream: NDArray[Any], sign: int) -> None:
        """total ← total ± stream, for uniformly random words; the stream may be overwritten."""

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

    def absorb(self, total: NDArray[Any], stream: NDArray[Any], sign: int) -> None:
        (np.add if sign > 0 else np.subtract)(total, stream, out=total)

    def settle(self, total: NDArray[Any]) -> None:
        """Every word is already canonical."""


class Field61(Ring):
    """Integers mod the Mersenne prime p = 2^61 − 1, kept in [0, p] between steps and in [0, p) when shown.

    A mask word is 61 bits of the stream with p read as 0: at most 2^-61 from uniform.
    """

    code = 2
    modulus = (1 << 61) - 1
    dtype = "<u8"
    _p: ClassVar[Any] = np.uint64((1 << 61) - 1)
    _bits: ClassVar[Any] = np.uint64(61)

    def add(self, total: NDArray[Any], values: NDArray[Any]) -> None:
        np.add(total, values, out=total)
        carry = total >> self._bits
        np.bitwise_and(total, self._p, out=total)
        np.add(total, carry, out=total)

    def absorb(self, total: NDArray[Any], stream: NDArray[Any], sign: int) -> None:
        np.bitwise_and(stream, self._p, out=stream)
        if sign < 0:
            np.subtract(self._p, stream, out=stream)
        self.add(total, stream)

    def settle(self, total: NDArray[Any]) -> None:
        total[total == self._p] = 0

    def check(self, values: NDArray[Any], name: str) -> None:
        super().check(values, name)
        if len(values) and values.max() >= self._p:
            raise MessageError(f"{name}: a word is not below 2^61 − 1; an unreduced sum would leak counts")


WORD32 = Word32()
FIELD61 = Field61()
RINGS: dict[int, Ring] = {ring.code: ring for ring in (WORD32, FIELD61)}
