"""A dry run's data: what is public of a graph, some of its predicates marked as if confidential."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedkge.client.models import build_model
from fedkge.client.privacy import mechanism_of, train_privately
from fedkge.client.training.evaluate import evaluate, per_triple
from fedkge.datasets.confidential import mark, unrestricted
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, SettingError
from fedkge.experiment import DPSettings, EvaluationSettings, ModelSettings, TrainingSettings
from fedkge.seeding import draw

__all__ = ["PublicTask", "pretended"]

_EVERY = 3  # of the predicates by size, one in so many
_DRAW = 0x7E57  # tells these draws from others with the same seed

Scores = NDArray[np.float64]


def pretended(graph: KnowledgeGraph, as_if: str | None = None) -> KnowledgeGraph:
    """The unrestricted triples of a graph alone, some of them marked as if confidential.

    Of the confidential triples only their number in train enters, which is public.

    Args:
        as_if: which to mark, as in `data.confidential`. Left out: of the predicates by their number of
            unrestricted train triples every third, as long as they stay within the number of confidential
            train triples; if none does, the smallest of these.
    """
    size, public = int(np.count_nonzero(graph.marks("train"))), unrestricted(graph)
    if as_if is not None:
        marked = mark(public, as_if)
    else:
        chosen = _predicates(public, size)
        marks = {split: np.isin(public[split][:, 1], chosen) for split in ("train", "valid", "test")}
        marked = replace(public, confidential=marks)
    for split in ("train", "valid"):
        if not marked.marks(split).any():
            raise DataError(
                f"{graph.name}: no unrestricted {split} triple to mark as if confidential; name public "
                "predicates that have some, such as predicates:A|B, or keep more triples unrestricted"
            )
    if marked.marks("train").all():
        raise DataError(f"{graph.name}: all triples are marked as if confidential; leave some as they are")
    return marked


def _predicates(public: KnowledgeGraph, size: int) -> NDArray[np.intp]:
    """A choice that looks at no score."""
    if size == 0:
        raise DataError(
            f"{public.name}: no confidential triples, so that nobody knows how many to mark as if they were; "
            "mark some with data.confidential, or say which public ones to take"
        )
    counts = np.bincount(public.train[:, 1], minlength=public.num_relations)
    ranked = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    third = ranked[_EVERY - 1 :: _EVERY]
    chosen, total = [], 0
    for relation in third:
        if total + counts[relation] <= size:
            chosen.append(relation)
            total += int(counts[relation])
    return np.array(chosen or third[-1:], dtype=np.intp)


@dataclass(frozen=True)
class PublicTask:
    """Private training on triples that are marked as if confidential, scored on their validation triples."""

    graph: KnowledgeGraph  # as `pretended` gives it: no confidential triple is in it
    model: ModelSettings
    training: TrainingSettings
    evaluation: EvaluationSettings
    epochs: int

    @cached_property
    def _scored(self) -> KnowledgeGraph:
        """Test triples filter no rank, and no others are ranked."""
        graph = self.graph
        none = np.empty((0, 3), dtype=np.int32)
        return replace(graph, valid=graph.valid[graph.marks("valid")], test=none, confidential={})

    def scores(self, dp: DPSettings, seed: int) -> Scores:
        """(n,) the reciprocal rank of each validation triple, after a run within the target of `dp`."""
        if dp.target_epsilon is None:
            raise SettingError(
                "privacy.dp.target_epsilon: missing; settings are compared at one ε: set it, such as 1.0"
            )
        graph, mechanism = self.graph, mechanism_of(dp)
        plan, delta = mechanism.plan(graph, self.training), mechanism.delta(graph)
        sigma = mechanism.sigma_within(dp.target_epsilon, plan, self.epochs, delta)
        noised = dp.model_copy(update={"sigma": sigma})
        model = build_model(self.model, mechanism.public(graph), seed)
        secret = draw(seed, _DRAW, 1).bytes(32)  # the same for all settings: they differ in nothing else
        train_privately(model, graph, draw(seed, _DRAW), self.training, noised, secret, epochs=self.epochs)
        ranks = evaluate(model, self._scored, "valid", self.evaluation).ranks
        return per_triple(ranks, self.evaluation.ties)["mrr"]
