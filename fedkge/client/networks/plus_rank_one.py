"""A symmetric matrix that is sparse but for one product of a vector with itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

__all__ = ["PlusRankOne"]

Numbers = NDArray[np.float64]


class PlusRankOne(LinearOperator):  # type: ignore[misc]  # scipy has no types
    """S + c v vᵀ, of which (n, n) numbers are never held at once.

    Args:
        sparse: S (n, n), symmetric.
        vector: v (n,).
        factor: c.
    """

    def __init__(self, sparse: Any, vector: Numbers, factor: float) -> None:
        super().__init__(np.float64, sparse.shape)
        self.sparse, self.vector, self.factor = sparse.tocsr(), vector, factor

    def _matvec(self, vector: Numbers) -> Numbers:
        return self._matmat(vector.reshape(-1, 1))

    def _matmat(self, columns: Numbers) -> Numbers:
        product: Numbers = self.sparse @ columns + self.factor * np.outer(self.vector, self.vector @ columns)
        return product

    def _adjoint(self) -> PlusRankOne:
        return self

    def _transpose(self) -> PlusRankOne:
        return self

    def __getitem__(self, rows: NDArray[np.int64]) -> Numbers:
        """(r, n) some rows."""
        dense: Numbers = self.sparse[rows].toarray()
        return dense + self.factor * np.outer(self.vector[rows], self.vector)

    def toarray(self) -> Numbers:
        """(n, n)."""
        return self[np.arange(self.shape[0])]

    def square(self) -> float:
        """The sum of squares of all entries."""
        lengths = float(self.vector @ self.vector)
        both = 2 * self.factor * float(self.vector @ (self.sparse @ self.vector))
        return float(self.sparse.multiply(self.sparse).sum()) + both + (self.factor * lengths) ** 2
