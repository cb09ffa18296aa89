"""Triples drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.partition.partitioner import Assigner, Rows

__all__ = ["Random"]


@dataclass(frozen=True)
class Random(Assigner):
    """Every triple goes to a client drawn at random; clients get equally many."""

    def assign(self, graph: KnowledgeGraph, clients: int, rng: np.random.Generator) -> Sequence[Rows]:
        return np.array_split(rng.permutation(graph.num_triples), clients)
