"""Ways to divide a graph among clients."""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.fedr import PUBLISHED_SEED, corrupting_shuffle, frequency_rule
from fedkge.datasets.graph import SPLITS, IntArray, KnowledgeGraph
from fedkge.datasets.spec import build
from fedkge.datasets.split import Split, by_appearance
from fedkge.datasets.triple_keys import distinct, triple_keys
from fedkge.errors import DataError, SettingError
from fedkge.seeding import draw

__all__ = ["PARTITIONERS", "Partitioner", "partition"]

Rows = NDArray[np.int64]

_log = logging.getLogger(__name__)


def partition(source: KnowledgeGraph | Split, spec: str = "random", clients: int = 5, seed: int = 0) -> Split:
    """Divide a graph among clients: `spec` names a partitioner, with options as in 'dirichlet:alpha=0.5'.

    A source that is already split takes 'given' and its own number of clients, or 0 for whatever it has.
    """
    partitioner = build("partition", spec, PARTITIONERS)
    if isinstance(source, Split):
        return _given(source, partitioner, clients)
    if clients < 1:
        raise SettingError(f"clients = {clients}: expected at least 1")
    if clients > source.num_triples:
        raise DataError(
            f"{source.name}: {clients} clients, but only {source.num_triples} triples to share out"
        )
    return partitioner.split(source, clients, seed, spec)


def _given(split: Split, partitioner: Partitioner, clients: int) -> Split:
    if not isinstance(partitioner, Given):
        raise DataError(
            f"{split.name} is already split among {split.num_clients} clients; use partition 'given'"
        )
    if clients not in (0, split.num_clients):
        raise DataError(
            f"{split.name} has {split.num_clients} clients, not {clients}; leave clients out or correct it"
        )
    return split


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
        pools = self.pools or len(graph.valid) + len(graph.test) == 0
        if pools:
            _warn_of_duplicates(graph)
        parts = [
            _by_frequency(graph, rows, rng.shuffle) if pools else _by_role(graph, rows) for rows in assignment
        ]
        _require_train(graph, parts, spec)
        graphs = tuple(
            _client(graph, number, rows, part)
            for number, (rows, part) in enumerate(zip(assignment, parts, strict=True))
        )
        held = np.zeros(graph.num_triples, dtype=bool)
        for rows in assignment:
            held[rows] = True
        name = f"{graph.name}-{clients}"
        return Split(
            name,
            graphs,
            graph.entity_labels,
            graph.relation_labels,
            spec,
            seed,
            unassigned=int((~held).sum()),
        )


@dataclass(frozen=True)
class Random(Assigner):
    """Every triple goes to a client drawn at random; clients get equally many."""

    def assign(self, graph: KnowledgeGraph, clients: int, rng: np.random.Generator) -> Sequence[Rows]:
        return np.array_split(rng.permutation(graph.num_triples), clients)


@dataclass(frozen=True)
class FedR(Random):
    """Random, all triples pooled, and FedR's rule decides what is held out (Zhang et al., 2022)."""

    pools: ClassVar[bool] = True


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


@dataclass(frozen=True)
class FedRLegacy(Partitioner):
    """The published FedR splits, bit for bit: a shuffle that overwrites half of the triples, seed 9.

    For comparison with published numbers only; `fedr` is the same idea done right. The seed of a run does not
    change it.
    """

    def split(self, graph: KnowledgeGraph, clients: int, seed: int, spec: str) -> Split:  # noqa: ARG002
        shuffler = random.Random(PUBLISHED_SEED)
        rows = corrupting_shuffle(graph.num_triples, shuffler)
        assignment = np.array_split(rows, clients)
        parts = [_by_frequency(graph, own, shuffler.shuffle) for own in assignment]
        _require_train(graph, parts, spec)
        graphs = tuple(
            _client(graph, number, own, part)
            for number, (own, part) in enumerate(zip(assignment, parts, strict=True))
        )
        lost = graph.num_triples - len(np.unique(rows))
        name = f"{graph.name}-{clients}"
        return Split(
            name, graphs, graph.entity_labels, graph.relation_labels, spec, PUBLISHED_SEED, unassigned=lost
        )


