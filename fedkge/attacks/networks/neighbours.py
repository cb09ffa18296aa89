"""Networks that differ in one edge, and how far apart their walk matrices are: Lemma 1 of DPNE, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from fedkge.client.networks.walk_matrix import transitions, walk_matrix
from fedkge.datasets.networks.network import Edges, symmetric_adjacency

__all__ = ["Distances", "Neighbours", "distances", "joined_stars", "path_of_four", "quiet_pair"]


@dataclass(frozen=True)
class Neighbours:
    """A network with an edge, and the same without it."""

    edge: tuple[int, int]
    without: csr_matrix  # (n, n) adjacency
    joined: csr_matrix

    @classmethod
    def of(cls, edges: Edges, vertices: int, edge: tuple[int, int]) -> Neighbours:
        """Both networks; the edge counts as absent from the first, wherever it stands among the edges."""
        kept = edges[~(np.sort(edges, axis=1) == np.sort(edge)).all(axis=1)]
        more = np.concatenate([kept, np.array([edge], dtype=np.int32)])
        return cls(edge, symmetric_adjacency(kept, vertices), symmetric_adjacency(more, vertices))


@dataclass(frozen=True)
class Distances:
    """Of M for t steps, and of the t-th power of P alone, between two neighbouring networks."""

    frobenius: float  # what Lemma 1 says is √2 at most
    rows: float  # the sum of the lengths of rows, which noise by row has to hide
    entries: float  # the sum of magnitudes, which Laplace noise by entry has to hide
    step: float  # |P' − P|
    power: float  # |P'ᵗ − Pᵗ|, which Lemma 1 says is not more


def distances(pair: Neighbours, window: int = 2) -> Distances:
    """Between the two networks of a pair."""
    moved = (walk_matrix(pair.joined, window) - walk_matrix(pair.without, window)).toarray()
    return Distances(
        float(np.linalg.norm(moved)),
        float(np.linalg.norm(moved, axis=1).sum()),
        float(np.abs(moved).sum()),
        _moved(pair, 1),
        _moved(pair, window),
    )


def _moved(pair: Neighbours, power: int) -> float:
    def powered(adjacency: Any) -> Any:
        return np.linalg.matrix_power(transitions(adjacency).toarray(), power)

    return float(np.linalg.norm(powered(pair.joined) - powered(pair.without)))


def path_of_four() -> Neighbours:
    """Two edges, joined in the middle."""
    return Neighbours.of(np.array([[0, 1], [2, 3]], dtype=np.int32), 4, (1, 2))


def joined_stars(leaves: int) -> Neighbours:
    """Two stars, joined at their centres."""
    other = leaves + 1
    edges = [(0, leaf) for leaf in range(1, other)] + [(other, other + leaf) for leaf in range(1, other)]
    return Neighbours.of(np.array(edges, dtype=np.int32), 2 * other, (0, other))


def quiet_pair(edges: Edges, vertices: int) -> Neighbours:
    """A network with an edge between the first two vertices that have one neighbour and are not joined."""
    adjacency = symmetric_adjacency(edges, vertices)
    alone = np.flatnonzero(np.diff(adjacency.indptr) == 1)
    partner = next(other for other in alone[1:] if adjacency[alone[0], other] == 0)
    return Neighbours.of(edges, vertices, (int(alone[0]), int(partner)))
