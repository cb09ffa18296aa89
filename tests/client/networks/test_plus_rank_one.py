"""A matrix that is sparse but for one product, against the same matrix written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from fedkge.client.networks.factors import Factors, factors_of, objective
from fedkge.client.networks.plus_rank_one import PlusRankOne


@pytest.fixture
def matrices() -> tuple[PlusRankOne, np.ndarray]:
    rng = np.random.default_rng(0)
    half = np.triu(rng.normal(size=(30, 30)) * (rng.random((30, 30)) < 0.2))
    sparse, vector = half + half.T, rng.normal(size=30)
    return PlusRankOne(csr_matrix(sparse), vector, -0.3), sparse - 0.3 * np.outer(vector, vector)


def test_it_is_the_matrix_written_out(matrices: tuple[PlusRankOne, np.ndarray]) -> None:
    lean, dense = matrices
    columns = np.random.default_rng(1).normal(size=(30, 4))
    np.testing.assert_allclose(lean.toarray(), dense)
    np.testing.assert_allclose(lean @ columns, dense @ columns)
    np.testing.assert_allclose(lean.T @ columns[:, 0], dense.T @ columns[:, 0])
    np.testing.assert_allclose(lean[np.array([3, 7])], dense[[3, 7]])
    assert lean.square() == pytest.approx(np.square(dense).sum())


@pytest.mark.parametrize("dim", [3, 20])
def test_it_is_factorised_alike(dim: int, matrices: tuple[PlusRankOne, np.ndarray]) -> None:
    """By few singular values as by all of them."""
    lean, dense = (factors_of(matrix, dim) for matrix in matrices)
    np.testing.assert_allclose(lean.vertices @ lean.contexts.T, dense.vertices @ dense.contexts.T, atol=1e-8)
    drawn = Factors(*np.random.default_rng(2).normal(size=(2, 30, dim)))
    assert objective(matrices[0], drawn) == pytest.approx(objective(matrices[1], drawn))
