"""Losses: the values that their definitions give, and the names that they go by."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.kernels.losses import LOSSES, Loss, find_loss, loss_per_triple, slopes
from fedkge.errors import UnknownNameError


def log_sigmoid(x):
    return -np.log1p(np.exp(-x))


def defined(loss, positive, negatives, margin, temperature):
    """The definitions, spelled out for one triple."""
    if loss is Loss.SELF_ADVERSARIAL:  # FedR, appendix B.2
        p = np.exp(temperature * negatives) / np.exp(temperature * negatives).sum()
        return -log_sigmoid(positive) - (p * log_sigmoid(-negatives)).sum()
    if loss is Loss.MARGIN_RANKING:
        return np.maximum(0, margin + negatives - positive).mean()
    if loss is Loss.LOGISTIC:
        return (-log_sigmoid(positive) - log_sigmoid(-negatives).mean()) / 2
    return -(log_sigmoid(positive) + log_sigmoid(-negatives).sum()) / (1 + len(negatives))


@pytest.mark.parametrize("loss", list(Loss))
def test_torch_losses_are_their_definitions(loss):
    scores = np.random.default_rng(0).normal(scale=3, size=(4, 6))
    expected = [defined(loss, row[0], row[1:], 2.0, 0.5) for row in scores]
    actual = loss_per_triple(loss, torch.from_numpy(scores), 2.0, 0.5)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-10)


@settings(deadline=None, max_examples=60)
@given(
    loss=st.sampled_from(list(Loss)),
    scores=st.lists(st.floats(-60, 60, width=32), min_size=2, max_size=12),
    absent=st.integers(0, 3),
    temperature=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_kernel_losses_and_slopes_are_those_of_torch(loss, scores, absent, temperature):
    compared = np.array([scores + [np.inf] * absent], dtype=np.float32)
    out, losses = np.empty_like(compared), np.empty(1, dtype=np.float32)
    one, margin = np.ones(1, dtype=np.float32), np.float32(2)
    slopes(int(Comparison.DOT), int(loss), margin, np.float32(temperature), compared, one, out, losses)
    reference = torch.tensor([scores + [-np.inf] * absent], dtype=torch.float64, requires_grad=True)
    value = loss_per_triple(loss, reference, 2.0, temperature).sum()
    value.backward()
    np.testing.assert_allclose(losses[0], value.detach(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out, reference.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_a_broken_score_breaks_the_loss():
    compared = np.array([[1, np.nan, 2]], dtype=np.float32)
    losses = np.zeros(1, dtype=np.float32)
    one = np.float32(1)
    slopes(0, 0, one, one, compared, np.ones(1, dtype=np.float32), np.empty_like(compared), losses)
    assert np.isnan(losses[0])


def test_an_unknown_loss_names_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown loss 'logistics'.*Did you mean 'logistic'\?"):
        find_loss("logistics")
    assert sorted(LOSSES.values()) == sorted(Loss)
