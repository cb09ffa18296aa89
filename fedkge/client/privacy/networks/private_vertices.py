"""Vertex privacy: two networks are neighbours if one of them lacks all edges of one vertex."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_matrix, diags

from fedkge.client.privacy.networks.edge_mechanism import Rows
from fedkge.client.privacy.networks.private_edges import GRID, GaussianEntries, noised_pairs
from fedkge.client.privacy.normals import Keystream

__all__ = ["GaussianVertices"]


@dataclass(frozen=True)
class GaussianVertices(GaussianEntries):
    """Normal noise on an adjacency in which no vertex weighs more than D edges, whatever its degree is.

    The entry of an edge is g(d_u) g(d_v), where g(d) = min(1, √(D / d)). Take out the k edges of one
    vertex: their entries had squares that add up to k g(k)² ≤ D. Each of its k neighbours had one edge more:
    if that was d > D, its g grew by e, and (d − 1) e² = D / (d (√d + √(d − 1))²) ≤ D / (d (4 d − 3)), below
    1 / (4 D + 1). An entry between two of them moved by e_u + e_v at most, so that all these entries
    together moved by less than 2 k / (4 D + 1) in squares. With k < n the whole is below
    D + 2 (n − 1) / (4 D + 1), for every network of n vertices: no degree is assumed.
    """

    name: ClassVar[str] = "Gaussian, vertices"
    summary = (
        "vertices with many edges weigh less, every entry of the adjacency is noised for all edges of a "
        "vertex, and the model learns from that"
    )
    degree: int | None = None  # D; None: such that the bound is least

    def bound(self, vertices: int) -> int:
        """D."""
        return max(1, ceil(sqrt(vertices / 2))) if self.degree is None else self.degree

    def sensitivity(self, vertices: int) -> float:
        """How far two neighbours are apart at most, in the root of summed squares."""
        bound = self.bound(vertices)
        rounding = vertices * GRID  # of at most n² / 2 entries, by at most GRID between neighbours
        return sqrt(bound + 2 * (vertices - 1) / (4 * bound + 1)) + rounding

    def weighed(self, adjacency: Any) -> csr_matrix:
        """(n, n) the entries before noise."""
        degrees = np.asarray(adjacency.sum(axis=1)).ravel()
        roots = np.sqrt(np.minimum(1.0, self.bound(len(degrees)) / np.maximum(degrees, 1.0)))
        return (diags(roots) @ adjacency @ diags(roots)).tocsr()

    def noised(self, adjacency: Any, stream: Keystream) -> Rows:
        deviation = self.deviation * self.sensitivity(adjacency.shape[0])
        return noised_pairs(self.weighed(adjacency), deviation, stream)
