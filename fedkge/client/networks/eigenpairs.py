"""The largest eigenvalues of a symmetric matrix that is known by its products alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh

__all__ = ["Eigenpairs", "largest_eigenpairs"]

Numbers = NDArray[np.float64]
Product = Callable[[Numbers], Numbers]
_LEFT = 8  # how many are looked for beside those that were found
_ROUNDS = 100  # of looking
_SLACK = 1e-9  # beside the largest: as far as eigenvalues may be from each other and count as the same


class Eigenpairs(NamedTuple):
    """In no order."""

    values: Numbers  # (k,)
    vectors: Numbers  # (n, k)


def largest_eigenpairs(times: Product, size: int, count: int) -> Eigenpairs | None:
    """Those of the largest magnitudes, at least `count` of them; None: they are not found.

    Lanczos' iteration begins at one vector, and may pass by copies of an eigenvalue, which parts of a network
    that nothing joins make many: it is repeated beside what was found until nothing larger is left.

    Args:
        times: the product of the matrix and a vector (n,).
        size: n.
        count: how many, below n.
    """
    found = _iterated(times, size, count)
    for _ in range(_ROUNDS):
        if found is None:
            return None
        sizes = np.sort(np.abs(found.values))[::-1]
        basis = np.linalg.qr(found.vectors)[0]  # of the same order; copies are not quite orthogonal
        more = _iterated(_beside(times, basis), size, min(_LEFT, size - 1))
        if more is None or np.abs(more.values).max() <= sizes[count - 1] + _SLACK * sizes[0]:
            return found if more else None
        found = Eigenpairs(
            np.concatenate([found.values, more.values]), np.concatenate([found.vectors, more.vectors], axis=1)
        )
    return None


def _beside(times: Product, basis: Numbers) -> Product:
    """The matrix without what it does along an orthonormal basis."""

    def product(vector: Numbers) -> Numbers:
        moved = times(vector - basis @ (basis.T @ vector))
        rest: Numbers = moved - basis @ (basis.T @ moved)
        return rest

    return product


def _iterated(times: Product, size: int, count: int) -> Eigenpairs | None:
    """As one iteration finds them, with more vectors where few do not suffice."""
    operator = LinearOperator((size, size), matvec=lambda vector: times(vector.ravel()), dtype=np.float64)
    for held in (None, min(size, 4 * count + 40)):
        rng = np.random.default_rng(size)  # the same for all, and orthogonal to nothing in particular
        start = rng.normal(size=size)
        try:
            return Eigenpairs(*eigsh(operator, k=count, which="LM", v0=start, ncv=held, rng=rng))
        except (ArpackError, ArpackNoConvergence):
            continue
    return None
