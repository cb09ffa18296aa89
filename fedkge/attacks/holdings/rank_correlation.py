"""How well an order was guessed: Spearman's ρ with its interval, and what a random order reaches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["FEWEST", "Correlation", "correlation", "random_reach"]

FEWEST = 5  # elements; an order of fewer says nothing
_Z = 1.96
_ORDERS = 2000

Values = NDArray[np.float64]
Correlation = tuple[float, tuple[float, float]]


def correlation(guess: Values, true: Values) -> Correlation:
    """Spearman's ρ and its 95 % interval (Bonett and Wright, 2000); a constant guess is worth 0."""
    count, value = len(guess), _spearman(_ranks(guess), _ranks(true))
    most = 1 - 6 / (count**3 - count)  # half a swap of neighbours below a perfect order
    centre = np.arctanh(np.clip(value, -most, most))
    half = _Z * np.sqrt((1 + value**2 / 2) / (count - 3))
    return value, (min(float(np.tanh(centre - half)), value), max(float(np.tanh(centre + half)), value))


def random_reach(true: Values, rng: np.random.Generator) -> float:
    """The ρ below which 97.5 % of random orders stay."""
    ranks = _ranks(true)
    orders = rng.permuted(np.tile(np.arange(len(ranks), dtype=np.float64), (_ORDERS, 1)), axis=1)
    return float(np.quantile([_spearman(order, ranks) for order in orders], 0.975))


def _ranks(values: Values) -> Values:
    from scipy.stats import rankdata  # a second to import

    ranks: Values = rankdata(values)
    return ranks


def _spearman(first: Values, second: Values) -> float:
    first, second = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / scale if scale else 0.0
