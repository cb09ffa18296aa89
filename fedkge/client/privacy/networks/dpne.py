"""DPNE as printed (Xu et al., 2018), and its baseline dpM: their ε is a claim, and an audit refutes it."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Literal

import numpy as np

from fedkge.client.networks.blas_threads import same_bits
from fedkge.client.networks.factors import DPNE_RIDGE, Factors, factors_of, given_contexts
from fedkge.client.networks.walk_matrix import walk_matrix
from fedkge.client.privacy.networks.edge_mechanism import (
    EdgeRelease,
    Rows,
    Walks,
    laplace,
    uniform_directions,
)
from fedkge.client.privacy.networks.released import PrivateMatrix, PrivateRows
from fedkge.client.privacy.normals import Keystream

__all__ = [
    "DPNE",
    "SENSITIVITY",
    "AbsoluteDPNE",
    "DescendedDPNE",
    "NoisyWalks",
    "minimiser",
    "noise_rows",
    "unit_contexts",
]

SENSITIVITY = sqrt(2)  # Δ of Lemma 1, which does not hold

Term = Literal["linear", "absolute"]

_UNHIDDEN = "H is learnt from the private network without noise, and W depends on it"
_SENSITIVITY = (
    "Δ = √2 bounds the Frobenius norm of M for one step, not the sum over rows that independent noise by row "
    "needs, nor two steps"
)


def unit_contexts(walks: Any, dim: int) -> Factors:
    """W and H without noise, each row of H at most of length one (the theorem asks for it)."""
    vertices, contexts = factors_of(walks, dim)
    lengths = np.linalg.norm(contexts, axis=1, keepdims=True)
    return Factors(vertices, contexts / np.maximum(lengths, 1.0))


def noise_rows(stream: Keystream, vertices: int, dim: int, epsilon: float) -> Rows:
    """Rows of density ∝ exp(−ε |η| / 2 Δ): a direction, and a length of Gamma(k, 2 Δ / ε)."""
    lengths = np.zeros(vertices)
    for _ in range(dim):  # a Gamma number of whole shape is a sum of exponential ones
        lengths -= np.log(stream.uniforms(vertices))
    scale = 2 * SENSITIVITY / epsilon
    return uniform_directions(stream, vertices, dim) * (scale * lengths)[:, None]


def minimiser(walks: Any, contexts: Rows, noise: Rows, term: Term) -> Rows:
    """The W that minimises equation 11 for an H, with the term Σ wᵢ ηᵢᵀ or with its absolute value.

    |⟨W, N⟩| has the subgradients s N, −1 ≤ s ≤ 1: s is such that ⟨W, N⟩ = 0, or an end of the interval.
    """
    if term == "linear":
        return given_contexts(walks, contexts, DPNE_RIDGE.vertices, noise)
    plain = given_contexts(walks, contexts, DPNE_RIDGE.vertices)
    shift = plain - given_contexts(walks, contexts, DPNE_RIDGE.vertices, noise)
    with same_bits():
        share = float(np.clip((plain * noise).sum() / (shift * noise).sum(), -1.0, 1.0))
    return plain - share * shift


@dataclass(frozen=True)
class DPNE(EdgeRelease):
    """H from the objective without noise; W from the one with a linear noise term (Theorem 1)."""

    name: ClassVar[str] = "DPNE"
    term: ClassVar[Term] = "linear"
    doubts: ClassVar[tuple[str, ...]] = (_UNHIDDEN, _SENSITIVITY)
    form = "rows"
    learns = True
    summary = "rows of vertices minimise an objective with a noise term; contexts are learnt without noise"

    @property
    def deviation(self) -> float:
        """Of a number of a row at the least, over Δ."""
        return 2 / self.epsilon

    def release(self, adjacency: Any, walks: Walks, dim: int, stream: Keystream) -> PrivateRows:
        """W; H stays secret."""
        matrix = walks(adjacency)
        return PrivateRows(self.given(matrix, unit_contexts(matrix, dim).contexts, stream))

    def rows(self, adjacency: Any, dim: int, stream: Keystream) -> Rows:
        walks = walk_matrix(adjacency)
        return self.given(walks, unit_contexts(walks, dim).contexts, stream)

    def given(self, walks: Any, contexts: Rows, stream: Keystream) -> Rows:
        """The rows for an H that is known already."""
        return minimiser(
            walks, contexts, noise_rows(stream, len(contexts), contexts.shape[1], self.epsilon), self.term
        )


@dataclass(frozen=True)
class AbsoluteDPNE(DPNE):
    """The same with the absolute value of the term, which is what the paper's experiments ran."""

    name: ClassVar[str] = "DPNE, |term|"
    term: ClassVar[Term] = "absolute"
    doubts = (
        "the absolute value makes one constraint, ⟨W, N⟩ = 0, of noise on every number: W stays where it was",
        _UNHIDDEN,
        _SENSITIVITY,
    )


@dataclass(frozen=True)
class DescendedDPNE(AbsoluteDPNE):
    """The absolute term followed by gradient descent from the rows without noise, which stops too early.

    A step moves rows by γ N, whatever is left of ⟨W, N⟩: γ decides how far rows are from the minimum.
    """

    name: ClassVar[str] = "DPNE, |term| by descent"
    learning_rate: float = 0.015  # the paper's
    steps: int = 400

    def given(self, walks: Any, contexts: Rows, stream: Keystream) -> Rows:
        noise = noise_rows(stream, len(contexts), contexts.shape[1], self.epsilon)
        rows = given_contexts(walks, contexts, DPNE_RIDGE.vertices)
        with same_bits():
            gram = contexts.T @ contexts + DPNE_RIDGE.vertices * np.eye(contexts.shape[1])
            target = walks @ contexts
            for _ in range(self.steps):
                slope = 2 * (rows @ gram - target) + np.sign((rows * noise).sum()) * noise
                rows = rows - self.learning_rate * slope
        return rows


@dataclass(frozen=True)
class NoisyWalks(EdgeRelease):
    """dpM: Laplace noise of scale √2 / ε on every entry of M, then the factorisation."""

    name: ClassVar[str] = "dpM"
    doubts = ("Laplace noise needs the L1 sensitivity of M, which is 2.5 and more for t = 2, not √2",)
    learns = True
    dense = True
    summary = "every entry of the matrix of walks is noised, and the model learns from that"

    @property
    def deviation(self) -> float:
        """Of the noise on an entry, over Δ."""
        return sqrt(2) / self.epsilon

    def noised(self, walks: Any, stream: Keystream) -> Rows:
        """(n, n) M with noise."""
        noise = laplace(stream, walks.shape[0] * walks.shape[1], SENSITIVITY / self.epsilon)
        matrix: Rows = walks.toarray() + noise.reshape(walks.shape)
        return matrix

    def rows(self, adjacency: Any, dim: int, stream: Keystream) -> Rows:
        return factors_of(self.noised(walk_matrix(adjacency), stream), dim).vertices

    def release(self, adjacency: Any, walks: Walks, dim: int, stream: Keystream) -> PrivateMatrix:
        del dim
        return PrivateMatrix(self.noised(walks(adjacency), stream))
