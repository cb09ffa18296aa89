"""How many steps an epoch of private training has and in which order: from the sizes of its parts alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

__all__ = ["EpochPlan", "Stretch"]


@dataclass(frozen=True)
class Stretch:
    """The epochs of a run that one call trains: the next `count` after `first`, of `total`."""

    first: int
    count: int
    total: int

    @classmethod
    def whole(cls, epochs: int) -> Stretch:
        """A run of one call."""
        return cls(0, epochs, epochs)

    @property
    def epochs(self) -> range:
        return range(self.first, self.first + self.count)


@dataclass(frozen=True)
class EpochPlan:
    """One epoch over unrestricted (U) and confidential (C) triples; |U| and |C| are public."""

    num_unrestricted: int
    num_confidential: int
    unrestricted_batch: int
    batch: int  # of confidential triples, by expectation where they are sampled
    confidential_steps: int

    @property
    def rate(self) -> float:
        """The chance of a confidential triple to be in a step."""
        return self.batch / self.num_confidential

    @property
    def unrestricted_steps(self) -> int:
        return -(-self.num_unrestricted // self.unrestricted_batch)

    def order(self, rng: np.random.Generator) -> Iterator[bool]:
        """Lines 2–9 of Algorithm 1: whether each step is confidential, so that counts follow |U| / |C|."""
        done, planned = [0, 0], [self.unrestricted_steps, self.confidential_steps]  # m_U, m_C
        while done != planned:
            excess = done[0] * self.num_confidential - done[1] * self.num_unrestricted
            chosen = excess > 0 if excess else bool(rng.integers(2))
            if done[chosen] == planned[chosen]:
                chosen = not chosen
            done[chosen] += 1
            yield chosen
