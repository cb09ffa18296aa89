"""Shadow models: the adversary trains like the target, on random halves of the triples it asks about.

On shadows it knows who is a member, so that it can really set the bars that turn a certainty into a yes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedkge.attacks.membership.curve import RATES, Curve
from fedkge.attacks.membership.guesses import Bools, Guess, Values
from fedkge.client.kernels.arrays import Ids
from fedkge.errors import SettingError

__all__ = ["Bars", "Shadows", "calibrate", "drawn_halves", "rehearse"]

LEAST = 4  # one stands in for the target in turn; of the rest each triple needs one with and one without it

Query = Callable[[Ids, int], Values]  # train on these triples as model number k, then score all the questions
Statistic = Callable[[Values, "Shadows"], Values]  # (n,) the target's signal, and all shadows': a certainty


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
    ranks = rng.random((count, size)).argsort(axis=0)
    halves: Bools = ranks < count // 2
    return halves


@dataclass(frozen=True)
class Bars:
    """The certainty from which on a triple is called a member."""

    best: float  # where the rehearsal was right most often
    at_rate: dict[float, float]  # where that share of the rehearsal's non-members was called members

    def guess(self, certainty: Values) -> Guess:
        return Guess(certainty, certainty >= self.best)


def calibrate(certainty: Values, member: Bools) -> Bars:
    """Bars from an attack on models whose members are known."""
    curve = Curve.of(certainty, member)
    best = curve.bars[np.argmax(curve.tpr - curve.fpr)]
    last = {rate: np.searchsorted(curve.fpr, rate * (1 + 1e-9), side="right") - 1 for rate in RATES}
    return Bars(float(best), {rate: float(curve.bars[index]) for rate, index in last.items()})


def rehearse(statistic: Statistic, shadows: Shadows) -> Bars:
    """Let each shadow model play the target once, attacked with all the others."""
    certainty = [statistic(shadows.signal[k], shadows.without(k)) for k in range(len(shadows))]
    return calibrate(np.concatenate(certainty), shadows.included.ravel())
