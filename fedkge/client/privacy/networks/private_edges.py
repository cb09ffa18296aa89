"""Edge privacy that holds: rows of a network that was made private before anything was learnt from it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import exp, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags
from scipy.sparse.linalg import LinearOperator
from scipy.special import expit

from fedkge.client.networks.blas_threads import same_bits
from fedkge.client.networks.eigenpairs import Eigenpairs, largest_eigenpairs
from fedkge.client.networks.factors import factors_of
from fedkge.client.networks.plus_rank_one import PlusRankOne
from fedkge.client.networks.walk_matrix import walk_matrix
from fedkge.client.privacy.accountant import Event, gaussian_sigma
from fedkge.client.privacy.networks.edge_mechanism import EdgeRelease, Rows, Walks, laplace
from fedkge.client.privacy.networks.released import PrivateMatrix, PrivateNetwork
from fedkge.client.privacy.normals import Keystream, poisson_sample
from fedkge.datasets.networks.network import symmetric_adjacency
from fedkge.errors import SettingError

__all__ = [
    "GRID",
    "GaussianEdges",
    "GaussianEntries",
    "RandomisedResponse",
    "TopEdges",
    "noised_pairs",
    "pair_of",
    "pairs_of",
    "spectral_rows",
]

Places = NDArray[np.int64]
GRID = 2.0**-20  # of dense noise and of what it is added to
_SMALL = 256  # vertices, up to which all eigenvalues cost milliseconds
_LEAST_EPSILON = 1e-9  # below, an answer is a coin to a machine, and dividing by what it tells has no digits
_LEAST_FLIP = 1e-300  # beyond, a probability is zero to a machine


def pairs_of(places: Places, vertices: int) -> NDArray[np.int64]:
    """(m, 2) the pairs i < j at places of the upper triangle, row by row."""
    starts = np.arange(vertices) * (2 * vertices - np.arange(vertices) - 1) // 2
    head = np.searchsorted(starts, places, side="right") - 1
    head = np.minimum(head, vertices - 2)
    return np.stack([head, places - starts[head] + head + 1], axis=1)


def pair_of(head: NDArray[Any], tail: NDArray[Any], vertices: int) -> Places:
    """The places of pairs i < j."""
    first = head.astype(np.int64)
    places: Places = first * (2 * vertices - first - 1) // 2 + tail - head - 1
    return places


def spectral_rows(matrix: Any, dim: int, size: int) -> Rows:
    """(n, dim) the eigenvectors of the largest eigenvalues by magnitude, each times the root of that."""
    count = min(dim, size - 2)
    if count < 1:
        raise SettingError(f"{size} vertices have no spectrum to embed; a private network needs 3 at least")
    with same_bits():
        some = None if size <= _SMALL else largest_eigenpairs(lambda vector: matrix @ vector, size, count)
        values, vectors = some or Eigenpairs(*np.linalg.eigh(matrix @ np.eye(size)))
    order = np.argsort(-np.abs(values), kind="stable")[:count]
    vectors = vectors[:, order] * np.sqrt(np.abs(values[order]))
    signs = np.where(np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0) < 0, -1.0, 1.0)
    rows: Rows = np.pad(vectors * signs, ((0, 0), (0, dim - count)))
    return rows


@dataclass(frozen=True)
class RandomisedResponse(EdgeRelease):
    """Every pair of vertices says whether it is an edge, and lies with probability 1 / (1 + e^ε).

    Each bit is ε-DP by itself, so that vertices may answer for their own pairs and need trust nobody. The
    lies are taken out again on the mean (Qin et al., 2017; Imola et al., 2021): the matrix that is
    embedded is an unbiased estimate of the adjacency, each entry over the root of its two vertices' degrees.
    To these the mean degree and four times the variance that lies add are added first: few lies, and degrees
    count; many, and all vertices count alike. The four was chosen by scores on Cora and Wiki.
    """

    name: ClassVar[str] = "randomised response"
    guaranteed: ClassVar[bool] = True
    summary = "every pair of vertices says, with lies, whether it is an edge, and the model learns from that"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon < _LEAST_EPSILON:
            raise SettingError(
                f"{self.name}: epsilon = {self.epsilon:g}: every answer would be a lie as often as not, and "
                f"tell nothing; set it to {_LEAST_EPSILON:g} or more"
            )

    @property
    def flip(self) -> float:
        """The probability of a lie."""
        return max(float(expit(-self.epsilon)), _LEAST_FLIP)

    @property
    def deviation(self) -> float:
        """Of an unbiased answer."""
        return sqrt(self.flip * (1 - self.flip)) / (1 - 2 * self.flip)

    def release(self, adjacency: Any, walks: Walks, dim: int, stream: Keystream) -> PrivateMatrix:
        """The estimate over degrees."""
        del walks, dim
        told = self.answers(adjacency, stream)
        weights = 1 / np.sqrt(self.damped_degrees(told))
        factor = 1 / (1 - 2 * self.flip)
        scaled = diags(weights) @ told @ diags(weights) + self.flip * diags(weights**2)
        return PrivateMatrix(PlusRankOne(factor * scaled, weights, -self.flip * factor))

    def answers(self, adjacency: Any, stream: Keystream) -> csr_matrix:
        """The network as it was told, (n, n) symmetric."""
        size = adjacency.shape[0]
        head, tail = adjacency.nonzero()
        upper = head < tail
        truth = pair_of(head[upper], tail[upper], size)
        lies = poisson_sample(stream, size * (size - 1) // 2, self.flip)
        return symmetric_adjacency(pairs_of(np.setxor1d(truth, lies), size).astype(np.int32), size)

    def rows(self, adjacency: Any, dim: int, stream: Keystream) -> Rows:
        told = self.answers(adjacency, stream)
        size = told.shape[0]
        estimate, weights = self.unbiased(told), 1 / np.sqrt(self.damped_degrees(told))

        def times(vector: NDArray[np.float64]) -> NDArray[np.float64]:
            product: NDArray[np.float64] = weights * estimate.matvec(weights * vector.reshape(size))
            return product

        return spectral_rows(LinearOperator((size, size), matvec=times, dtype=np.float64), dim, size)

    def damped_degrees(self, told: csr_matrix) -> NDArray[np.float64]:
        """(n,) degrees as they are estimated, and on top of that what keeps them away from zero."""
        flip, size = self.flip, told.shape[0]
        degrees = self.unbiased(told).matvec(np.ones(size))
        variance = size * flip * (1 - flip) / (1 - 2 * flip) ** 2
        damped: NDArray[np.float64] = np.maximum(degrees, 1.0) + max(degrees.mean(), 1.0) + 4 * variance
        return damped

    def unbiased(self, told: csr_matrix) -> LinearOperator:
        """(Ã − f) / (1 − 2 f) off the diagonal: its mean is the adjacency."""
        flip, size = self.flip, told.shape[0]

        def times(vector: NDArray[np.float64]) -> NDArray[np.float64]:
            flat = vector.reshape(size)
            product: NDArray[np.float64] = (told @ flat - flip * (flat.sum() - flat)) / (1 - 2 * flip)
            return product

        return LinearOperator((size, size), matvec=times, dtype=np.float64)


@dataclass(frozen=True)
class TopEdges(EdgeRelease):
    """TmF: as many pairs as there are edges, those with the largest noised entries (Nguyen et al., 2015).

    A tenth of ε says how many; the rest is Laplace noise on every entry of the upper triangle, of which the
    largest are kept. The high-pass filter draws those that pass without touching every pair: of the
    entries without an edge that exceed a threshold, the number is binomial and who they are uniform.
    """

    name: ClassVar[str] = "top edges"
    guaranteed: ClassVar[bool] = True
    form = "network"
    summary = "pairs of vertices with the largest noised entries are edges, and the model learns from these"
    count_share: float = 0.1

    @property
    def deviation(self) -> float:
        """Of the noise on an entry."""
        return sqrt(2) / ((1 - self.count_share) * self.epsilon)

    def release(self, adjacency: Any, walks: Walks, dim: int, stream: Keystream) -> PrivateNetwork:
        """The edges that were kept."""
        del walks, dim
        head, tail = self.edges(adjacency, stream).nonzero()
        upper = head < tail
        return PrivateNetwork(np.stack([head[upper], tail[upper]], axis=1).astype(np.int32))

    def edges(self, adjacency: Any, stream: Keystream) -> csr_matrix:
        """The private network, (n, n) symmetric."""
        size = adjacency.shape[0]
        total = size * (size - 1) // 2
        head, tail = adjacency.nonzero()
        upper = head < tail
        truth = pair_of(head[upper], tail[upper], size)
        noise = float(laplace(stream, 1, 1 / (self.count_share * self.epsilon))[0])
        wanted = int(np.clip(round(len(truth) + noise), 1, total))
        epsilon = (1 - self.count_share) * self.epsilon
        threshold = self._threshold(epsilon, wanted, total)
        passed = truth[laplace(stream, len(truth), 1 / epsilon) + 1 > threshold]
        others = poisson_sample(stream, total, self._tail(epsilon, threshold))
        chosen = np.union1d(passed, np.setdiff1d(others, truth))
        return symmetric_adjacency(pairs_of(chosen, size).astype(np.int32), size)

    @staticmethod
    def _tail(epsilon: float, threshold: float) -> float:
        """The chance of an entry without an edge to pass."""
        return exp(-epsilon * threshold) / 2 if threshold >= 0 else 1 - exp(epsilon * threshold) / 2

    def _threshold(self, epsilon: float, wanted: int, total: int) -> float:
        """Passed by as many entries as are wanted, by expectation; the noised count alone decides it."""
        low, high = -60 / epsilon, 1 + 60 / epsilon
        for _ in range(100):
            middle = (low + high) / 2
            hits, misses = self._tail(epsilon, middle - 1), self._tail(epsilon, middle)
            expected = wanted * hits + (total - wanted) * misses
            low, high = (middle, high) if expected > wanted else (low, middle)
        return (low + high) / 2

    def rows(self, adjacency: Any, dim: int, stream: Keystream) -> Rows:
        return factors_of(walk_matrix(self.edges(adjacency, stream)), dim).vertices


@dataclass(frozen=True)
class GaussianEntries(EdgeRelease):
    """Normal noise on every entry of a symmetric matrix made of the network, then its spectrum."""

    guaranteed: ClassVar[bool] = True
    dense = True
    failure: float = 1e-5

    @property
    def delta(self) -> float:
        return self.failure

    @property
    def deviation(self) -> float:
        """Of the noise, over the sensitivity."""
        return gaussian_sigma(self.epsilon, self.failure)

    @property
    def cost(self) -> Event:
        return Event(self.deviation, 1.0, 1)

    @abstractmethod
    def noised(self, adjacency: Any, stream: Keystream) -> Rows:
        """(n, n) symmetric, with noise."""

    def rows(self, adjacency: Any, dim: int, stream: Keystream) -> Rows:
        return spectral_rows(self.noised(adjacency, stream), dim, adjacency.shape[0])

    def release(self, adjacency: Any, walks: Walks, dim: int, stream: Keystream) -> PrivateMatrix:
        del walks, dim
        return PrivateMatrix(self.noised(adjacency, stream))


@dataclass(frozen=True)
class GaussianEdges(GaussianEntries):
    """Normal noise on the upper triangle of the adjacency, whose sensitivity is one, then its spectrum.

    No degree needs a bound: one edge is one entry of the upper triangle. Noise is on a grid on which one lies
    too: the last bits of a sum do not tell what was added (Mironov, 2012).
    """

    name: ClassVar[str] = "Gaussian"
    summary = "every entry of the adjacency is noised, and the model learns from that"

    def noised(self, adjacency: Any, stream: Keystream) -> Rows:
        return noised_pairs(adjacency, self.deviation, stream)


def noised_pairs(entries: Any, deviation: float, stream: Keystream) -> Rows:
    """(n, n) symmetric entries, on a grid, each with one normal number for both of its places."""
    size = entries.shape[0]
    noised = np.zeros((size, size))
    normals = deviation * stream.normals(size * (size - 1) // 2)
    noised[np.triu_indices(size, 1)] = np.rint(normals / GRID) * GRID
    noised += noised.T
    head, tail = entries.nonzero()
    noised[head, tail] += np.rint(np.asarray(entries[head, tail]).ravel() / GRID) * GRID
    return noised
