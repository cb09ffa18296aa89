"""`sgm`: the sampled Gaussian mechanism as Ghanvatkar and Wei (2021) put it into BLP's training of texts.

"Towards Privacy-Preserving and Domain-Aware Knowledge Graph Entity Representations". Their code trains with
BLP's batches: fixed in size, shuffled, and with negatives that are entities of the batch's other triples.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fedkge.client.privacy.mechanism import Batches, TrainingSession, walk
from fedkge.client.privacy.sound import Sound
from fedkge.client.training.negatives import NegativeSampler
from fedkge.datasets.graph import KnowledgeGraph

__all__ = ["SGM"]


class SGM(Sound):
    """Each example clipped and the sum noised as in `sound`, over examples that are made of one another."""

    summary = "every example of a shuffled batch, with negatives out of that batch, is clipped, and noised"
    guaranteed = False
    hides_counts = False
    accountant = "rdp"
    doubts = (
        "why a claim: negatives are entities of the batch's other triples, so one triple is part of the "
        "gradients of many, and the bound is on each",
        "why a claim: batches are shuffled and of one size, but accounted for as Poisson samples",
        "why a claim: triples of every kind choose the round that is kept",
    )

    def default_delta(self, graph: KnowledgeGraph) -> float:
        return 1 / len(graph.train)

    def batches(self, session: TrainingSession) -> Batches:
        """Every triple once, held against its batch; no known answer is struck out."""
        drawn = {"negatives_from": "batch", "filter_negatives": False, "shared_negatives": False}
        sampler = NegativeSampler(session.graph, session.settings.model_copy(update=drawn))
        marks = session.graph.marks("train")
        plan, rng = session.plan, session.rng
        return Batches(
            partial(walk, sampler, np.flatnonzero(~marks), plan.unrestricted_batch, rng),
            partial(walk, sampler, np.flatnonzero(marks), plan.batch, rng),
        )
