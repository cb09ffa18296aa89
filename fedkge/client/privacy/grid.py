"""Noisy sums of vectors that are no longer than 1, exact on a grid: no rounding depends on what is summed.

Coordinates are cut towards zero to multiples of 2⁻²⁴, so that no vector grows, and added as whole numbers.
Noise is rounded to the same grid. Rounding commutes with adding a whole number, so the result is that of the
Gaussian mechanism over real numbers, rounded afterwards: the low bits of floating-point noise (Mironov, 2012)
tell nothing. What is left is how far float64 noise, on that grid, is from normal.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.scatter import add_whole
from fedkge.client.privacy.normals import Keystream

__all__ = ["GRID", "GridSum", "ParameterSums", "unit_share"]

GRID = 2.0**24  # points per unit
_SHORT = 1 - 1e-9  # so that rounding in a norm cannot make a vector longer than 1
_TINY = 1e-30
_BLOCK = 2**20  # normal numbers that are drawn at once

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]


def unit_share(square: Numbers) -> Numbers:
    """(b,) what makes vectors of these squared lengths as long as 1; 0 for broken and for empty ones."""
    usable = np.isfinite(square) & (square > _TINY)
    return np.where(usable, _SHORT / np.sqrt(np.where(usable, square, 1.0)), 0.0)


class GridSum:
    """Sums of rows, in whole numbers of 1 / GRID."""

    def __init__(self, num_rows: int, width: int) -> None:
        self.sums = np.zeros((num_rows, width), dtype=np.int64)

    def add(self, vectors: Numbers, places: Places) -> None:
        """Add vectors (b, w) to the rows at those places (b,); a negative place is none."""
        kept = np.flatnonzero(places >= 0)
        if not len(kept):
            return
        whole = np.trunc(vectors[kept] * GRID).astype(np.int64)
        ones = np.ones(len(kept), dtype=np.int64)
        which = csr_array((ones, (places[kept], np.arange(len(kept)))), shape=(len(self.sums), len(kept)))
        self.sums += which @ whole

    def noised(self, deviation: float, stream: Keystream) -> Numbers:
        """The sums with independent normal noise of that deviation on every number."""
        noise = np.rint(stream.normals(self.sums.size) * (deviation * GRID)).reshape(self.sums.shape)
        noisy: Numbers = (self.sums + noise.astype(np.int64)) / GRID
        return noisy


class ParameterSums:
    """Sums of gradients of single triples over every parameter, in whole numbers of 1 / GRID.

    Whole numbers below 2⁵³ are exact in double precision: 2²⁹ triples fit.
    """

    def __init__(self, parameters: Mapping[str, Floats]) -> None:
        self.sums = {name: np.zeros(rows.shape) for name, rows in parameters.items()}

    def add(self, name: str, gradient: Floats, rows: Ids, share: float) -> None:
        """Add share · gradient (r, w) to those rows (r,) of a parameter, cut towards zero."""
        add_whole(gradient, share * GRID, rows, self.sums[name])

    def noised(self, name: str, deviation: float, stream: Keystream) -> Numbers:
        """The sums of one parameter with independent normal noise of that deviation on every number."""
        total = self.sums[name]
        flat = total.reshape(-1)
        for start in range(0, flat.size, _BLOCK):
            part = flat[start : start + _BLOCK]
            part += np.rint(stream.normals(part.size) * (deviation * GRID))
        return total / GRID
