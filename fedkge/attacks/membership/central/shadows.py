"""Shadow models: the adversary trains like the target, on random halves of the triples it asks about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedkge.attacks.membership.guess import Bools, Values
from fedkge.client.kernels.arrays import Ids
from fedkge.errors import SettingError

__all__ = ["Shadows", "drawn_halves"]

LEAST = 4  # one stands in for the target in turn; of the rest each triple needs one with and one without it

Query = Callable[[Ids, int], Values]  # train on these triples as model number k, then score all the questions


@dataclass(frozen=True)
class Shadows:
    """What each shadow model says of each triple, and whether it was trained on it."""

    signal: Values  # (k, n)
    included: Bools  # (k, n)

    @classmethod
    def train(cls, triples: Ids, count: int, query: Query, rng: np.random.Generator) -> Shadows:
        """Train `count` models, one after the other."""
        included = drawn_halves(count, len(triples), rng)
        signal = np.stack([query(triples[chosen], k) for k, chosen in enumerate(included)])
        return cls(signal, included)

    def __len__(self) -> int:
        return len(self.signal)

    def without(self, k: int) -> Shadows:
        """All but one, which then plays the target."""
        others = np.arange(len(self)) != k
        return Shadows(self.signal[others], self.included[others])


def drawn_halves(count: int, size: int, rng: np.random.Generator) -> Bools:
    """(count, size): every triple is in exactly half of the models, each time another half."""
    if count < LEAST or count % 2:
        raise SettingError(f"{count} shadow models: expected an even number of at least {LEAST}")
    places = rng.random((count, size)).argsort(axis=0)
    halves: Bools = places < count // 2
    return halves
