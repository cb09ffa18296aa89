"""Normal numbers from random words, and the rows that owe some (Box and Muller, 1958)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.compiled import compiled

__all__ = ["Debts", "Words", "box_muller", "box_muller_rows", "collect_debts"]

_QUARTER = np.int32(1 << 30)  # of a turn

Words = NDArray[np.int32]
Debts = NDArray[np.float64]
Marks = NDArray[np.bool_]


@compiled
def box_muller_rows(first: Words, second: Words, table: Floats, rows: Ids, deviations: Floats) -> None:
    """The two numbers of a pair of words go to two rows; the last row is alone where the count is odd."""
    half = first.shape[0]
    for i in range(rows.shape[0] - half):
        left, right = rows[i], rows[half + i]
        for k in range(table.shape[1]):
            radius = _radius(first[i, k])
            table[left, k] += deviations[i] * radius * _cosine(second[i, k])
            table[right, k] += deviations[half + i] * radius * _cosine(np.int32(second[i, k] - _QUARTER))
    for i in range(rows.shape[0] - half, half):
        for k in range(table.shape[1]):
            table[rows[i], k] += deviations[i] * _radius(first[i, k]) * _cosine(second[i, k])


@compiled
def box_muller(first: Words, second: Words, deviation: np.float32, left: Floats, right: Floats) -> None:
    """Two words add two normal numbers (Box and Muller, 1958), all in vector registers."""
    for i in range(right.shape[0]):
        radius = deviation * _radius(first[i])
        left[i] += radius * _cosine(second[i])
        right[i] += radius * _cosine(np.int32(second[i] - _QUARTER))
    for i in range(right.shape[0], left.shape[0]):  # one more where the count is odd
        left[i] += deviation * _radius(first[i]) * _cosine(second[i])


@compiled
def _radius(word: np.int32) -> np.float32:
    """√(−2 ln u) to 1e-6 for u = (k + ½) / 2³¹, k the upper 31 bits of the word; at most 6.66."""
    k = (word >> np.int32(1)) & np.int32(0x7FFFFFFF)
    bits = np.int32(np.float32(np.float32(k) + np.float32(0.5)).view(np.int32))
    exponent = np.int32((bits >> np.int32(23)) - np.int32(127 + 31))
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
    """cos(2π · word / 2³²) to 1e-6, as the sine of the rest to a quarter turn."""
    x = np.float32(0.25) - abs(np.float32(word) * np.float32(2.0**-32))  # in [−¼, ¼]
    y = x * x
    p = np.float32(-15.094642576822990)
    p = p * y + np.float32(42.058693944897655)
    p = p * y + np.float32(-76.705859753061386)
    p = p * y + np.float32(81.605249276075053)
    p = p * y + np.float32(-41.341702240399755)
    p = p * y + np.float32(6.283185307179586)
    return np.float32(p * x)


@compiled
def collect_debts(
    first: Ids, second: Ids, paid: Debts, variance: float, named: Marks, rows: Ids, since: Debts
) -> int:
    """The rows in either list that owe something, and up to where they were paid; now they are paid.

    They come in ascending order, so that the memory they lie in is walked through once.
    """
    for ids in (first, second):
        for i in range(ids.shape[0]):
            if ids[i] >= 0:
                named[ids[i]] = True
    count = 0
    for row in range(named.shape[0]):  # written always, and kept if it owes: a branch would be mispredicted
        owes = named[row] and paid[row] < variance
        rows[count], since[count] = row, paid[row]
        paid[row] = variance if owes else paid[row]
        count += int(owes)
        named[row] = False
    return count
