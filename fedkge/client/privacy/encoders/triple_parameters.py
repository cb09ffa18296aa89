"""Gradients of single triples over all parameters together: their norms, and their clipped sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite, sqrt
from typing import NamedTuple

import numpy as np

from fedkge.client.kernels.arrays import Floats
from fedkge.client.kernels.gradients import Objective, TripleGradients, triple_gradients
from fedkge.client.kernels.pairwise import candidate_gradients
from fedkge.client.kernels.scatter import group, in_order, square, take_rows
from fedkge.client.models.model import Model
from fedkge.client.privacy.encoders.row_encoders import Part, row_encoder_of
from fedkge.client.privacy.grid import ParameterSums
from fedkge.client.training.negatives import Batch

__all__ = ["TripleParameters", "clipped_sums", "each_triple"]

_CHUNK = 2**21  # floats of gradients at rows that are held at once
_SHORT = 1 - 1e-9  # so that rounding in a norm cannot make a vector longer than its bound


class TripleParameters(NamedTuple):
    """The gradient of one triple with its negatives, over all parameters."""

    parts: list[Part]
    loss: float

    @property
    def norm(self) -> float:
        """Euclidean, of all parts together; in double precision, from the numbers that are summed."""
        return sqrt(sum(square(part.gradient) for part in self.parts))

    def share(self, bound: float) -> float:
        """What makes it, in units of a bound, no longer than 1; 0 for one that is no number."""
        norm = self.norm
        return _SHORT / max(norm, bound) if isfinite(norm) else 0.0


def each_triple(model: Model, objective: Objective, batch: Batch) -> Iterator[TripleParameters]:
    """Every triple of a batch by itself; what one yields is valid until the next."""
    if not len(batch.anchors):
        return
    encoder = row_encoder_of(model)
    entities = encoder.scored.entities
    step = max(1, _CHUNK // (batch.candidates.shape[1] * max(entities.shape[1], 1)))
    for start in range(0, len(batch.anchors), step):
        part = batch._replace(shared=None).part(start, start + step)
        gradients = triple_gradients(model, objective, part, encoder.scored)
        at_candidates = _candidate_rows(gradients, entities)
        for i, anchor in enumerate(part.anchors):
            asked = np.flatnonzero(gradients.coefficients[i])
            ids = np.concatenate([[anchor], part.candidates[i, asked]]).astype(np.int32)
            slopes = np.concatenate([gradients.anchor_rows[i : i + 1], at_candidates[i, asked]])
            relation, at_relation = int(part.relations[i]), gradients.relation_rows[i]
            parts = encoder.parts(ids, slopes, relation, at_relation)
            yield TripleParameters(parts, float(gradients.losses[i]))


def clipped_sums(
    model: Model, objective: Objective, batch: Batch, bound: float, parameters: Mapping[str, Floats]
) -> tuple[ParameterSums, float]:
    """Σ of the triples' gradients in units of the bound, none longer than 1; and their mean loss.

    A triple whose gradient is not finite asks for nothing.
    """
    sums, losses = ParameterSums(parameters), 0.0
    for triple in each_triple(model, objective, batch):
        share = triple.share(bound)
        if share:
            for part in triple.parts:
                sums.add(part.name, part.gradient, part.rows, share)
        losses += triple.loss
    return sums, losses / max(len(batch.anchors), 1)


def _candidate_rows(gradients: TripleGradients, table: Floats) -> Floats:
    """(b, 1 + n, w) the gradient of each triple at each of its candidates' rows."""
    candidates = gradients.batch.candidates
    if gradients.candidate_rows is not None:
        return gradients.candidate_rows.reshape(*candidates.shape, -1)
    every = np.arange(candidates.size, dtype=np.int32)
    rows = take_rows(table, np.maximum(candidates, 0).reshape(-1))
    pairs = group(np.where(candidates < 0, np.int32(-1), every.reshape(candidates.shape)), candidates.size)
    out = np.zeros_like(rows)
    ordered = in_order(gradients.coefficients, pairs)
    candidate_gradients(gradients.comparison, gradients.queries, rows, ordered, pairs, every, out)
    return out.reshape(*candidates.shape, -1)
