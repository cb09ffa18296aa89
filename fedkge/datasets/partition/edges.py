"""Edges of a network drawn at random, some of them held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.partition.partitioner import Assigner, Rows, divided
from fedkge.datasets.split import Split
from fedkge.errors import SettingError
from fedkge.seeding import draw

__all__ = ["Edges"]


@dataclass(frozen=True)
class Edges(Assigner):
    """Every edge goes to a client drawn at random, and of each client's edges a share is held out."""

    valid: float = 0.05
    test: float = 0.1

    def __post_init__(self) -> None:
        if min(self.valid, self.test) < 0 or self.valid + self.test >= 1:
            raise SettingError(
                f"partition 'edges': valid={self.valid:g}, test={self.test:g}: expected shares from 0 on, "
                "together below 1"
            )

    def assign(self, graph: KnowledgeGraph, clients: int, rng: np.random.Generator) -> Sequence[Rows]:
        return np.array_split(rng.permutation(graph.num_triples), clients)

    def split(self, graph: KnowledgeGraph, clients: int, seed: int, spec: str) -> Split:
        assignment = self.assign(graph, clients, draw(seed, clients))
        parts = []
        for rows in assignment:
            valid, test = round(self.valid * len(rows)), round(self.test * len(rows))
            parts.append(
                {"test": rows[:test], "valid": rows[test : test + valid], "train": rows[test + valid :]}
            )
        return divided(graph, assignment, parts, spec, seed)
