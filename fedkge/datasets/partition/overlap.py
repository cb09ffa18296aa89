"""Clients that know some entities each, and share triples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.partition.partitioner import Assigner, Rows
from fedkge.errors import SettingError

__all__ = ["Overlap"]


@dataclass(frozen=True)
class Overlap(Assigner):
    """Each client knows a random share of the entities and holds every triple between two it knows."""

    share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise SettingError(f"overlap: share={self.share}: expected a share in (0, 1]")

    def assign(self, graph: KnowledgeGraph, clients: int, rng: np.random.Generator) -> Sequence[Rows]:
        return [self._between_known(graph, rng) for _ in range(clients)]

    def _between_known(self, graph: KnowledgeGraph, rng: np.random.Generator) -> Rows:
        known = np.zeros(graph.num_entities, dtype=bool)
        known[rng.permutation(graph.num_entities)[: round(self.share * graph.num_entities)]] = True
        return np.flatnonzero(known[graph.triples[:, 0]] & known[graph.triples[:, 2]])
