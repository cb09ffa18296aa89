"""The figures of a guess, for all triples and for those whose entities do not give the answer away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.membership.central.halves import Answers
from fedkge.attacks.membership.central.shadows import Bars
from fedkge.attacks.membership.clusters import entity_intervals
from fedkge.attacks.membership.curve import RATES, Curve, Interval
from fedkge.attacks.membership.guesses import Bools, Guess, decision_figures

__all__ = ["Measure", "measures_of"]


@dataclass(frozen=True)
class Measure:
    """One number of one attack on one subset."""

    subset: str
    metric: str
    value: float
    interval: Interval
    members: int
    others: int


def measures_of(
    guess: Guess,
    answers: Answers,
    rng: np.random.Generator,
    bars: Bars | None = None,
    ends: NDArray[np.int64] | None = None,
) -> list[Measure]:
    """Every figure on every subset that has members and others; bars add the rates they really give.

    Intervals redraw triples, or entities if the ends of the triples are given.
    """
    measures = []
    for subset, chosen in answers.subsets.items():
        member = answers.member[chosen]
        if member.all() or not member.any():
            continue
        part = Guess(guess.certainty[chosen], guess.member[chosen])
        values = decision_figures(part.member, member) | Curve.of(part.certainty, member).figures(rng)
        if ends is not None:
            intervals = entity_intervals(part, member, ends[chosen], rng)
            values = {metric: (value, intervals[metric]) for metric, (value, _) in values.items()}
        if bars is not None:
            values |= _calibrated(part, member, bars)
        counts = int(member.sum()), int((~member).sum())
        measures += [Measure(subset, metric, *value, *counts) for metric, value in values.items()]
    return measures


def _calibrated(guess: Guess, member: Bools, bars: Bars) -> dict[str, tuple[float, Interval]]:
    """What the shadows' bars give on the target: the true rates beside the one aimed at."""
    shares = {}
    for rate in RATES:
        called = guess.certainty >= bars.at_rate[rate]
        shares[f"calibrated tpr@{rate:.1%}"] = _share(called[member])
        shares[f"calibrated fpr@{rate:.1%}"] = _share(called[~member])
    return shares


def _share(called: Bools) -> tuple[float, Interval]:
    """A share with its Wilson interval."""
    n, p, z = len(called), float(called.mean()), 1.96
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * float(np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)))
    return p, (max(centre - half, 0.0), min(centre + half, 1.0))
