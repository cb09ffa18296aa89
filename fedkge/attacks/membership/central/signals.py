"""What can be asked of a model about a triple: its score, its rank, what a loss makes of its score."""

from __future__ import annotations

import numpy as np
import torch

from fedkge.attacks.membership.guesses import Values
from fedkge.client.kernels.arrays import Ids
from fedkge.client.models.model import Model
from fedkge.client.training.evaluate import per_triple
from fedkge.client.training.ranks import rank
from fedkge.client.training.threads import one_thread
from fedkge.datasets.graph import KnowledgeGraph

__all__ = ["corrupted", "log_likelihood", "logistic_loss", "margin_loss", "reciprocal_ranks", "scores"]

_BLOCK = 2**22  # floats of looked-up rows held at once


def scores(model: Model, triples: Ids) -> Values:
    """The model's plausibility of each triple; higher is truer."""
    values = np.empty(len(triples), dtype=np.float64)
    with one_thread(), torch.no_grad():  # threads would divide an encoder's products otherwise
        encoded = model.encode()
        size = max(1, _BLOCK // max(encoded.entities.shape[1], encoded.relations.shape[1]))
        for start in range(0, len(triples), size):
            head, relation, tail = triples[start : start + size].T
            values[start : start + size] = model.scores_of(head, relation, tail, encoded)
    return values


def reciprocal_ranks(model: Model, graph: KnowledgeGraph, triples: Ids) -> Values:
    """1 / rank of each triple among all heads and tails; only the triples asked about are filtered out.

    Members and non-members alike are in the filter, so it says nothing of membership.
    """
    asked = KnowledgeGraph.from_ids(
        graph.name, graph.entity_labels, graph.relation_labels, {"train": triples[:0], "test": triples}
    )
    return per_triple(rank(model, asked, "test", "both"))["mrr"]


def corrupted(triples: Ids, num_entities: int, rng: np.random.Generator) -> Ids:
    """Each triple with its head or its tail replaced by another entity, at random."""
    false = triples.copy()
    column = 2 * rng.integers(0, 2, len(triples))
    line = np.arange(len(triples))
    shift = rng.integers(1, num_entities, len(triples))
    false[line, column] = (false[line, column] + shift) % num_entities
    return false


def logistic_loss(score: Values) -> Values:
    """log(1 + e^−score), the score as the model's paper writes it, without a margin."""
    loss: Values = np.logaddexp(0, -score)
    return loss


def margin_loss(model: Model, triples: Ids, count: int, rng: np.random.Generator) -> Values:
    """max(γ − score + score of a corrupted triple, 0), the mean over as many corruptions as training draws.

    That corrupted triples enter can be read off the published tables: from the logistic to the margin loss
    precision and recall both fall, which no other bar on the score alone would do.
    """
    score = scores(model, triples)
    total = np.zeros(len(triples))
    for _ in range(count):
        false = scores(model, corrupted(triples, len(model.entity), rng))
        total += np.maximum(model.settings.margin - score + false, 0)
    return total / count


def log_likelihood(model: Model, score: Values) -> Values:
    """log σ(score), distances compared with the margin, as the losses of this package take them."""
    return -logistic_loss(score + model.shift)
