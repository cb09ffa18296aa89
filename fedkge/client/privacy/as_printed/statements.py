"""Gradients of single statements: a triple and each of its negatives apart, as the DPKGE paper clips them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedkge.client.kernels.arrays import Floats
from fedkge.client.kernels.gradients import TripleGradients
from fedkge.client.kernels.pairwise import query_gradients
from fedkge.client.kernels.scatter import group, in_order
from fedkge.client.models.model import Model
from fedkge.client.privacy.norms import triple_norms

__all__ = ["Statements"]


class Statements:
    """The statements of a batch, (b, 1 + n), each with what it asks of its anchor and relation."""

    def __init__(self, model: Model, joint: TripleGradients) -> None:
        self.joint = joint
        self.apart = _apart(model, joint)
        self.norms: Floats = triple_norms(self.apart, model.entity.numpy()).reshape(joint.coefficients.shape)

    def clipped(self, bound: float) -> TripleGradients:
        """The batch again, from statements that are no longer than the bound."""
        weights = (bound / np.maximum(self.norms, bound)).astype(np.float32)  # (b, 1 + n)
        b, n = weights.shape
        anchor_rows = self.apart.anchor_rows.reshape(b, n, -1)
        relation_rows = self.apart.relation_rows.reshape(b, n, -1)
        return replace(
            self.joint,
            coefficients=self.joint.coefficients * weights,
            anchor_rows=np.einsum("bnw,bn->bw", anchor_rows, weights),
            relation_rows=np.einsum("bnw,bn->bw", relation_rows, weights),
        )


def _apart(model: Model, joint: TripleGradients) -> TripleGradients:
    """Every statement as a triple with one candidate, under the slopes that the whole triple gave it."""
    batch, entity = joint.batch, model.entity.numpy()
    n = batch.candidates.shape[1]
    single = batch._replace(
        anchors=np.repeat(batch.anchors, n),
        relations=np.repeat(batch.relations, n),
        candidates=batch.candidates.reshape(-1, 1),
        num_tails=batch.num_tails * n,
        shared=None,
    )
    h, r = entity[single.anchors], model.relation.numpy()[single.relations]
    queries, pull = model.queries(h, r, single.num_tails)
    coefficients = joint.coefficients.reshape(-1, 1)
    pairs = group(single.candidates, len(entity))
    at_query = np.empty_like(queries)
    ordered = in_order(coefficients, pairs)
    query_gradients(joint.comparison, queries, entity, ordered, pairs, at_query)
    anchor_rows, relation_rows = pull(at_query)
    return replace(
        joint,
        batch=single,
        queries=queries,
        compared=joint.compared.reshape(-1, 1),
        coefficients=coefficients,
        anchor_rows=anchor_rows,
        relation_rows=relation_rows,
        pairs=pairs,
    )
