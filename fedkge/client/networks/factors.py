"""M ≈ W Hᵀ with ridges λ|W|² + μ|H|²: the exact minimum, and what leads there in steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from fedkge.client.networks.blas_threads import same_bits
from fedkge.client.networks.eigenpairs import largest_eigenpairs
from fedkge.client.networks.plus_rank_one import PlusRankOne
from fedkge.errors import DataError

__all__ = [
    "DPNE_RIDGE",
    "Factors",
    "Ridge",
    "Spectrum",
    "aligned",
    "alternate",
    "exact_factors",
    "factors_of",
    "given_contexts",
    "gradients",
    "objective",
    "spectrum",
]

Rows = NDArray[np.float64]
_SHARE = 3  # from a third of all singular values on, all of them are found faster
_SMALL = 256  # rows or columns, up to which all of them cost milliseconds
_MOST = 8192  # rows and columns, up to which all of them can be waited for


class Ridge(NamedTuple):
    """The weights of |W|² and |H|²; those of DPNE."""

    vertices: float = 1e-3  # λ
    contexts: float = 1e-3  # μ


DPNE_RIDGE = Ridge()


class Factors(NamedTuple):
    """Rows of vertices and of contexts."""

    vertices: Rows  # W (n, k)
    contexts: Rows  # H (n, k)


class Spectrum(NamedTuple):
    """Singular values, largest first, and their vectors."""

    left: Rows  # (n, k)
    values: Rows  # (k,)
    right: Rows  # (n, k)


def spectrum(matrix: Any, count: int) -> Spectrum:
    """The largest singular values of a matrix (n, m), sparse or not; as many as it has, zeros beyond."""
    fewest = min(matrix.shape)
    with same_bits():
        some = None if fewest <= max(_SMALL, _SHARE * count) else _iterated(matrix, count)
        left, values, right = _all(matrix) if some is None else some
    order = np.argsort(-values, kind="stable")[:count]
    left, values, right = left[:, order], values[order], right[:, order]
    signs = np.where(np.take_along_axis(left, np.abs(left).argmax(axis=0)[None], axis=0) < 0, -1.0, 1.0)
    missing = count - len(values)
    return Spectrum(
        np.pad(left * signs, ((0, 0), (0, missing))),
        np.pad(values, (0, missing)),
        np.pad(right * signs, ((0, 0), (0, missing))),
    )


def _iterated(matrix: Any, count: int) -> Spectrum | None:
    """Those of the largest eigenvalues of MᵀM, or of M Mᵀ where that is smaller; None: not found."""
    if matrix.shape[0] < matrix.shape[1]:
        turned = _iterated(matrix.T, count)
        return turned and Spectrum(turned.right, turned.values, turned.left)
    found = largest_eigenpairs(lambda vector: matrix.T @ (matrix @ vector), matrix.shape[1], count)
    if found is None:
        return None
    basis = np.linalg.qr(found.vectors)[0]  # those of equal eigenvalues are not quite orthogonal
    left, values, turns = np.linalg.svd(matrix @ basis, full_matrices=False)
    return Spectrum(left, values, basis @ turns.T)


def _all(matrix: Any) -> Spectrum:
    """Every singular value; rows and columns of zeros have none."""
    sparse = issparse(matrix)
    rows = np.unique(matrix.nonzero()[0]) if sparse else np.arange(matrix.shape[0])
    columns = np.unique(matrix.nonzero()[1]) if sparse else np.arange(matrix.shape[1])
    if min(len(rows), len(columns)) > _MOST:
        raise DataError(
            f"no singular values: the iteration does not find them, and {len(rows):,} by {len(columns):,} "
            'numbers are too many to find all of them; set model.options.solver = "als", or try another '
            "model.dim"
        )
    dense = matrix.tocsr()[rows][:, columns].toarray() if sparse else _dense(matrix)
    inner, values, turns = np.linalg.svd(dense, full_matrices=False)
    left, right = (np.zeros((size, len(values))) for size in matrix.shape)
    left[rows], right[columns] = inner, turns.T
    return Spectrum(left, values, right)


def _dense(matrix: Any) -> Rows:
    dense: Rows = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
    return dense


def exact_factors(found: Spectrum, dim: int, ridge: Ridge = DPNE_RIDGE) -> Factors:
    """The minimum, from a spectrum of at least so many values: √(λμ) is taken off each of them.

    Of all rotations of it the one along the singular vectors.
    """
    shrunk = np.maximum(found.values[:dim] - np.sqrt(ridge.vertices * ridge.contexts), 0.0)
    balance = (ridge.contexts / ridge.vertices) ** 0.25
    roots = np.sqrt(shrunk)
    return Factors(found.left[:, :dim] * roots * balance, found.right[:, :dim] * roots / balance)


def factors_of(matrix: Any, dim: int, ridge: Ridge = DPNE_RIDGE) -> Factors:
    """The minimum of a matrix."""
    return exact_factors(spectrum(matrix, dim), dim, ridge)


def given_contexts(matrix: Any, contexts: Rows, ridge: float, linear: Rows | float = 0.0) -> Rows:
    """The W that is best for an H: (M H − N / 2) (HᵀH + λ)⁻¹, where N is a term ⟨W, N⟩ of the objective."""
    with same_bits():
        gram = contexts.T @ contexts + ridge * np.eye(contexts.shape[1])
        right = matrix @ contexts - np.asarray(linear) / 2
        best: Rows = np.linalg.solve(gram, right.T).T
    return best


def alternate(matrix: Any, vertices: Rows, ridge: Ridge = DPNE_RIDGE) -> Factors:
    """One sweep of alternating least squares: the best H for W, then the best W for that."""
    contexts = given_contexts(matrix.T, vertices, ridge.contexts)
    return Factors(given_contexts(matrix, contexts, ridge.vertices), contexts)


def gradients(matrix: Any, factors: Factors, rows: NDArray[np.int64], ridge: Ridge = DPNE_RIDGE) -> Factors:
    """Of the objective over some rows of M, at those rows of W (r, k) and at all of H (equations 5 and 6).

    The ridge of H counts in proportion to the rows.
    """
    w, h = factors.vertices[rows], factors.contexts
    part = matrix[rows]
    with same_bits():
        at_vertices = 2 * (w @ (h.T @ h) - part @ h + ridge.vertices * w)
        share = len(rows) / len(factors.vertices)
        at_contexts = 2 * (h @ (w.T @ w) - part.T @ w + share * ridge.contexts * h)
    return Factors(at_vertices, at_contexts)


def objective(matrix: Any, factors: Factors, ridge: Ridge = DPNE_RIDGE) -> float:
    """|M − W Hᵀ|² + λ|W|² + μ|H|², without an (n, n) matrix where M is sparse."""
    w, h = factors
    with same_bits():
        product = float(((matrix @ h) * w).sum())
        square = _square(matrix)
        norm = float(((w.T @ w) * (h.T @ h)).sum())
        ridges = ridge.vertices * float(np.square(w).sum()) + ridge.contexts * float(np.square(h).sum())
    return max(square - 2 * product + norm, 0.0) + ridges


def _square(matrix: Any) -> float:
    """The sum of squares of all entries."""
    if isinstance(matrix, PlusRankOne):
        return matrix.square()
    return float(matrix.multiply(matrix).sum() if issparse(matrix) else np.square(matrix).sum())


def aligned(factors: Factors, towards: Rows) -> Factors:
    """The same factors rotated such that W is nearest to given rows (Schönemann, 1966): W Hᵀ stays."""
    with same_bits():
        left, _, right = np.linalg.svd(factors.vertices.T @ towards)
        rotation = left @ right
        return Factors(factors.vertices @ rotation, factors.contexts @ rotation)
