"""Rows of complex numbers, the real parts first: their product, and the gradients of both factors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedkge.client.arrays import Floats
from fedkge.client.compiled import compiled

__all__ = ["multiply"]


def multiply(rows: Floats, factors: Floats) -> tuple[Floats, Callable[[Floats], tuple[Floats, Floats]]]:
    """rows · factors, place by place, and what takes gradients at the product back to rows and factors."""
    product = np.empty_like(rows)
    _multiply(rows, factors, np.float32(1), product)

    def pull(slopes: Floats) -> tuple[Floats, Floats]:
        at_rows, at_factors = np.empty_like(rows), np.empty_like(factors)
        _multiply(slopes, factors, np.float32(-1), at_rows)
        _multiply(slopes, rows, np.float32(-1), at_factors)
        return at_rows, at_factors

    return product, pull


@compiled
def _multiply(first: Floats, second: Floats, sign: np.float32, out: Floats) -> None:
    """A sign of −1 conjugates the second, which is how a gradient passes a product."""
    half = out.shape[1] // 2
    for i in range(out.shape[0]):
        for k in range(half):
            a, b, c, d = first[i, k], first[i, half + k], second[i, k], sign * second[i, half + k]
            out[i, k] = a * c - b * d
            out[i, half + k] = a * d + b * c
