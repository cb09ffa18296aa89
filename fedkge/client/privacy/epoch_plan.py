"""How many steps an epoch of private training has and in which order: from the sizes of its parts alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

__all__ = ["EpochPlan"]


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

    @property
    def num_triples(self) -> int:
        """In one epoch, by expectation: how many were sampled is not for telling."""
        return self.num_unrestricted + (self.num_confidential if self.confidential_steps else 0)

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
