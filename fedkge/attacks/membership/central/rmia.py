"""RMIA: does the target favour a triple more than models in general do (Zarifzadeh et al., 2024)?"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from fedkge.attacks.membership.central.shadows import Shadows
from fedkge.attacks.membership.guesses import Values

__all__ = ["likelihood_ratios", "rmia"]


def rmia(target: Values, shadows: Shadows, population: Values, gamma: float = 1.0) -> Values:
    """(n,) the share of the population whose likelihood ratio the triple's own reaches γ times.

    Signals are log-likelihoods; `population` are the log ratios of other triples. The population is the same
    for all triples, so the order of the answers is that of the ratios, but for ties. Likelihoods of embedding
    models lie near 1 and their ratios too: a larger γ, as for images, would make most answers 0.
    """
    ratios = likelihood_ratios(target, shadows)
    below = np.searchsorted(np.sort(population), ratios - np.log(gamma), side="right")
    share: Values = below / len(population)
    return share


def likelihood_ratios(target: Values, shadows: Shadows) -> Values:
    """(n,) log Pr(triple | target) − log of its mean over models with and models without it, half each."""
    parts = [_log_mean(shadows.signal, chosen) for chosen in (shadows.included, ~shadows.included)]
    marginal = np.logaddexp(*parts) - np.log(2)
    ratios: Values = target - marginal
    return ratios


def _log_mean(signal: Values, chosen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Values:
    masked = np.where(chosen, signal, -np.inf)
    mean: Values = logsumexp(masked, axis=0) - np.log(chosen.sum(axis=0))
    return mean
