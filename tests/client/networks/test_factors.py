"""Factorisations against each other, against dense formulas, and gradients against torch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from fedkge.client.models import Model, build_model
from fedkge.client.networks import factors
from fedkge.client.networks.factors import (
    Factors,
    Ridge,
    aligned,
    alternate,
    factors_of,
    given_contexts,
    gradients,
    objective,
    spectrum,
)
from fedkge.client.networks.walk_matrix import adjacency_of, walk_matrix
from fedkge.client.networks.walks import random_walks, walk_pairs
from fedkge.client.training.loop import train
from fedkge.datasets import load_graph
from fedkge.datasets.networks.network import edges_of, network_of
from fedkge.errors import DataError, SettingError
from fedkge.experiment import ModelSettings, TrainingSettings

RIDGE = Ridge(0.02, 0.05)


def edges(seed: int, vertices: int = 30, count: int = 60) -> np.ndarray:
    """Some of them twice, some of them loops, and a vertex without any."""
    return np.random.default_rng(seed).integers(0, vertices - 1, (count, 2)).astype(np.int32)


def matrix(seed: int, vertices: int = 30) -> csr_matrix:
    return walk_matrix(adjacency_of(edges(seed, vertices), vertices))


@given(st.integers(0, 50), st.integers(1, 4), st.booleans())
def test_walks_are_powers_of_the_transition_matrix(seed: int, window: int, directed: bool) -> None:
    pairs = edges(seed)
    dense = np.zeros((30, 30))
    for head, tail in pairs:
        if head != tail:
            dense[head, tail] = 1
            dense[tail, head] = dense[tail, head] if directed else 1
    degrees = dense.sum(1, keepdims=True)
    step = np.divide(dense, degrees, out=np.zeros_like(dense), where=degrees > 0)
    expected = sum(np.linalg.matrix_power(step, power) for power in range(1, window + 1)) / window
    adjacency = adjacency_of(pairs, 30, directed)
    np.testing.assert_allclose(walk_matrix(adjacency, window).toarray(), expected, atol=1e-12)
    logs = np.maximum(np.log(np.where(expected > 0, expected * 30, 1)), 0)
    np.testing.assert_allclose(walk_matrix(adjacency, window, logarithm=True).toarray(), logs, atol=1e-12)


@given(st.integers(0, 50), st.sampled_from([3, 8, 30]))
def test_the_exact_factors_are_best_for_each_other(seed: int, dim: int) -> None:
    """Each is the ridge regression on the other, by the normal equations written out."""
    walks = matrix(seed)
    w, h = factors_of(walks, dim, RIDGE)
    dense = walks.toarray()
    for best, other, target, ridge in ((w, h, dense, RIDGE.vertices), (h, w, dense.T, RIDGE.contexts)):
        expected = target @ other @ np.linalg.inv(other.T @ other + ridge * np.eye(dim))
        np.testing.assert_allclose(best, expected, atol=1e-8)


@given(st.integers(0, 50))
def test_the_objective_is_its_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    walks, factors = matrix(seed), Factors(rng.normal(size=(30, 4)), rng.normal(size=(30, 4)))
    dense = np.square(walks.toarray() - factors.vertices @ factors.contexts.T).sum()
    dense += 0.02 * np.square(factors.vertices).sum() + 0.05 * np.square(factors.contexts).sum()
    assert objective(walks, factors, RIDGE) == pytest.approx(dense)


def test_alternating_least_squares_arrives_at_the_exact_minimum() -> None:
    walks = matrix(0)
    exact = objective(walks, factors_of(walks, 5, RIDGE), RIDGE)
    factors = Factors(np.random.default_rng(0).normal(size=(30, 5)), np.zeros((30, 5)))
    values = []
    for _ in range(300):
        factors = alternate(walks, factors.vertices, RIDGE)
        values.append(objective(walks, factors, RIDGE))
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(values))
    assert exact - 1e-9 <= values[-1] <= 1.001 * exact


@given(st.integers(0, 50))
def test_nothing_near_the_exact_minimum_is_better(seed: int) -> None:
    walks, rng = matrix(seed), np.random.default_rng(seed)
    best = factors_of(walks, 6, RIDGE)
    exact = objective(walks, best, RIDGE)
    for size in (1e-3, 0.1, 1.0):
        other = Factors(*(rows + size * rng.normal(size=rows.shape) for rows in best))
        assert objective(walks, other, RIDGE) > exact


def test_gradients_are_those_of_torch() -> None:
    rng = np.random.default_rng(0)
    walks, rows = matrix(0), np.array([2, 3, 11])
    factors = Factors(rng.normal(size=(30, 4)), rng.normal(size=(30, 4)))
    w, h = (torch.tensor(part, requires_grad=True) for part in factors)
    missed = torch.tensor(walks.toarray()[rows]) - w[rows] @ h.T
    loss = missed.square().sum() + 0.02 * w[rows].square().sum() + 3 / 30 * 0.05 * h.square().sum()
    loss.backward()  # type: ignore[no-untyped-call]
    found = gradients(walks, factors, rows, RIDGE)
    np.testing.assert_allclose(found.vertices, w.grad.numpy()[rows], atol=1e-10)  # type: ignore[union-attr]
    np.testing.assert_allclose(found.contexts, h.grad.numpy(), atol=1e-10)  # type: ignore[union-attr]


def test_a_linear_term_moves_the_minimiser_as_its_gradient_says() -> None:
    """At the minimum of |M − W Hᵀ|² + λ|W|² + ⟨W, N⟩ the gradient in W is zero."""
    rng = np.random.default_rng(0)
    walks, h, noise = matrix(0), rng.normal(size=(30, 4)), rng.normal(size=(30, 4))
    w = torch.tensor(given_contexts(walks, h, 0.02, noise), requires_grad=True)
    missed = torch.tensor(walks.toarray()) - w @ torch.tensor(h).T
    loss = missed.square().sum() + 0.02 * w.square().sum() + (w * torch.tensor(noise)).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(w.grad.numpy(), 0, atol=1e-9)  # type: ignore[union-attr]


def test_a_rotation_towards_given_rows_changes_no_product() -> None:
    rng = np.random.default_rng(0)
    factors, towards = factors_of(matrix(0), 5, RIDGE), rng.normal(size=(30, 5))
    turned = aligned(factors, towards)
    np.testing.assert_allclose(
        turned.vertices @ turned.contexts.T, factors.vertices @ factors.contexts.T, atol=1e-10
    )
    nearest = np.square(turned.vertices - towards).sum()
    for _ in range(20):
        rotation = np.linalg.qr(rng.normal(size=(5, 5)))[0]
        assert nearest <= np.square(factors.vertices @ rotation - towards).sum()


def test_sparse_and_dense_singular_values_agree() -> None:
    walks = matrix(0, vertices=300)
    few, all_of_them = spectrum(walks, 6), np.linalg.svd(walks.toarray(), compute_uv=False)
    np.testing.assert_allclose(few.values, all_of_them[:6])
    beyond = spectrum(walks[:5, :5], 8)
    assert beyond.left.shape == (5, 8)
    assert not beyond.values[5:].any()


def rings(count: int) -> np.ndarray:
    """Squares that nothing joins: every singular value is repeated as often."""
    return np.array(
        [(4 * i + j, 4 * i + (j + 1) % 4) for i in range(count) for j in range(4)], dtype=np.int32
    )


SPARSE = {
    "no edge": lambda size, rng: np.empty((0, 2), dtype=np.int32),
    "one edge": lambda size, rng: np.array([[0, size - 1]], dtype=np.int32),
    "one star": lambda size, rng: np.array([(0, i) for i in range(1, size // 2)], dtype=np.int32),
    "pairs": lambda size, rng: np.arange(size - size % 2, dtype=np.int32).reshape(-1, 2),
    "rings": lambda size, rng: rings(size // 4),
    "few": lambda size, rng: rng.integers(0, size, (8, 2)).astype(np.int32),
    "sparse": lambda size, rng: rng.integers(0, size, (size // 2, 2)).astype(np.int32),
    "parts": lambda size, rng: np.concatenate(
        [part + 30 * i for i, part in enumerate([edges(0)] * (size // 30))]
    ),
}


@pytest.mark.parametrize("smallest", [1, 256])
@given(
    st.sampled_from(sorted(SPARSE)),
    st.integers(60, 90),
    st.integers(1, 12),
    st.booleans(),
    st.integers(0, 99),
)
def test_singular_values_of_any_network_are_those_of_the_dense_matrix(
    smallest: int, kind: str, size: int, count: int, wide: bool, seed: int
) -> None:
    """Fewer edges than values, parts that nothing joins, equal values; by iteration and by all of them."""
    walks = walk_matrix(adjacency_of(SPARSE[kind](size, np.random.default_rng(seed)), size))
    walks = walks[: size - 7] if wide else walks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factors, "_SMALL", smallest)
        found = spectrum(walks, count)
        again = spectrum(walks, count)
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, other)
    expected = np.linalg.svd(walks.toarray(), compute_uv=False)[:count]
    np.testing.assert_allclose(found.values, expected, atol=1e-7)
    kept = expected > 1e-6
    for side in (found.left[:, kept], found.right[:, kept]):
        np.testing.assert_allclose(side.T @ side, np.eye(kept.sum()), atol=1e-7)
    np.testing.assert_allclose(walks @ found.right, found.left * found.values, atol=1e-7)
    np.testing.assert_allclose(walks.T @ found.left, found.right * found.values, atol=1e-6)


@pytest.mark.parametrize(("name", "count"), [("Cora", 128), ("Citeseer", 64)])
def test_no_singular_value_of_a_network_in_parts_is_passed_by(
    name: str, count: int, data_folder: object
) -> None:
    """By all eigenvalues of MᵀM; one iteration alone passes by values that stand more than once."""
    graph = load_graph(name)
    walks = walk_matrix(adjacency_of(edges_of(graph), graph.num_entities))
    squares = np.linalg.eigvalsh((walks.T @ walks).toarray())[::-1][:count]
    np.testing.assert_allclose(spectrum(walks, count).values, np.sqrt(squares), atol=1e-9)


def test_what_neither_iteration_nor_memory_finds_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walks = matrix(0, vertices=90)
    monkeypatch.setattr(factors, "_SMALL", 1)
    monkeypatch.setattr(factors, "largest_eigenpairs", lambda *_: None)
    monkeypatch.setattr(factors, "_MOST", 50)
    with pytest.raises(DataError, match=r'model.options.solver = "als"'):
        spectrum(walks, 3)
    few = walk_matrix(adjacency_of(edges(0, 90, 12), 90))  # without its zeros it is small
    np.testing.assert_allclose(spectrum(few, 3).values, np.linalg.svd(few.toarray(), compute_uv=False)[:3])


def trained(solver: str, epochs: int, **training: object) -> tuple[Model, tuple[float, ...]]:
    pairs = edges(0)
    graph = network_of("drawn", [str(number) for number in range(30)], pairs)
    options = {"solver": solver, "vertex_ridge": 0.02, "context_ridge": 0.05}
    model = build_model(ModelSettings(name="DeepWalkMF", dim=5, options=options), graph, 0)
    settings = TrainingSettings(**training)  # type: ignore[arg-type]
    return model, train(model, graph, np.random.default_rng(0), settings, epochs=epochs).losses


def test_the_solvers_of_the_model_agree() -> None:
    """ALS and gradients arrive where singular vectors are; γ is the paper's."""
    exact = trained("exact", 2)[1][-1]
    als = trained("als", 300)[1][-1]
    sgd = trained("sgd", 4000, learning_rate=0.015, optimizer="SGD", batch_size=10)[1][-1]
    assert als == pytest.approx(exact, rel=2e-3)
    assert sgd == pytest.approx(exact, rel=2e-2)


