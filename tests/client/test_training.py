"""Training: it learns, it repeats, it resumes, it stops with a reason."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from fedkge.client.models import MODELS, build_model
from fedkge.client.training.autograd import AutogradStep
from fedkge.client.training.loop import train
from fedkge.client.training.negatives import Batch, NegativeSampler
from fedkge.client.training.optimizers import OPTIMIZERS
from fedkge.client.training.steps import KernelStep
from fedkge.client.training.threads import one_thread
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, SettingError, TrainingError, UnknownNameError
from fedkge.experiment import ModelSettings, TrainingSettings


def small(**options):
    return TrainingSettings(**{"batch_size": 16, "negatives": 5, "learning_rate": 0.01, **options})


def trained(graph, name="TransE", seed=0, epochs=3, dim=6, **options):
    model = build_model(ModelSettings(name=name, dim=dim, margin=2.0), graph, 0)
    result = train(model, graph, np.random.default_rng(seed), small(**options), epochs=epochs)
    return model, result


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_loss_falls(graph, name):
    model, result = trained(graph, name, epochs=15, dim=8)
    assert result.losses[-1] < result.losses[0]
    first, *others = model.stages(small())
    if first.seen(graph, np.random.default_rng(0)) is not graph:
        return  # its triples are those of walks, or of both directions
    assert result.triples == len(result.losses) * len(graph.train)
    if not others:
        assert len(result.losses) == 15
        batches = 1 if first.training.type == "factorization" else -(-len(graph.train) // 16)
        assert result.steps == 15 * batches


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize("corrupt", ["tail", "both"])
def test_the_same_generator_gives_the_same_bits(graph, optimizer, corrupt):
    (a, first), (b, second) = (trained(graph, optimizer=optimizer, corrupt=corrupt) for _ in range(2))
    for name, table in a.tables.items():
        np.testing.assert_array_equal(table, b.tables[name])
    assert first.losses == second.losses


def test_bits_do_not_depend_on_other_threads(graph):
    alone, _ = trained(graph, epochs=10)
    together = [None, None]

    def work(i):
        together[i] = trained(graph, epochs=10)[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for model in together:
        np.testing.assert_array_equal(model.entity, alone.entity)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_two_calls_with_the_state_are_one(graph, optimizer):
    whole, _ = trained(graph, optimizer=optimizer, epochs=4)
    model = build_model(ModelSettings(dim=6, margin=2.0), graph, 0)
    rng, options = np.random.default_rng(0), small(optimizer=optimizer)
    first = train(model, graph, rng, options, epochs=2)
    train(model, graph, rng, options, epochs=2, optimizer=first.optimizer)
    np.testing.assert_array_equal(model.entity, whole.entity)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize("name", ["TransE", "TransM", "TransH", "ComplEx", "RotatE"])
def test_kernels_and_torch_take_the_same_steps(graph, name, optimizer):
    options = small(optimizer=optimizer, corrupt="both")
    models = [build_model(ModelSettings(name=name, dim=6, margin=2.0), graph, 0) for _ in range(2)]
    steps = [KernelStep(models[0], options), AutogradStep(models[1], options)]
    sampler = NegativeSampler(graph, options)
    for i in range(4):
        batch = sampler.batch(np.arange(i * 8, i * 8 + 8), np.random.default_rng(i))
        losses = [step(batch) for step in steps]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for name, table in models[0].tables.items():
        np.testing.assert_allclose(table, models[1].tables[name], rtol=1e-3, atol=2e-4)
    ours, torchs = (step.state() for step in steps)
    assert set(ours) == set(torchs)
    AutogradStep(models[1], options, ours)(batch)  # a state moves between the two


@pytest.mark.parametrize("optimizer", sorted(set(OPTIMIZERS) - {"LazyAdam"}))
@pytest.mark.parametrize(
    ("name", "changes"), [("TransE", {}), ("ComplEx", {"max_gradient_norm": 0.1}), ("R-GCN", {})]
)
def test_weight_decay_reaches_rows_that_no_batch_names(graph, optimizer, name, changes):
    """On every path to the optimiser: fused, clipped, through an encoder, and torch alone."""
    options = small(optimizer=optimizer, weight_decay=0.5, corrupt="both", **changes)
    models = [build_model(ModelSettings(name=name, dim=6, margin=2.0), graph, 0) for _ in range(2)]
    before = models[0].tables["entity"].copy()
    steps = [KernelStep(models[0], options), AutogradStep(models[1], options)]
    sampler = NegativeSampler(graph, options)
    for i in range(4):
        batch = sampler.batch(np.arange(2 * i, 2 * i + 2), np.random.default_rng(i))
        for step in steps:
            step(batch)
    for table, array in models[0].parameters.items():
        np.testing.assert_allclose(array, models[1].parameters[table], rtol=1e-3, atol=3e-4)
    assert (models[0].tables["entity"] != before).any(axis=1).all()


@pytest.mark.parametrize("name", ["TransE", "ConvKB"])
def test_the_learning_rate_falls_epoch_by_epoch_as_that_of_torch(graph, name):
    """With kernels and with torch: an epoch at a time, each at the rate of StepLR, is the same training."""
    options = small(decay_every=2, decay_by=2.0, learning_rate=0.02)
    whole, parts = (build_model(ModelSettings(name=name, dim=6, margin=2.0), graph, 0) for _ in range(2))
    train(whole, graph, np.random.default_rng(0), options, epochs=5)
    schedule = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)], lr=0.02), 2, 0.5)
    rng, state = np.random.default_rng(0), None
    for _ in range(5):
        rate = small(learning_rate=schedule.get_last_lr()[0])
        state = train(parts, graph, rng, rate, epochs=1, optimizer=state).optimizer
        schedule.optimizer.step()
        schedule.step()
    assert schedule.get_last_lr()[0] == 0.02 / 4
    for table, array in whole.parameters.items():
        np.testing.assert_array_equal(array, parts.parameters[table])


@pytest.mark.parametrize(("optimizer", "moves"), [("Adam", True), ("LazyAdam", False)])
def test_a_row_without_a_gradient_moves_if_the_optimizer_says_so(graph, optimizer, moves):
    model = build_model(ModelSettings(dim=6), graph, 0)
    step = KernelStep(model, small(optimizer=optimizer))
    ids = np.arange(6, dtype=np.int32)
    first = Batch(ids[:2], ids[:2], ids[2:].reshape(2, 2), 2)
    step(first)
    rows = {name: table.copy() for name, table in model.tables.items()}
    step(Batch(ids[:1] + 10, ids[:1], np.array([[11, 12]], dtype=np.int32), 1))
    mean, variance = (step.state()[f"entity.{name}"] for name in ("mean", "variance"))
    assert np.abs(mean[:6]).min(axis=1).max() > 0  # the first step gave them some
    drift = 0.01 * mean[:6] / (1 - 0.9**2) / (np.sqrt(variance[:6] / (1 - 0.999**2)) + 1e-8)
    moved = rows["entity"][:6] - model.tables["entity"][:6]
    np.testing.assert_allclose(moved, drift if moves else 0, rtol=1e-3, atol=1e-7)
    assert np.any(rows["relation"][1] != model.tables["relation"][1]) == moves


def test_tables_are_trained_in_place_and_only_there(graph):
    model = build_model(ModelSettings(dim=6), graph, 0)
    entity = model.entity
    before = graph.train.copy()
    train(model, graph, np.random.default_rng(0), small(), epochs=1)
    assert model.entity is entity
    np.testing.assert_array_equal(graph.train, before)


def test_torch_gets_its_threads_back():
    before = torch.get_num_threads()
    with one_thread(), one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_an_exploding_loss_names_step_rate_and_remedy(graph):
    with pytest.raises(
        TrainingError,
        match=r"stopped at step \d+: the loss .* with training.learning_rate = 1e\+06; try 100000",
    ):
        trained(graph, "DistMult", optimizer="SGD", learning_rate=1e6, epochs=50)


def test_a_broken_row_stops_training(graph):
    model = build_model(ModelSettings(dim=6), graph, 0)
    model.entity[3] = torch.nan
    with pytest.raises(
        TrainingError, match=r"stopped at step 1: the loss is nan with training\.learning_rate"
    ):
        train(model, graph, np.random.default_rng(0), small())


def test_bad_names_are_refused_before_training(graph):
    with pytest.raises(UnknownNameError, match="unknown loss"):
        trained(graph, loss="hinge")
    with pytest.raises(UnknownNameError, match="unknown optimizer"):
        trained(graph, optimizer="Adamw")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_an_absent_device_is_refused(graph):
    with pytest.raises(SettingError, match="no CUDA device here"):
        trained(graph, device="cuda")


def test_a_client_without_triples_is_refused(graph):
    none = np.empty((0, 3), dtype=np.int32)
    empty = KnowledgeGraph("empty", graph.entity_labels, graph.relation_labels, none, none, none)
    with pytest.raises(DataError, match="empty: no train triples"):
        trained(empty)