@dataclass(frozen=True)
class Given(Partitioner):
    """The dataset is already split: a folder client-0, client-1, … or a FedE .pkl."""

    def split(self, graph: KnowledgeGraph, clients: int, seed: int, spec: str) -> Split:  # noqa: ARG002
        raise DataError(
            f"{graph.name}: partition 'given' needs a dataset that is already split "
            "(a folder client-0, client-1, … or a FedE .pkl)"
        )


PARTITIONERS: dict[str, type[Partitioner]] = {
    "random": Random,
    "relation": ByRelation,
    "cluster": Cluster,
    "dirichlet": Dirichlet,
    "overlap": Overlap,
    "fedr": FedR,
    "fedr-legacy": FedRLegacy,
    "given": Given,
}


def _enough_relations(graph: KnowledgeGraph, clients: int) -> None:
    if clients > graph.num_relations:
        raise DataError(
            f"{graph.name} has {graph.num_relations} relations for {clients} clients; "
            "use fewer clients, or partition 'random' or 'dirichlet'"
        )


def _warn_of_duplicates(graph: KnowledgeGraph) -> None:
    keys = triple_keys(graph.triples, graph.num_entities, graph.num_relations)
    repeated = len(keys) - len(distinct(keys))
    if repeated:
        _log.warning(
            "%s: %d triples repeat another, and leak where one copy is held out; remove them first",
            graph.name,
            repeated,
        )


def _require_train(graph: KnowledgeGraph, parts: Sequence[Mapping[str, Rows]], spec: str) -> None:
    if any(len(part["train"]) == 0 for part in parts):
        raise DataError(
            f"{graph.name}: partition '{spec}' leaves a client of {len(parts)} without triples to train on; "
            "use fewer clients or another seed or option"
        )


def _by_group(graph: KnowledgeGraph, groups: Sequence[Rows]) -> list[Rows]:
    owner = np.empty(graph.num_relations, dtype=np.int64)
    for client, relations in enumerate(groups):
        owner[relations] = client
    owner_of_row = owner[graph.triples[:, 1]]
    return [np.flatnonzero(owner_of_row == client) for client in range(len(groups))]


def _by_role(graph: KnowledgeGraph, rows: Rows) -> Mapping[str, Rows]:
    bounds = np.cumsum([len(graph[split]) for split in SPLITS])
    role = np.searchsorted(bounds, rows, side="right")
    return {split: rows[role == number] for number, split in enumerate(SPLITS)}


def _by_frequency(
    graph: KnowledgeGraph, rows: Rows, shuffle: Callable[[list[int]], None]
) -> Mapping[str, Rows]:
    parts = frequency_rule(graph.triples[rows], shuffle)
    return {split: rows[part] for split, part in zip(SPLITS, parts, strict=True)}


def _client(graph: KnowledgeGraph, number: int, rows: Rows, parts: Mapping[str, Rows]) -> KnowledgeGraph:
    """The client's own graph; ids count its entities and relations as they appear in `rows`."""
    mine = graph.triples[rows]
    entities, entity = _local(mine[:, [0, 2]].ravel(), graph.num_entities)
    relations, relation = _local(mine[:, 1], graph.num_relations)
    marks = np.concatenate([graph.marks(split) for split in SPLITS])

    def local(part: Rows) -> IntArray:
        h, r, t = graph.triples[part].T
        return np.stack([entity[h], relation[r], entity[t]], axis=1)

    return KnowledgeGraph.from_ids(
        f"client-{number}",
        (graph.entity_labels[i] for i in entities),
        (graph.relation_labels[i] for i in relations),
        {split: local(rows) for split, rows in parts.items()},
        {split: marks[rows] for split, rows in parts.items()} if graph.confidential else None,
    )


def _local(ids: IntArray, size: int) -> tuple[list[int], IntArray]:
    """The distinct ids in order of appearance, and the local number of each id."""
    order, _ = by_appearance(ids)
    local = np.full(size, -1, dtype=np.int32)
    local[order] = np.arange(len(order))
    return order.tolist(), local
