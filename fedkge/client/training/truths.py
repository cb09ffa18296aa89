"""What is true besides a client's own triples: for ranking to leave out, and for nothing else.

Only a party that sees all clients can have it, such as whoever simulates them; a client of a deployment
cannot. `ranks` alone reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedkge.client.kernels.arrays import Ids
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.labels import is_local
from fedkge.datasets.lookup import Lookup
from fedkge.datasets.triple_keys import distinct, triple_keys

__all__ = ["Truths"]


@dataclass(frozen=True, eq=False)
class Truths:
    """Triples in the ids of one graph, none of which that graph has."""

    triples: Ids  # (k, 3)
    num_relations: int

    @classmethod
    def of_others(cls, graph: KnowledgeGraph, others: Sequence[KnowledgeGraph]) -> Truths:
        """All that others hold in any split, as far as the graph knows entities and relation by label."""
        known = {kind: _numbers(labels) for kind, labels in graph.labels.items()}
        sizes = graph.num_entities, graph.num_relations
        parts = [triple_keys(_translated(other, known), *sizes) for other in others]
        keys = distinct(np.concatenate([*parts, np.empty(0, dtype=np.int64)]))
        keys = keys[~np.isin(keys, triple_keys(graph.triples, *sizes))]
        pairs, tail = np.divmod(keys, max(graph.num_entities, 1))
        head, relation = np.divmod(pairs, max(graph.num_relations, 1))
        return cls(np.stack([head, relation, tail], axis=1).astype(np.int32), graph.num_relations)

    @cached_property
    def true_tails(self) -> Lookup:
        head, relation, tail = self.triples.T
        return Lookup.build(head, relation, tail, self.num_relations)

    @cached_property
    def true_heads(self) -> Lookup:
        head, relation, tail = self.triples.T
        return Lookup.build(tail, relation, head, self.num_relations)


def _numbers(labels: Sequence[str]) -> dict[str, int]:
    """Ids by label; a local label means nothing to another party."""
    return {label: number for number, label in enumerate(labels) if not is_local(label)}


def _translated(graph: KnowledgeGraph, known: Mapping[str, Mapping[str, int]]) -> Ids:
    """Its triples in other ids, without those that name what is not known there."""
    ids = {
        kind: np.fromiter((known[kind].get(label, -1) for label in labels), np.int32, len(labels))
        for kind, labels in graph.labels.items()
    }
    head, relation, tail = graph.triples.T
    triples = np.stack([ids["entity"][head], ids["relation"][relation], ids["entity"][tail]], axis=1)
    kept: Ids = triples[(triples >= 0).all(axis=1)]
    return kept
