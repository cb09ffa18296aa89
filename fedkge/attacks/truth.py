"""What really is: every client's graph. Scoring sees it, attacks never do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.view import UNKNOWN
from fedkge.datasets import KnowledgeGraph
from fedkge.datasets.labels import is_local

__all__ = ["Truth"]

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Truth:
    """The clients' graphs under one numbering of all their labels."""

    clients: tuple[KnowledgeGraph, ...]
    rows: Mapping[str, tuple[Ids, ...]] = field(
        default_factory=dict
    )  # table -> client -> (labels,) shared rows

    def common_labels(self, table: str) -> list[str]:
        """Every label of a table that some client holds and all could, sorted."""
        return sorted(
            {label for graph in self.clients for label in graph.labels[table] if not is_local(label)}
        )

    def shared_labels(self, table: str) -> Mapping[int, str]:
        """The label behind each shared row, by its number."""
        pairs = zip(self.clients, self.rows[table], strict=True)
        return {
            int(row): label
            for graph, rows in pairs
            for row, label in zip(rows, graph.labels[table], strict=True)
            if row >= 0
        }

    @cached_property
    def entity_ids(self) -> Mapping[str, int]:
        return _numbering([graph.entity_labels for graph in self.clients])

    @cached_property
    def relation_ids(self) -> Mapping[str, int]:
        return _numbering([graph.relation_labels for graph in self.clients])

    def entities(self, client: int) -> Ids:
        """The number of each of a client's entities, in its own order."""
        return self.number_entities(self.clients[client].entity_labels)

    def relations(self, client: int) -> Ids:
        return self.number_relations(self.clients[client].relation_labels)

    def number_entities(self, labels: Sequence[str]) -> Ids:
        """Numbers of labels; UNKNOWN for a label that no client has."""
        return np.fromiter((self.entity_ids.get(label, UNKNOWN) for label in labels), np.int64, len(labels))

    def number_relations(self, labels: Sequence[str]) -> Ids:
        return np.fromiter((self.relation_ids.get(label, UNKNOWN) for label in labels), np.int64, len(labels))

    def train(self, client: int) -> Ids:
        """A client's train triples in the common numbers."""
        head, relation, tail = self.clients[client].train.T
        entity = self.entities(client)
        return np.stack([entity[head], self.relations(client)[relation], entity[tail]], axis=1)

    def keys(self, triples: Ids) -> Ids:
        """One number for each triple, equal for equal triples."""
        head, relation, tail = triples.T
        keys: Ids = (head * (len(self.relation_ids) + 1) + relation) * (len(self.entity_ids) + 1) + tail
        return keys


def _numbering(labels: Sequence[Sequence[str]]) -> Mapping[str, int]:
    distinct = dict.fromkeys(label for of_client in labels for label in of_client)
    return {label: number for number, label in enumerate(distinct)}
