"""Bars that an adversary can really set: found on its shadow models, where it knows who is a member."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedkge.attacks.membership.central.shadows import Shadows
from fedkge.attacks.membership.curve import RATES, Curve
from fedkge.attacks.membership.guess import Bools, Guess, Values

__all__ = ["Bars", "calibrate", "rehearse"]

Statistic = Callable[[Values, Shadows], Values]


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
    return Bars(float(best), {rate: float(curve.bars[place]) for rate, place in last.items()})


def rehearse(statistic: Statistic, shadows: Shadows) -> Bars:
    """Let each shadow model play the target once, attacked with all the others."""
    certainty = [statistic(shadows.signal[k], shadows.without(k)) for k in range(len(shadows))]
    return calibrate(np.concatenate(certainty), shadows.included.ravel())
