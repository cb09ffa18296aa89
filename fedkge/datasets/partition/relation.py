"""Whole relations to clients: at random, or those that meet at the same entities together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.partition.partitioner import Assigner, Rows
from fedkge.errors import DataError

__all__ = ["ByRelation", "Cluster"]


@dataclass(frozen=True)
class ByRelation(Assigner):
    """Every relation goes whole to one client, at random (FedE; Chen et al., 2021)."""

    def assign(self, graph: KnowledgeGraph, clients: int, rng: np.random.Generator) -> Sequence[Rows]:
        _enough_relations(graph, clients)
        groups = np.array_split(rng.permutation(graph.num_relations), clients)
        return _by_group(graph, groups)


@dataclass(frozen=True)
class Cluster(Assigner):
    """Relations that meet at the same entities stay together: spectral clusters (FedLU; Zhu et al., 2023)."""

    def assign(self, graph: KnowledgeGraph, clients: int, rng: np.random.Generator) -> Sequence[Rows]:
        from scipy.sparse import csr_matrix  # both take long to import
        from sklearn.cluster import SpectralClustering

        _enough_relations(graph, clients)
        if clients == 1:
            return [np.arange(graph.num_triples)]
        if clients == graph.num_relations:
            return _by_group(graph, np.array_split(np.arange(clients), clients))
        head, relation, tail = graph.triples.T
        meets = csr_matrix(
            (np.ones(2 * len(head)), (np.tile(relation, 2), np.concatenate([head, tail]))),
            shape=(graph.num_relations, graph.num_entities),
        )
        meets.data[:] = 1.0
        shared = (meets @ meets.T).toarray()  # (R, R) entities in common
        size = np.sqrt(np.maximum(np.diag(shared), 1.0))
        affinity = shared / np.outer(size, size) + 1e-6  # a disconnected graph has no spectrum to cluster
        model = SpectralClustering(
            clients, affinity="precomputed", random_state=int(rng.integers(2**31)), assign_labels="cluster_qr"
        )
        labels = model.fit_predict(affinity)
        return _by_group(graph, [np.flatnonzero(labels == client) for client in range(clients)])


def _enough_relations(graph: KnowledgeGraph, clients: int) -> None:
    if clients > graph.num_relations:
        raise DataError(
            f"{graph.name} has {graph.num_relations} relations for {clients} clients; "
            "use fewer clients, or partition 'random' or 'dirichlet'"
        )


def _by_group(graph: KnowledgeGraph, groups: Sequence[Rows]) -> list[Rows]:
    owner = np.empty(graph.num_relations, dtype=np.int64)
    for client, relations in enumerate(groups):
        owner[relations] = client
    owner_of_row = owner[graph.triples[:, 1]]
    return [np.flatnonzero(owner_of_row == client) for client in range(len(groups))]
