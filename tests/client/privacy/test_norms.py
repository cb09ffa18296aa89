"""Norms of single triples: against autograd of each triple alone, and clipping that never falls short."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.client.kernels.gradients import Objective, TripleGradients, triple_gradients
from fedkge.client.kernels.losses import LOSSES
from fedkge.client.models import Model, build_model
from fedkge.client.privacy.clipping import clip
from fedkge.client.privacy.norms import triple_norms
from fedkge.client.training.negatives import Batch
from fedkge.experiment import ModelSettings
from tests.client.conftest import random_graph
from tests.client.privacy.conftest import single
from tests.contracts.model import (
    MARGIN,
    SHALLOW,
    autograd,
    mixed_batch,
    one_negative,
    shared_batch,
    tail_batch,
)

BATCHES = (tail_batch(), mixed_batch(), one_negative(), shared_batch())
CASES = [(name, norm) for name in SHALLOW for norm in ((1, 2) if name.startswith("Trans") else (1,))]


def perturbed(name: str, norm: int = 1, dim: int = 6, entities: int = 30) -> Model:
    graph = random_graph(0, entities=entities)
    model = build_model(ModelSettings(name=name, dim=dim, margin=MARGIN, norm=norm), graph, 0)
    rng = np.random.default_rng(1)
    for table in model.tables.values():
        table += rng.normal(scale=0.2, size=table.shape).astype(np.float32)
    return model


def naive_gradients(model: Model, objective: Objective, batch: Batch) -> list[np.ndarray]:
    """The whole gradient of every triple alone, as one long vector, in float64."""
    found = []
    for i in range(len(batch.anchors)):
        gradient, _ = autograd(model, objective, single(batch, i))
        found.append(np.concatenate([gradient[name].ravel() for name in model.tables]))
    return found


def summed(model: Model, gradients: TripleGradients) -> np.ndarray:
    """Σ over the batch, as one long vector."""
    sums = {"entity": gradients.entity_sums(model.tables["entity"])}
    if "relation" in model.tables:
        sums["relation"] = gradients.relation_sums(len(model.relation))
    every = {name: np.arange(len(table), dtype=np.int32) for name, table in model.tables.items()}
    return np.concatenate([sums[name].rows(every[name]).ravel() for name in model.tables])


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize(("name", "norm"), CASES)
def test_norms_are_those_of_autograd(name: str, norm: int, loss: str) -> None:
    model = perturbed(name, norm)
    objective = Objective(LOSSES[loss], MARGIN, temperature=0.7)
    for batch in BATCHES:
        norms = triple_norms(triple_gradients(model, objective, batch), model.tables["entity"])
        expected = [np.linalg.norm(each) for each in naive_gradients(model, objective, batch)]
        np.testing.assert_allclose(norms, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_a_clipped_sum_is_that_of_the_naive_loop(name: str, norm: int) -> None:
    model = perturbed(name, norm)
    objective = Objective(LOSSES["self-adversarial"], MARGIN, temperature=0.7)
    for batch in BATCHES:
        gradients = triple_gradients(model, objective, batch)
        alone = naive_gradients(model, objective, batch)
        bound = float(np.median([np.linalg.norm(each) for each in alone]))
        clip(gradients, triple_norms(gradients, model.tables["entity"]), bound, share=0.5)
        expected = 0.5 * sum(each * min(1, bound / np.linalg.norm(each)) for each in alone)
        error = np.linalg.norm(summed(model, gradients) - expected) / np.linalg.norm(expected)
        assert error < 5e-5  # the slack of 1e-5, and float32 sums


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_triple_exceeds_the_bound(data: st.DataObject) -> None:
    """Five entities: negatives repeat, meet the target and the anchor, and targets are anchors."""
    name, norm = data.draw(st.sampled_from(CASES))
    loss = data.draw(st.sampled_from(sorted(LOSSES)))
    bound = data.draw(st.floats(1e-3, 2.0))
    entity = st.integers(0, 4)
    batch = Batch(
        np.array([data.draw(entity)], dtype=np.int32),
        np.array([data.draw(st.integers(0, 3))], dtype=np.int32),
        np.array([data.draw(st.lists(entity, min_size=7, max_size=7))], dtype=np.int32),
        data.draw(st.integers(0, 1)),
    )
    model = perturbed(name, norm, entities=5)
    model.entity[4] = model.entity[3] * (1 + 1e-6)  # all but equal rows
    gradients = triple_gradients(model, Objective(LOSSES[loss], MARGIN, temperature=0.7), batch)
    clip(gradients, triple_norms(gradients, model.tables["entity"]), bound)
    assert np.linalg.norm(summed(model, gradients).astype(np.float64)) <= bound


def test_a_repeated_negative_counts_as_one_row() -> None:
    """With the closed form for distinct rows the norm would come out too small, and clipping too weak."""
    model = perturbed("TransE")
    objective = Objective(LOSSES["margin-ranking"], 50.0, temperature=0.7)  # every negative counts
    batch = Batch(*(np.array([x], dtype=np.int32) for x in (1, 0)), np.array([[2, 5, 5]], np.int32), 1)
    gradients = triple_gradients(model, objective, batch)
    norm = float(triple_norms(gradients, model.tables["entity"])[0])
    rows = np.square(gradients.anchor_rows).sum() + np.square(gradients.relation_rows).sum()
    too_small = np.sqrt(rows + 6 * np.square(gradients.coefficients).sum())
    assert norm > 1.05 * too_small


@pytest.mark.parametrize("name", ["TransE", "TransH", "DistMult", "ComplEx"])
def test_a_triple_that_is_not_finite_is_left_out(name: str) -> None:
    model = perturbed(name)
    objective = Objective(LOSSES["logistic"], MARGIN, temperature=0.7)
    gradients = triple_gradients(model, objective, tail_batch())
    norms = triple_norms(gradients, model.tables["entity"])
    gradients.anchor_rows[2] = np.inf
    gradients.queries[2] = np.inf
    norms[2] = np.inf
    clip(gradients, norms, 0.1)
    assert np.isfinite(summed(model, gradients)).all()
    assert not gradients.coefficients[2].any()
