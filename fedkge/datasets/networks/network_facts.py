"""What is worth knowing of a network before anything is learnt from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.graph import SPLITS, KnowledgeGraph
from fedkge.datasets.networks.network import edges_of, is_network, symmetric_adjacency

__all__ = ["NetworkFacts", "network_facts"]

Pairs = NDArray[np.int64]  # (n, 2)


@dataclass(frozen=True)
class NetworkFacts:
    """Edges, vertices and classes over all clients, and what the edge list had that is no edge."""

    directed: bool | None  # None: read from triples, which do not tell
    rows: int | None  # of the edge list; None as above
    self_loops: int  # that the edge list has, or the triples
    repeated: int  # rows, or edges of one client, that say again what another one of them says
    both_ways: int  # edges that stand in both directions
    edges: int  # distinct pairs of vertices, whatever the direction
    isolated: int  # vertices without any edge
    classes: int
    unclassified: int
    largest_class: float  # the share of vertices that the largest class has: what always guessing it reaches

    @property
    def cautions(self) -> tuple[str, ...]:
        """What a user should know."""
        found = []
        if self.isolated:
            found.append(f"{self.isolated:,} vertices have no edge: their rows say nothing but that")
        if self.unclassified:
            found.append(f"{self.unclassified:,} vertices have no class, and are left out of classification")
        if self.classes == 1:
            found.append("all vertices have one class: there is nothing to classify")
        return tuple(found)


def network_facts(clients: Sequence[KnowledgeGraph]) -> NetworkFacts | None:
    """Of networks; None of graphs whose edges have kinds."""
    if not all(map(is_network, clients)):
        return None
    number = {label: row for row, label in enumerate(dict.fromkeys(_labels(clients)))}
    pairs = [_numbered(graph, number) for graph in clients]
    every = np.concatenate(pairs)
    adjacency = symmetric_adjacency(every.astype(np.int32), len(number))
    class_of = {
        label: kind
        for graph in clients
        for label, kind in zip(graph.entity_labels, graph.classes, strict=False)
        if kind
    }
    counts = Counter(class_of.values())
    read = clients[0].edge_list if len(clients) == 1 else None
    loops = int((every[:, 0] == every[:, 1]).sum())
    return NetworkFacts(
        directed=_directed(clients),
        rows=None if read is None else read.rows,
        self_loops=loops if read is None else read.self_loops,
        repeated=sum(map(_repeated, pairs)) if read is None else read.repeated,
        both_ways=_both_ways(every),
        edges=adjacency.nnz // 2,
        isolated=int((np.diff(adjacency.indptr) == 0).sum()),
        classes=len(counts),
        unclassified=len(number) - len(class_of) if class_of else 0,
        largest_class=max(counts.values(), default=0) / max(len(class_of), 1),
    )


def _directed(clients: Sequence[KnowledgeGraph]) -> bool | None:
    """Whether edges have directions, if all clients say the same."""
    kinds = {None if graph.edge_list is None else graph.edge_list.directed for graph in clients}
    return kinds.pop() if len(kinds) == 1 else None


def _labels(clients: Sequence[KnowledgeGraph]) -> list[str]:
    return [label for graph in clients for label in graph.entity_labels]


def _numbered(graph: KnowledgeGraph, number: dict[str, int]) -> Pairs:
    """(n, 2) the edges of all splits in numbers that all clients have in common."""
    common = np.array([number[label] for label in graph.entity_labels], dtype=np.int64)
    return common[edges_of(graph, *SPLITS)]


def _repeated(pairs: Pairs) -> int:
    return len(pairs) - len(np.unique(pairs, axis=0))


def _both_ways(pairs: Pairs) -> int:
    """How many pairs of different vertices are joined both ways."""
    arcs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    return len(arcs) - len(np.unique(np.sort(arcs, axis=1), axis=0))
