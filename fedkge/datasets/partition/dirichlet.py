"""Relations in unequal proportions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.partition.partitioner import Assigner, Rows
from fedkge.errors import SettingError

__all__ = ["Dirichlet"]


@dataclass(frozen=True)
class Dirichlet(Assigner):
    """Each relation is shared out in proportions from Dirichlet(alpha): small alpha, unlike clients."""

    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.alpha < inf:
            raise SettingError(f"dirichlet: alpha={self.alpha}: expected a number above 0")

    def assign(self, graph: KnowledgeGraph, clients: int, rng: np.random.Generator) -> Sequence[Rows]:
        shares = rng.dirichlet(np.full(clients, self.alpha), size=graph.num_relations)  # (R, C)
        limits = np.cumsum(shares, axis=1)[:, :-1]
        relation = graph.triples[:, 1]
        chance = rng.random(len(relation))
        owner = np.empty(len(relation), dtype=np.int64)
        order = np.argsort(relation, kind="stable")
        bounds = np.cumsum(np.bincount(relation, minlength=graph.num_relations))[:-1]
        for number, rows in enumerate(np.split(order, bounds)):  # relation by relation: no (n, C) array
            owner[rows] = np.searchsorted(limits[number], chance[rows])
        return [np.flatnonzero(owner == client) for client in range(clients)]