class Pull:
    """A strategy's term."""

    def gradient(self, name: str, ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return rows


def test_a_term_of_the_strategy_needs_gradients() -> None:
    graph = network_of("drawn", [str(number) for number in range(30)], edges(0))
    model = build_model(ModelSettings(name="DeepWalkMF", dim=5), graph, 0)
    with pytest.raises(SettingError, match=r'model.options.solver = "exact".*set it to "sgd"'):
        train(model, graph, np.random.default_rng(0), TrainingSettings(), term=Pull())  # type: ignore[arg-type]
    model = build_model(ModelSettings(name="DeepWalkMF", dim=5, options={"solver": "sgd"}), graph, 0)
    train(model, graph, np.random.default_rng(0), TrainingSettings(), term=Pull())  # type: ignore[arg-type]


@given(st.integers(0, 50))
def test_walks_go_along_edges(seed: int) -> None:
    adjacency = adjacency_of(edges(seed), 30)
    paths = random_walks(adjacency, 2, 6, np.random.default_rng(seed))
    dense = adjacency.toarray()
    for path in paths:
        for here, there in itertools.pairwise(path):
            assert dense[here, there] or (here == there and not dense[here].any())
    np.testing.assert_array_equal(paths[:, 0], np.tile(np.arange(30), 2))


def test_pairs_of_a_walk_are_those_within_the_window() -> None:
    paths = np.random.default_rng(0).integers(0, 9, (7, 8)).astype(np.int32)
    expected = sorted(
        (int(path[i]), int(path[j]))
        for path in paths
        for i in range(8)
        for j in range(8)
        if 0 < abs(i - j) <= 3 and path[i] != path[j]
    )
    assert sorted(map(tuple, walk_pairs(paths, 3).tolist())) == expected
