"""Optimisers against torch's own, row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedkge.client.training.optimizers import OPTIMIZERS, build_optimizer
from fedkge.errors import DataError, SettingError, UnknownNameError

TORCH = {
    "Adam": torch.optim.Adam,
    "LazyAdam": torch.optim.SparseAdam,
    "Adagrad": torch.optim.Adagrad,
    "SGD": torch.optim.SGD,
}


def steps(seed):
    """Gradients of a few rows of a (9, 5) table, another few at each step."""
    rng = np.random.default_rng(seed)
    for _ in range(6):
        rows = np.sort(rng.choice(9, 4, replace=False)).astype(np.int32)
        yield rows, rng.normal(size=(4, 5)).astype(np.float32)


def apply(optimizer, rows, gradient):
    optimizer.begin_step()
    if optimizer.dense:
        full = np.zeros((9, 5), dtype=np.float32)
        full[rows] = gradient
        rows, gradient = np.arange(9, dtype=np.int32), full
    optimizer.update("entity", rows, gradient)


def test_every_optimizer_is_compared_with_torch():
    assert set(TORCH) == set(OPTIMIZERS)


@pytest.mark.parametrize("name", sorted(TORCH))
def test_updates_are_those_of_torch(name):
    table = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    reference = torch.from_numpy(table.copy()).requires_grad_()
    ours, theirs = build_optimizer(name, {"entity": table}, 0.1), TORCH[name]([reference], lr=0.1)
    for rows, gradient in steps(1):
        apply(ours, rows, gradient)
        sparse = torch.sparse_coo_tensor(
            torch.from_numpy(rows.astype(np.int64))[None],
            torch.from_numpy(gradient),
            (9, 5),
            check_invariants=True,
        ).coalesce()
        reference.grad = sparse if name == "LazyAdam" else sparse.to_dense()
        theirs.step()
    np.testing.assert_allclose(table, reference.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(set(TORCH) - {"LazyAdam"}))
def test_weight_decay_is_that_of_torch_in_every_row(name):
    table = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    reference = torch.from_numpy(table.copy()).requires_grad_()
    ours = build_optimizer(name, {"entity": table}, 0.1, weight_decay=0.3)
    theirs = TORCH[name]([reference], lr=0.1, weight_decay=0.3)
    assert ours.dense
    for rows, gradient in steps(1):
        apply(ours, rows, gradient)
        full = torch.zeros(9, 5)
        full[rows.astype(np.int64)] = torch.from_numpy(gradient)
        reference.grad = full
        theirs.step()
    np.testing.assert_allclose(table, reference.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_weight_decay_is_refused_where_rows_are_left_alone():
    with pytest.raises(SettingError, match=r"^training\.weight_decay: LazyAdam leaves rows .* \"Adam\""):
        build_optimizer("LazyAdam", {}, 0.1, weight_decay=0.3)


@pytest.mark.parametrize("name", ["Adam", "LazyAdam"])
def test_gradients_as_small_as_epsilon_move_rows_as_in_adam(name):
    """SparseAdam's ε stands elsewhere than Adam's, which shows below 1e-5 alone: ours is Adam's in both."""
    table = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    reference = torch.from_numpy(table.copy()).requires_grad_()
    ours, theirs = build_optimizer(name, {"entity": table}, 0.1), torch.optim.Adam([reference], lr=0.1)
    rng = np.random.default_rng(1)
    for _ in range(6):
        gradient = rng.normal(scale=1e-7, size=(9, 5)).astype(np.float32)
        apply(ours, np.arange(9, dtype=np.int32), gradient)
        reference.grad = torch.from_numpy(gradient)
        theirs.step()
    np.testing.assert_allclose(table, reference.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(TORCH))
def test_an_exported_state_continues_exactly(name):
    start = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    whole, parts = start.copy(), start.copy()
    straight, first = (build_optimizer(name, {"entity": table}, 0.1) for table in (whole, parts))
    everything = list(steps(2))
    for rows, gradient in everything:
        apply(straight, rows, gradient)
    for rows, gradient in everything[:3]:
        apply(first, rows, gradient)
    second = build_optimizer(name, {"entity": parts}, 0.1)
    second.load(first.state())
    for rows, gradient in everything[3:]:
        apply(second, rows, gradient)
    np.testing.assert_array_equal(whole, parts)


def test_a_state_of_another_optimizer_is_refused():
    tables = {"entity": np.zeros((9, 5), dtype=np.float32)}
    state = build_optimizer("Adagrad", tables, 0.1).state()
    with pytest.raises(DataError, match="resume with the optimizer that wrote it"):
        build_optimizer("Adam", tables, 0.1).load(state)


def test_a_state_of_another_size_is_refused():
    state = build_optimizer("Adam", {"entity": np.zeros((8, 5), dtype=np.float32)}, 0.1).state()
    with pytest.raises(DataError, match=r"has shape \(8, 5\), the table \(9, 5\)"):
        build_optimizer("Adam", {"entity": np.zeros((9, 5), dtype=np.float32)}, 0.1).load(state)


def test_an_unknown_optimizer_names_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown optimizer 'adam'.*Did you mean 'Adam'\?"):
        build_optimizer("adam", {}, 0.1)
