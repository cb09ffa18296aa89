"""LiRA: is a score more like those of models with the triple, or without it (Carlini et al., 2022)?"""

from __future__ import annotations

import numpy as np

from fedkge.attacks.membership.central.shadows import Shadows
from fedkge.attacks.membership.guesses import Bools, Values

__all__ = ["lira", "lira_offline"]

_ENOUGH = 64  # with fewer models than this, all triples share one variance, as its authors advise
_TINY = 1e-12


def lira(target: Values, shadows: Shadows) -> Values:
    """(n,) log N(target; in) − log N(target; out), a Gaussian for each triple."""
    with_mean, with_variance = _moments(shadows.signal, shadows.included)
    out_mean, out_variance = _moments(shadows.signal, ~shadows.included)
    ratio: Values = _log_density(target, with_mean, with_variance)
    return ratio - _log_density(target, out_mean, out_variance)


def lira_offline(target: Values, shadows: Shadows) -> Values:
    """(n,) how far the target's score is above those of models without the triple, in deviations."""
    mean, variance = _moments(shadows.signal, ~shadows.included)
    distance: Values = (target - mean) / np.sqrt(variance)
    return distance


def _moments(signal: Values, chosen: Bools) -> tuple[Values, Values]:
    """Mean and variance over the chosen models of each triple."""
    count = chosen.sum(axis=0)
    mean = (signal * chosen).sum(axis=0) / np.maximum(count, 1)
    squares = ((signal - mean) ** 2 * chosen).sum(axis=0)
    if len(signal) < _ENOUGH:
        degrees = max(int(np.maximum(count - 1, 0).sum()), 1)
        squares = np.full_like(squares, squares.sum() / degrees)
    else:
        squares = squares / np.maximum(count - 1, 1)
    return mean, np.maximum(squares, _TINY)


def _log_density(value: Values, mean: Values, variance: Values) -> Values:
    density: Values = -((value - mean) ** 2) / (2 * variance) - 0.5 * np.log(variance)
    return density
