"""A graph divided among clients, each with labels and ids of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.graph import SPLITS, KnowledgeGraph, require_train
from fedkge.datasets.labels import is_local, owned_labels

__all__ = ["Split", "by_appearance"]


@dataclass(frozen=True, eq=False)
class Split:
    """Client graphs, and a numbering of all their labels that only someone who sees every client has."""

    name: str
    clients: tuple[KnowledgeGraph, ...]
    entity_labels: tuple[str, ...]
    relation_labels: tuple[str, ...]
    partition: str
    seed: int | None = None
    unassigned: int = 0  # triples of the source that no client holds
    merged_labels: int = 0  # labels that were another spelling of one that is here

    def __post_init__(self) -> None:
        if len(self.clients) > 1 and any(
            is_local(label) for graph in self.clients for labels in graph.labels.values() for label in labels
        ):
            self._tell_local_labels_apart()
        for graph in self.clients:
            require_train(graph, self.name if graph.name == self.name else f"{self.name}, {graph.name}")

    def _tell_local_labels_apart(self) -> None:
        """Two clients' blank nodes are two things, also for whoever sees all clients."""
        clients = tuple(
            replace(
                graph,
                entity_labels=owned_labels(graph.entity_labels, number),
                relation_labels=owned_labels(graph.relation_labels, number),
            )
            for number, graph in enumerate(self.clients)
        )
        object.__setattr__(self, "clients", clients)
        for kind in ("entity_labels", "relation_labels"):
            held = dict.fromkeys(
                label for graph in clients for label in getattr(graph, kind) if is_local(label)
            )
            labels = [label for label in getattr(self, kind) if not is_local(label) or label in held]
            object.__setattr__(self, kind, tuple(dict.fromkeys([*labels, *held])))

    @classmethod
    def of(
        cls, name: str, clients: Sequence[KnowledgeGraph], partition: str, seed: int | None = None
    ) -> Split:
        """A split numbered by the order in which labels appear, client by client."""
        entities = dict.fromkeys(label for graph in clients for label in graph.entity_labels)
        relations = dict.fromkeys(label for graph in clients for label in graph.relation_labels)
        merged = sum(graph.merged_labels for graph in clients)
        return cls(
            name, tuple(clients), tuple(entities), tuple(relations), partition, seed, merged_labels=merged
        )

    @classmethod
    def single(cls, graph: KnowledgeGraph) -> Split:
        """A whole graph as the split with one client."""
        labels = graph.entity_labels, graph.relation_labels
        return cls(graph.name, (graph,), *labels, partition="none", merged_labels=graph.merged_labels)

    @property
    def num_clients(self) -> int:
        return len(self.clients)

    @cached_property
    def entity_ids(self) -> list[NDArray[np.int64]]:
        """For each client, the global number of each of its entities."""
        return _numbers(self.entity_labels, [graph.entity_labels for graph in self.clients])

    @cached_property
    def relation_ids(self) -> list[NDArray[np.int64]]:
        """For each client, the global number of each of its relations."""
        return _numbers(self.relation_labels, [graph.relation_labels for graph in self.clients])

    def global_triples(self, client: int, split: str) -> NDArray[np.int64]:
        """A client's triples in global numbers."""
        head, relation, tail = self.clients[client][split].T
        entity = self.entity_ids[client]
        return np.stack([entity[head], self.relation_ids[client][relation], entity[tail]], axis=1)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of every client's labelled triples and marks, in order; numbering does not enter."""
        digest = hashlib.sha256()
        for graph in self.clients:
            entities, head_tail = by_appearance(np.concatenate([graph[s][:, [0, 2]].ravel() for s in SPLITS]))
            relations, relation = by_appearance(np.concatenate([graph[s][:, 1] for s in SPLITS]))
            for labels, order in ((graph.entity_labels, entities), (graph.relation_labels, relations)):
                digest.update(len(order).to_bytes(8, "little"))
                for label in (labels[i].encode("utf-8", "surrogatepass") for i in order.tolist()):
                    digest.update(len(label).to_bytes(8, "little") + label)
            digest.update(np.array([len(graph[s]) for s in SPLITS], dtype="<i8").tobytes())
            digest.update(head_tail.astype("<i8").tobytes() + relation.astype("<i8").tobytes())
            digest.update(np.concatenate([graph.marks(s) for s in SPLITS]).tobytes())
        return digest.hexdigest()

    @property
    def unseen(self) -> int:
        """Held-out triples with an entity or relation that their client's train set lacks."""
        return sum(graph.unseen(split) for graph in self.clients for split in ("valid", "test"))


def _numbers(labels: Sequence[str], clients: Sequence[Sequence[str]]) -> list[NDArray[np.int64]]:
    number = {label: row for row, label in enumerate(labels)}
    return [
        np.fromiter((number[label] for label in client_labels), np.int64, len(client_labels))
        for client_labels in clients
    ]


def by_appearance(ids: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The distinct ids in order of appearance, and the sequence renumbered by that order."""
    distinct, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return distinct[order], rank[inverse]
