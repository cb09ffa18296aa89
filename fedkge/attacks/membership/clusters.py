"""Intervals for triples that share entities: the entities are redrawn, and with them all their triples.

Scores of triples with a common entity rise and fall together, so redrawing triples one by one would make
intervals too narrow: rows that say nothing would too often seem to say something. Each entity gets a random
weight and a triple the product of its ends' (the pigeonhole bootstrap of Owen, 2007, with the weights of
Rubin, 1981). That is cautious: where entities do not matter, intervals come out wider than needed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.membership.curve import RATES, Interval, area, highest
from fedkge.attacks.membership.guesses import Bools, Guess, Values, decision_values

__all__ = ["entity_intervals"]

_RESAMPLES = 200
_BLOCK = 2**20  # weights held at once


def entity_intervals(
    guess: Guess, member: Bools, ends: NDArray[np.int64], rng: np.random.Generator
) -> dict[str, Interval]:
    """95 % intervals of all figures; `ends` (n, 2) are the head and tail of each triple."""
    entities, numbers = np.unique(ends, return_inverse=True)
    blocks = list(_figures(guess, member, numbers.reshape(ends.shape), len(entities), rng))
    intervals = {}
    for name in blocks[0]:
        low, high = np.percentile(np.concatenate([block[name] for block in blocks]), [2.5, 97.5])
        intervals[name] = (float(low), float(high))
    return intervals


def _figures(
    guess: Guess, member: Bools, ends: NDArray[np.int64], num_entities: int, rng: np.random.Generator
) -> Iterator[dict[str, Values]]:
    """Every figure under random weights, some resamples at a time."""
    order = np.argsort(-guess.certainty, kind="stable")
    last = np.flatnonzero(np.append(np.diff(guess.certainty[order]) != 0, True))  # equals are called together
    size = max(1, _BLOCK // len(order))
    for start in range(0, _RESAMPLES, size):
        entity = rng.exponential(size=(min(size, _RESAMPLES - start), num_entities))
        weights = entity[:, ends[:, 0]] * entity[:, ends[:, 1]]  # (resamples, n)
        fpr, tpr = (_shares(weights[:, order], chosen[order], last) for chosen in (~member, member))
        alarms, hits = (_mean(weights[:, chosen], guess.member[chosen]) for chosen in (~member, member))
        curve = {"auc": area(fpr, tpr), **{f"tpr@{rate:.1%}": highest(fpr, tpr, rate) for rate in RATES}}
        yield decision_values(hits, alarms) | curve


def _shares(weights: Values, chosen: Bools, last: NDArray[np.int64]) -> Values:
    """(resamples, points): the share of the chosen that are called members, from the strictest bar on."""
    total = np.cumsum(weights * chosen, axis=1)
    shares: Values = np.concatenate([np.zeros((len(weights), 1)), total[:, last] / total[:, -1:]], axis=1)
    return shares


def _mean(weights: Values, called: Bools) -> Values:
    mean: Values = (weights * called).sum(axis=1) / weights.sum(axis=1)
    return mean
