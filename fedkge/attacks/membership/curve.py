"""The ROC curve of an attack, the area under it, and the members found at a low rate of false alarms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedkge.attacks.membership.guesses import Bools, Values
from fedkge.errors import DataError

__all__ = ["RATES", "Curve", "Interval", "area", "highest"]

RATES = (0.01, 0.001)  # false-positive rates at which attacks are compared
_RESAMPLES = 200
_BLOCK = 2**20  # points of redrawn curves held at once

Interval = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """How often non-members (fpr) and members (tpr) are called members, from the strictest bar downwards."""

    fpr: Values  # (k + 1,) starts at 0
    tpr: Values  # (k + 1,)
    bars: Values  # (k + 1,) the certainty from which on a triple is called a member; the first is inf
    num_members: int
    num_others: int

    @classmethod
    def of(cls, certainty: Values, member: Bools) -> Curve:
        """Every distinct certainty is a point."""
        from sklearn.metrics import roc_curve  # takes a second to import

        members = int(member.sum())
        if members in (0, len(member)):
            raise DataError("an ROC curve needs members and non-members; ask about both")
        if not np.isfinite(certainty).all():
            raise DataError("an attack's certainty is not a finite number; was its model trained to NaN?")
        fpr, tpr, bars = roc_curve(member, certainty, drop_intermediate=False)
        return cls(fpr, tpr, bars, members, len(member) - members)

    @property
    def auc(self) -> float:
        """The chance that a member is ranked above a non-member, ties counted half."""
        return float(area(self.fpr, self.tpr))

    def tpr_at(self, rate: float) -> float:
        """The largest share of members found with at most that share of false alarms; no interpolation."""
        return float(highest(self.fpr, self.tpr, rate))

    def figures(self, rng: np.random.Generator) -> dict[str, tuple[float, Interval]]:
        """AUC and TPR at each rate, with 95 % percentile intervals over members and non-members redrawn."""
        values = {"auc": self.auc, **{f"tpr@{rate:.1%}": self.tpr_at(rate) for rate in RATES}}
        redrawn = np.concatenate(list(self._redrawn(rng)))  # (resamples, figures)
        low, high = np.percentile(redrawn, [2.5, 97.5], axis=0).tolist()
        return {name: (values[name], (low[i], high[i])) for i, name in enumerate(values)}

    def _redrawn(self, rng: np.random.Generator) -> Iterator[Values]:
        """The figures of curves redrawn, some at a time."""
        alarms, hits = np.diff(self.fpr), np.diff(self.tpr)
        size = max(1, _BLOCK // len(alarms))
        for start in range(0, _RESAMPLES, size):
            count = min(size, _RESAMPLES - start)
            fpr = _cumulated(alarms, self.num_others, count, rng)
            tpr = _cumulated(hits, self.num_members, count, rng)
            yield np.stack([area(fpr, tpr), *(highest(fpr, tpr, rate) for rate in RATES)], axis=1)


def area(fpr: Values, tpr: Values) -> Values:
    """Under one curve, or under each of several."""
    return np.asarray(np.trapezoid(tpr, fpr, axis=-1))


def highest(fpr: Values, tpr: Values, rate: float) -> Values:
    """The share of members found where at most that share of the others is."""
    # A rate such as 7/7000 may come out a bit above 0.001.
    last = (fpr <= rate * (1 + 1e-9)).sum(axis=-1, keepdims=True) - 1
    highest: Values = np.take_along_axis(tpr, last, axis=-1)[..., 0]
    return highest


def _cumulated(shares: Values, draws: int, count: int, rng: np.random.Generator) -> Values:
    """(count, points): the cumulative shares of as many draws, each time anew."""
    present = np.flatnonzero(shares > 0)
    drawn = np.zeros((count, len(shares) + 1))
    chances = shares[present] / shares[present].sum()
    drawn[:, present + 1] = rng.multinomial(draws, chances, size=count) / draws
    cumulated: Values = np.cumsum(drawn, axis=1)
    return cumulated
