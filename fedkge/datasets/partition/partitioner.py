"""What a partitioner is, and what all of them do with the triples that a client holds."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.graph import SPLITS, IntArray, KnowledgeGraph
from fedkge.datasets.split import Split, by_appearance
from fedkge.datasets.triple_keys import distinct, triple_keys
from fedkge.errors import DataError
from fedkge.seeding import draw

__all__ = ["Assigner", "Partitioner", "Rows", "by_frequency", "divided", "frequency_rule"]

HELD_OUT_SHARE = 0.2

Rows = NDArray[np.int64]  # (n,) rows of graph.triples

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Partitioner(ABC):
    """Divides a graph among clients."""

    @abstractmethod
    def split(self, graph: KnowledgeGraph, clients: int, seed: int, spec: str) -> Split:
        """The split; `spec` is how the user named it."""


@dataclass(frozen=True)
class Assigner(Partitioner):
    """Says which triples each client holds; a triple keeps the role (train, valid, test) it has in the graph.

    A graph without held-out triples, or an assigner that pools, gets FedR's rule client by client.
    """

    pools: ClassVar[bool] = False

    @abstractmethod
    def assign(self, graph: KnowledgeGraph, clients: int, rng: np.random.Generator) -> Sequence[Rows]:
        """For each client, its rows of `graph.triples`."""

    def split(self, graph: KnowledgeGraph, clients: int, seed: int, spec: str) -> Split:
        rng = draw(seed, clients)
        assignment = self.assign(graph, clients, rng)
        if self._holds_out(graph):
            _warn_of_duplicates(graph)
        parts = [self.part(graph, rows, rng) for rows in assignment]
        return divided(graph, assignment, parts, spec, seed)

    def _holds_out(self, graph: KnowledgeGraph) -> bool:
        return self.pools or len(graph.valid) + len(graph.test) == 0

    def part(self, graph: KnowledgeGraph, rows: Rows, rng: np.random.Generator) -> Mapping[str, Rows]:
        """A client's rows by split."""
        return by_frequency(graph, rows, rng.shuffle) if self._holds_out(graph) else _by_role(graph, rows)


def divided(
    graph: KnowledgeGraph,
    assignment: Sequence[Rows],
    parts: Sequence[Mapping[str, Rows]],
    spec: str,
    seed: int,
) -> Split:
    """The split in which each client holds its rows of `graph.triples`, by train, valid and test."""
    if any(len(part["train"]) == 0 for part in parts):
        raise DataError(
            f"{graph.name}: partition '{spec}' leaves a client of {len(parts)} without triples to train on; "
            "use fewer clients or another seed or option"
        )
    graphs = tuple(
        _client(graph, number, rows, part)
        for number, (rows, part) in enumerate(zip(assignment, parts, strict=True))
    )
    _warn_of_isolated(graph)
    lost = graph.num_triples - len(np.unique(np.concatenate(assignment)))
    name = f"{graph.name}-{len(graphs)}"
    labels = graph.entity_labels, graph.relation_labels
    return Split(name, graphs, *labels, spec, seed, lost, graph.merged_labels)


def frequency_rule(triples: IntArray, shuffle: Callable[[list[int]], None]) -> tuple[Rows, Rows, Rows]:
    """Rows of train, valid and test: a triple may be held out while its parts occur more than twice."""
    order = list(range(len(triples)))
    shuffle(order)
    entity = np.bincount(triples[:, [0, 2]].ravel()).tolist()
    relation = np.bincount(triples[:, 1]).tolist()
    rows = triples.tolist()
    enough = int(len(order) * HELD_OUT_SHARE)
    train: list[int] = []
    held: list[int] = []
    for position, row in enumerate(order):
        h, r, t = rows[row]
        if entity[h] > 2 and entity[t] > 2 and relation[r] > 2:
            held.append(row)
            entity[h] -= 1
            entity[t] -= 1
            relation[r] -= 1
        else:
            train.append(row)
        if len(held) > enough:
            train += order[position + 1 :]
            break
    shuffle(held)
    half = len(held) // 2
    return (
        np.array(train, dtype=np.int64),
        np.array(held[:half], dtype=np.int64),
        np.array(held[half:], dtype=np.int64),
    )


def by_frequency(
    graph: KnowledgeGraph, rows: Rows, shuffle: Callable[[list[int]], None]
) -> Mapping[str, Rows]:
    """A client's rows by split, as FedR's rule holds some out."""
    parts = frequency_rule(graph.triples[rows], shuffle)
    return {split: rows[part] for split, part in zip(SPLITS, parts, strict=True)}


def _by_role(graph: KnowledgeGraph, rows: Rows) -> Mapping[str, Rows]:
    bounds = np.cumsum([len(graph[split]) for split in SPLITS])
    role = np.searchsorted(bounds, rows, side="right")
    return {split: rows[role == number] for number, split in enumerate(SPLITS)}


def _warn_of_duplicates(graph: KnowledgeGraph) -> None:
    keys = triple_keys(graph.triples, graph.num_entities, graph.num_relations)
    repeated = len(keys) - len(distinct(keys))
    if repeated:
        _log.warning(
            "%s: %d triples repeat another, and leak where one copy is held out; remove them first",
            graph.name,
            repeated,
        )


def _warn_of_isolated(graph: KnowledgeGraph) -> None:
    """Of a network: vertices without an edge go to nobody."""
    isolated = graph.num_entities - len(np.unique(graph.triples[:, [0, 2]]))
    if graph.edge_list is not None and isolated:
        _log.warning(
            "%s: %d of %d vertices have no edge, and are with no client",
            graph.name,
            isolated,
            graph.num_entities,
        )


def _client(graph: KnowledgeGraph, number: int, rows: Rows, parts: Mapping[str, Rows]) -> KnowledgeGraph:
    """The client's own graph; ids count its entities and relations as they appear in `rows`."""
    held = graph.triples[rows]
    entities, entity = _local(held[:, [0, 2]].ravel(), graph.num_entities)
    relations, relation = _local(held[:, 1], graph.num_relations)
    marks = np.concatenate([graph.marks(split) for split in SPLITS])

    def local(part: Rows) -> IntArray:
        h, r, t = graph.triples[part].T
        return np.stack([entity[h], relation[r], entity[t]], axis=1)

    client = KnowledgeGraph.from_ids(
        f"client-{number}",
        (graph.entity_labels[i] for i in entities),
        (graph.relation_labels[i] for i in relations),
        {split: local(rows) for split, rows in parts.items()},
        {split: marks[rows] for split, rows in parts.items()} if graph.confidential else None,
        graph.features_of(entities, relations),
        graph.texts_of(entities, relations),
        graph.classes_of(entities),
    )
    if graph.edge_list is None:
        return client
    return replace(client, edge_list=graph.edge_list.part(client.num_triples))


def _local(ids: IntArray, size: int) -> tuple[list[int], IntArray]:
    """The distinct ids in order of appearance, and the local number of each id."""
    order, _ = by_appearance(ids)
    local = np.full(size, -1, dtype=np.int32)
    local[order] = np.arange(len(order))
    return order.tolist(), local
