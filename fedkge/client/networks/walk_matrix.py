"""Where random walks go: M = (P + P² + … + Pᵗ) / t, which DeepWalk factorises (Yang et al., 2015)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, diags

from fedkge.datasets.networks.network import Edges, symmetric_adjacency

__all__ = ["adjacency_of", "positive_logarithm", "transitions", "walk_matrix"]


def adjacency_of(edges: Edges, vertices: int, directed: bool = False) -> csr_matrix:
    """(n, n) ones where an edge goes; without directions, both ways."""
    if not directed:
        return symmetric_adjacency(edges, vertices)
    head, tail = edges[edges[:, 0] != edges[:, 1]].T
    adjacency = csr_matrix((np.ones(len(head)), (head, tail)), shape=(vertices, vertices))
    adjacency.data[:] = 1.0  # an arc that stands twice is one
    return adjacency


def transitions(adjacency: Any) -> csr_matrix:
    """P = D⁻¹ A; the row of a vertex without an edge is zero."""
    degrees = np.asarray(adjacency.sum(axis=1)).ravel()
    inverse = np.divide(1.0, degrees, out=np.zeros(len(degrees)), where=degrees > 0)
    return (diags(inverse) @ adjacency).tocsr()


def walk_matrix(adjacency: Any, window: int = 2, logarithm: bool = False) -> csr_matrix:
    """M over a window of t steps, or its logarithm."""
    step = transitions(adjacency)
    power, total = step, step
    for _ in range(window - 1):
        power = power @ step
        total = total + power
    mean = (total / window).tocsr()
    mean.sort_indices()  # sums over a row depend on the order
    return positive_logarithm(mean) if logarithm else mean


def positive_logarithm(walks: csr_matrix) -> csr_matrix:
    """max(0, log n m): how much likelier than at a vertex drawn at random a walk ends there, sparse as M is.

    Where no walk comes the logarithm of equation 3 of DPNE is −∞; positive parts are what Levy and Goldberg
    (2014) factorise in its place.
    """
    logs = walks.copy()
    logs.data = np.maximum(np.log(logs.data * walks.shape[1]), 0.0)
    logs.eliminate_zeros()
    return logs
