"""Round numbers along an axis."""

from __future__ import annotations

from math import ceil, floor, log10

__all__ = ["decades", "nice_ticks"]

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_TINY = 1e-100
_NARROW = 1e-9


def nice_ticks(low: float, high: float, most: int = 6, whole: bool = False) -> list[float]:
    """At most so many round numbers, evenly spaced, that enclose the values from low to high."""
    low, high = _apart(low, high)
    step = 10.0 ** floor(log10((high - low) / most))
    for _ in range(3):  # rounding may cost a step or two
        for nice in _STEPS:
            size = step * nice
            if whole:
                size = max(1.0, float(round(size)))
            first, last = floor(low / size), ceil(high / size)
            if last - first + 1 <= most:
                return [float(f"{number * size:.12g}") for number in range(first, last + 1)]
        step *= 10
    return [low, high]


def _apart(low: float, high: float) -> tuple[float, float]:
    """A range wide enough to divide: around values that are as good as equal, from zero to twice as much."""
    size = max(abs(low), abs(high))
    if size < _TINY:
        return 0.0, 1.0
    if high - low < _NARROW * size:
        return min(0.0, 2 * low), max(0.0, 2 * low)
    return low, high


def decades(low: float, high: float) -> list[float]:
    """Powers of ten that enclose positive values."""
    first, last = floor(log10(low)), ceil(log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]
