"""No triple moves the model by more than a bound: what is longer is shortened, with its negatives, as one."""

from __future__ import annotations

import numpy as np

from fedkge.client.kernels.arrays import Floats
from fedkge.client.kernels.fused import Clipping
from fedkge.client.kernels.gradients import Objective, TripleGradients, triple_gradients
from fedkge.client.kernels.lengths import clipping_weights
from fedkge.client.models.model import Model
from fedkge.client.privacy.norms import CANCELLING, rounding_share, triple_norms
from fedkge.client.training.negatives import NegativeSampler

__all__ = ["clip", "clipping_of", "percentile", "public_bound"]

_SLACK = 1 + 1e-5  # norms, weights and sums are rounded; the bound is not to be exceeded for that
_LEAST = 1e-6  # a bound must be above zero, even where every gradient is zero
_MOST_SAMPLED = 4096  # triples that a percentile is taken over


def clip(gradients: TripleGradients, norms: Floats, bound: float, share: float = 1.0) -> None:
    """Shorten what is longer than the bound, then weigh everything by `share`.

    A triple whose gradient is not finite is left out: it could not be shortened.
    """
    weights = np.empty_like(norms)
    if clipping_weights(norms, bound / _SLACK, share, weights):
        _silence(gradients, ~np.isfinite(norms))
    gradients.weigh(weights)


def clipping_of(bound: float, share: float, num_candidates: int) -> Clipping:
    """For the fused step: `clip` by `clipping_norms`, with room for what rounding adds to a triple's part."""
    return Clipping(bound / (1 + rounding_share(num_candidates)) / _SLACK, share, 1 / CANCELLING)


def percentile(norms: Floats, share: float) -> float:
    """The bound at a percentile of norms; triples that ask for nothing do not count."""
    positive = norms[np.isfinite(norms) & (norms > 0)]
    return max(float(np.percentile(positive, share)), _LEAST) if positive.size else _LEAST


def public_bound(
    model: Model,
    objective: Objective,
    sampler: NegativeSampler,
    rng: np.random.Generator,
    batch_size: int,
    share: float,
) -> float:
    """A percentile of norms on unrestricted triples, under the model as it stands: nothing private enters."""
    places = rng.permutation(len(sampler.triples))[:_MOST_SAMPLED]
    norms = [
        triple_norms(
            triple_gradients(model, objective, sampler.batch(places[start : start + batch_size], rng)),
            model.entity.numpy(),
        )
        for start in range(0, len(places), batch_size)
    ]
    return percentile(np.concatenate(norms), share)


def _silence(gradients: TripleGradients, out: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    gradients.queries[out] = 0  # an infinite one times a coefficient of 0 is not a number
    gradients.coefficients[out] = 0
    gradients.anchor_rows[out] = 0
    gradients.relation_rows[out] = 0
    if gradients.candidate_rows is not None:
        gradients.candidate_rows[np.repeat(out, gradients.coefficients.shape[1])] = 0
