"""The mean of the last iterates of private training, in place of the last one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats

__all__ = ["IterateMean"]

_ITERATES = 20  # that a mean is taken of, at most: each is noised in every row


class IterateMean:
    """The mean of a call's last iterates, of which it takes some that are evenly apart.

    Every one is noised in all rows and on the grid of what is released, so that the mean is post-processing.
    """

    def __init__(self, steps: int = 0, averaged: int = 0) -> None:
        self.left = steps
        self.averaged = averaged
        self.apart = max(-(-averaged // _ITERATES), 1)
        self.taken = 0
        self.total: dict[str, NDArray[np.float64]] = {}

    def due(self) -> bool:
        """Whether the iterate after this step is one of them; the last one always is."""
        self.left -= 1
        return 0 <= self.left < self.averaged and self.left % self.apart == 0

    def take(self, iterate: Mapping[str, Floats]) -> None:
        self.taken += 1
        for name, rows in iterate.items():
            self.total[name] = self.total.get(name, 0.0) + rows.astype(np.float64)

    def write(self, tables: Mapping[str, Floats]) -> None:
        """Make the tables the mean, if there is one."""
        for name, total in self.total.items():
            tables[name][:] = total / self.taken
