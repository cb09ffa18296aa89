"""Real vectors as words mod 2^32, so that a sum over all clients is exact and never wraps.

q = rint(x · 2^f) with the largest f for which n · C · 2^f < 2^31. Rounding moves each value by at most
2^-(f+1), and so a mean over any number of holders by at most 2^-(f+1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.crypto.kernels import encode_words
from fedkge.errors import RefusedError, SettingError

__all__ = ["FixedPoint", "FixedPointWords"]

MAX_FRACTION_BITS = 30


@dataclass(frozen=True, eq=False)
class FixedPointWords:
    """The words to be summed, and how many values the clip changed on the way."""

    words: NDArray[np.uint32]  # (n,)
    num_clipped: int

    @property
    def clip_rate(self) -> float:
        return self.num_clipped / max(len(self.words), 1)


@dataclass(frozen=True)
class FixedPoint:
    """The encoding that all clients share: values in [−clip, clip], `fraction_bits` after the point."""

    clip: float
    num_clients: int

    def __post_init__(self) -> None:
        if not (np.isfinite(self.clip) and self.clip > 0):
            raise SettingError(f"clip {self.clip} must be a positive number")
        if self.num_clients < 1:
            raise SettingError(f"a sum over {self.num_clients} clients has no encoding")
        if self.num_clients * self._largest(0) >= 2**31:
            raise SettingError(
                f"{self.num_clients} clients with clip {self.clip} overflow 32 bits; lower the clip"
            )

    def _largest(self, bits: int) -> float:
        return float(np.rint(self.clip * 2.0**bits))

    @cached_property
    def fraction_bits(self) -> int:
        bits = MAX_FRACTION_BITS
        while self.num_clients * self._largest(bits) >= 2**31:
            bits -= 1
        return bits

    @property
    def error_bound(self) -> float:
        """How far a mean over holders may lie from the mean of the values before encoding."""
        return 2.0 ** -(self.fraction_bits + 1)

    def encode(self, values: NDArray[Any], *, out: NDArray[np.uint32] | None = None) -> FixedPointWords:
        """Values of any shape, flattened; NaN and infinities are refused, since no clip can mend them.

        `out` holds the words if given: memory that is used every round need not be fetched anew.
        """
        flat = np.ascontiguousarray(values).ravel()
        words = np.empty(len(flat), dtype=np.uint32) if out is None else out
        if words.shape != flat.shape:
            raise SettingError(f"{len(flat)} values do not fit into {len(words)} words")
        num_clipped, num_bad = encode_words(flat, self.clip, 2.0**self.fraction_bits, words.view(np.int32))
        if num_bad:
            raise RefusedError(f"{num_bad} of {len(flat)} values are NaN or infinite; nothing was encoded")
        return FixedPointWords(words, num_clipped)

    def decode(
        self, words: NDArray[np.uint32], *, divisor: NDArray[np.int64] | int = 1
    ) -> NDArray[np.float64]:
        """The sum as real numbers, exactly; over a divisor, such as the holders of each row, rounded once."""
        return np.divide(words.view(np.int32), divisor * 2.0**self.fraction_bits, dtype=np.float64)
