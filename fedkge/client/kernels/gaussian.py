"""Normal numbers from random words, and the rows that owe some (Box and Muller, 1958)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.compiled import compiled
from fedkge.client.kernels.descent import add_carrying, fetch_carrying

__all__ = ["Debts", "Words", "box_muller", "box_muller_rows", "collect_debts", "snap"]

_QUARTER = np.int32(1 << 30)  # of a turn
_AHEAD = 2  # pairs of rows that are on their way from memory while one is noised

Words = NDArray[np.int32]
Debts = NDArray[np.float64]


@compiled
def box_muller_rows(
    first: Words, second: Words, table: Floats, carry: Floats, rows: Ids, deviations: Floats
) -> None:
    """The two numbers of a pair of words go to two rows; the last row is alone where the count is odd.

    The last bits of a row stand in `carry`.
    """
    half = first.shape[0]
    width = table.shape[1]
    noise = np.empty((2, width), dtype=np.float32)
    for i in range(half):
        if half + i + _AHEAD < rows.shape[0]:
            fetch_carrying(table, carry, rows[i + _AHEAD])
            fetch_carrying(table, carry, rows[half + i + _AHEAD])
        for k in range(width):
            radius = _radius(first[i, k], second[i, k])
            noise[0, k] = radius * _cosine(second[i, k])
            noise[1, k] = radius * _cosine(np.int32(second[i, k] - _QUARTER))
        add_carrying(table, carry, rows[i], deviations[i], noise, 0)
        if half + i < rows.shape[0]:
            add_carrying(table, carry, rows[half + i], deviations[half + i], noise, 1)


@compiled
def snap(values: Floats, grid: np.float32) -> None:
    """Round to multiples of a power of two; what is so large that its last bit is above it stays."""
    inverse = np.float32(1) / grid
    for i in range(values.shape[0]):
        for k in range(values.shape[1]):
            values[i, k] = np.floor(values[i, k] * inverse + np.float32(0.5)) * grid


@compiled
def box_muller(first: Words, second: Words, deviation: np.float32, left: Floats, right: Floats) -> None:
    """Two words add two normal numbers (Box and Muller, 1958), all in vector registers."""
    for i in range(right.shape[0]):
        radius = deviation * _radius(first[i], second[i])
        left[i] += radius * _cosine(second[i])
        right[i] += radius * _cosine(np.int32(second[i] - _QUARTER))
    for i in range(right.shape[0], left.shape[0]):  # one more where the count is odd
        left[i] += deviation * _radius(first[i], second[i]) * _cosine(second[i])


@compiled
def _radius(word: np.int32, other: np.int32) -> np.float32:
    """√(−2 ln u) to 1e-6 for u = (k + ½) / 2³⁹; at most 7.44.

    k is the upper 31 bits of the first word and the lower 8 of the other, which no angle uses.
    """
    upper = np.float32((word >> np.int32(1)) & np.int32(0x7FFFFFFF))
    lower = np.float32(other & np.int32(0xFF)) + np.float32(0.5)
    bits = np.int32(np.float32(upper * np.float32(256) + lower).view(np.int32))
    exponent = np.int32((bits >> np.int32(23)) - np.int32(127 + 39))
    mantissa = np.int32((bits & np.int32(0x007FFFFF)) | np.int32(0x3F800000)).view(np.float32)
    z = (mantissa - np.float32(1)) / (mantissa + np.float32(1))  # ln m = 2 artanh z for m in [1, 2)
    y = z * z
    p = np.float32(1 / 11)
    p = p * y + np.float32(1 / 9)
    p = p * y + np.float32(1 / 7)
    p = p * y + np.float32(1 / 5)
    p = p * y + np.float32(1 / 3)
    p = p * y + np.float32(1)
    logarithm = np.float32(exponent) * np.float32(0.69314718) + np.float32(2) * z * p
    return np.float32(np.sqrt(max(np.float32(-2) * logarithm, np.float32(0))))


@compiled
def _cosine(word: np.int32) -> np.float32:
    """cos(2π (k + ½) / 2²⁴) to 1e-6, k the upper 24 bits, as the sine of the rest to a quarter turn."""
    k = np.float32(word >> np.int32(8)) + np.float32(0.5)
    x = np.float32(0.25) - abs(k * np.float32(2.0**-24))  # in (−¼, ¼), and never 0
    y = x * x
    p = np.float32(-15.094642576822990)
    p = p * y + np.float32(42.058693944897655)
    p = p * y + np.float32(-76.705859753061386)
    p = p * y + np.float32(81.605249276075053)
    p = p * y + np.float32(-41.341702240399755)
    p = p * y + np.float32(6.283185307179586)
    return np.float32(p * x)


@compiled
def collect_debts(first: Ids, second: Ids, paid: Debts, variance: float, rows: Ids, since: Debts) -> int:
    """The rows in either list that owe something, each once, and up to where they were paid; now they are."""
    count = 0
    for ids in (first, second):
        for i in range(ids.shape[0]):
            row = ids[i]
            if row >= 0 and paid[row] < variance:
                rows[count], since[count] = row, paid[row]
                paid[row] = variance
                count += 1
    return count
