"""How much privacy one run is proven to lack, from guesses which canaries it was trained on.

Each canary enters the training data by a fair coin of its own. Who guesses the coins from what the run
released better than ε-DP allows has refuted ε (Steinke, Nasr and Jagielski, "Privacy auditing with one (1)
training run", 2023, theorem 5.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from fedkge.errors import SettingError

__all__ = ["Bound", "lower_bound", "p_value"]

_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)  # of the canaries that are guessed: the rest is left open
_CEILING = 40.0  # no number of canaries proves more


@dataclass(frozen=True)
class Bound:
    """ε is at least this, with the given confidence."""

    epsilon: float
    guesses: int  # the number of canaries guessed at that proves most
    correct: int
    canaries: int
    confidence: float


def lower_bound(
    scores: NDArray[np.float64],
    included: NDArray[np.bool_],
    delta: float,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> Bound:
    """The largest ε that guesses by score refute: high scores are guessed in, low ones out.

    Several numbers of guesses are tried, and share the permitted error between them.
    """
    m = len(scores)
    if m < 2 or len(included) != m:
        raise SettingError(f"{m} scores for {len(included)} canaries; give one for each of at least 2")
    error = (1 - confidence) / len(_SHARES)
    shuffled = rng.permutation(m)  # equal scores are guessed at random
    order = shuffled[np.argsort(scores[shuffled], kind="stable")]
    best = Bound(0.0, 0, 0, m, confidence)
    for share in _SHARES:
        half = max(1, int(share * m / 2))
        correct = int((~included[order[:half]]).sum() + included[order[-half:]].sum())
        epsilon = _refuted(correct, 2 * half, m, delta, error)
        if epsilon > best.epsilon:
            best = Bound(epsilon, 2 * half, correct, m, confidence)
    return best


def p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """An upper bound on the chance of so many correct guesses against any (ε, δ)-DP training."""
    accuracy = 1 / (1 + exp(-epsilon))  # of a guess against ε-DP, at best
    by_luck = float(binom.sf(correct - 1, guesses, accuracy))
    if correct == 0:
        return min(1.0, by_luck)
    missed = np.arange(1, correct + 1)  # δ may turn a run that was i short into a success
    short = np.cumsum(binom.pmf(correct - missed, guesses, accuracy))  # P[correct − i ≤ X < correct]
    by_failure = float(np.max(short / missed)) * 2 * canaries * delta
    return min(1.0, by_luck + by_failure)


def _refuted(correct: int, guesses: int, canaries: int, delta: float, error: float) -> float:
    """The largest ε whose p-value is within the permitted error; 0 if none is."""
    if p_value(correct, guesses, canaries, 0.0, delta) > error:
        return 0.0
    low, high = 0.0, _CEILING
    while high - low > 0.01:
        middle = (low + high) / 2
        if p_value(correct, guesses, canaries, middle, delta) <= error:
            low = middle
        else:
            high = middle
    return low
