"""A network: a graph with one relation, which says nothing, as vertices and edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.graph import SPLITS, IntArray, KnowledgeGraph
from fedkge.datasets.networks.edge_counts import EdgeCounts
from fedkge.errors import DataError

__all__ = ["LINK", "Edges", "as_network", "edges_of", "is_network", "network_of", "symmetric_adjacency"]

LINK = "link"  # the label of the one relation

Edges = NDArray[np.int32]  # (n, 2) two vertices each


def is_network(graph: KnowledgeGraph) -> bool:
    """Whether its edges have no kinds."""
    return graph.relation_labels == (LINK,)


def network_of(
    name: str,
    vertices: Sequence[str],
    edges: NDArray[Any],
    directed: bool = False,
    classes: Sequence[str] = (),
) -> KnowledgeGraph:
    """A network without self-loops in which every edge stands once; all of it is train.

    Args:
        name: of the graph.
        vertices: their labels.
        edges: (n, 2) the numbers of two vertices each.
        directed: whether (u, v) and (v, u) are two edges.
        classes: of each vertex, "" where it is not known; or none at all.
    """
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    looped = pairs[:, 0] == pairs[:, 1]
    kept = _distinct(pairs[~looped], len(vertices), directed)
    repeated = int((~looped).sum()) - len(kept)
    counts = EdgeCounts(directed, len(pairs), int(looped.sum()), repeated)
    graph = KnowledgeGraph.from_ids(name, vertices, [LINK], {"train": _triples(kept)}, classes=classes)
    return replace(graph, edge_list=counts)


def as_network(graph: KnowledgeGraph, directed: bool = False) -> KnowledgeGraph:
    """A knowledge graph without its kinds of relations; an edge stays in the first split that has it."""
    pairs = graph.triples[:, [0, 2]].astype(np.int64)
    looped = pairs[:, 0] == pairs[:, 1]
    rows = np.flatnonzero(~looped)
    first = rows[_first(pairs[rows], graph.num_entities, directed)]
    bounds = np.cumsum([len(graph[split]) for split in SPLITS])
    role = np.searchsorted(bounds, first, side="right")
    splits = {split: _triples(pairs[first[role == number]]) for number, split in enumerate(SPLITS)}
    network = replace(
        KnowledgeGraph.from_ids(graph.name, graph.entity_labels, [LINK], splits, classes=graph.classes),
        edge_list=EdgeCounts(directed, len(pairs), int(looped.sum()), len(rows) - len(first)),
        features={kind: rows for kind, rows in graph.features.items() if kind == "entity"},
        texts={kind: rows for kind, rows in graph.texts.items() if kind == "entity"},
    )
    if len(network.train) == 0:
        raise DataError(f"{graph.name}: no edge between two different vertices; a network has at least one")
    return network


def edges_of(graph: KnowledgeGraph, *splits: str) -> Edges:
    """(n, 2) the edges of some splits, of train where none is named, as they stand."""
    return np.concatenate([graph[split][:, [0, 2]] for split in splits or ("train",)])


def symmetric_adjacency(edges: Edges, vertices: int) -> Any:
    """The adjacency matrix in CSR of an undirected graph: ones, nothing on the diagonal."""
    from scipy.sparse import csr_matrix  # takes long to import

    head, tail = edges.T
    ones = np.ones(2 * len(edges))
    ends = np.concatenate([head, tail]), np.concatenate([tail, head])
    adjacency = csr_matrix((ones, ends), shape=(vertices, vertices))
    adjacency.setdiag(0)
    adjacency.eliminate_zeros()
    adjacency.data[:] = 1.0  # an edge that stands twice is one
    adjacency.sort_indices()
    return adjacency


def _distinct(pairs: NDArray[np.int64], vertices: int, directed: bool) -> NDArray[np.int64]:
    return pairs[_first(pairs, vertices, directed)]


def _first(pairs: NDArray[np.int64], vertices: int, directed: bool) -> NDArray[np.int64]:
    """The rows that say something that no earlier row says."""
    ends = pairs if directed else np.sort(pairs, axis=1)
    keys = ends[:, 0] * vertices + ends[:, 1]
    first: NDArray[np.int64] = np.sort(np.unique(keys, return_index=True)[1])
    return first


def _triples(pairs: NDArray[np.int64]) -> IntArray:
    triples = np.zeros((len(pairs), 3), dtype=np.int32)
    triples[:, [0, 2]] = pairs
    return triples
