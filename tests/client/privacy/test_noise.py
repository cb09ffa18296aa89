"""Noise of confidential steps: on every row, of the right size, and lazy noise like dense noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fedkge.client.kernels.gaussian import collect_debts
from fedkge.client.models import Model, build_model
from fedkge.client.privacy.noise import DenseNoise, LazyNoise, choose_noise
from fedkge.client.privacy.normals import Keystream, derived
from fedkge.client.privacy.sound import SoundStep
from fedkge.client.training.negatives import Batch, NegativeSampler
from fedkge.client.training.optimizers import build_optimizer
from fedkge.client.training.steps import KernelStep
from fedkge.client.training.threads import one_thread
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from tests.client.conftest import random_graph

SIGMA, BOUND, EXPECTED = 0.8, 0.5, 10
SETTINGS = TrainingSettings(optimizer="SGD", learning_rate=0.3, negatives=2, batch_size=5)


class Recorded:
    """Stands for a keystream: fixed numbers for each step, all entity rows, then all relations."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers, self.place = numbers.ravel(), 0

    def add_normals(self, out: np.ndarray, deviation: float) -> None:
        flat = out.reshape(-1)
        flat += np.float32(deviation) * self.numbers[self.place : self.place + flat.size]
        self.place += flat.size


class RecordedLazyNoise(LazyNoise):
    """Pays with the very numbers that dense noise would have added step by step."""

    def __init__(self, numbers: dict[str, np.ndarray], tables: Any, charge: float) -> None:
        super().__init__(Keystream(bytes(32)), tables)
        self.numbers, self.charge = numbers, charge  # (steps, rows, w); variance of one step

    def _pay(self, name: str, rows: np.ndarray, since: np.ndarray) -> None:
        until = round(self.variance / self.charge)
        for row, paid in zip(rows, since, strict=True):
            steps = self.numbers[name][round(paid / self.charge) : until, row]
            self.tables[name][row] -= np.sqrt(self.charge) * steps.sum(axis=0)


def batches(graph: KnowledgeGraph, count: int) -> Iterator[tuple[bool, Batch]]:
    """Confidential and unrestricted ones in turn, some empty."""
    rng = np.random.default_rng(3)
    sampler = NegativeSampler(graph, SETTINGS)
    for step in range(count):
        size = 0 if step % 7 == 3 else 5
        places = rng.permutation(len(graph.train))[:size]
        confidential = step % 3 != 1
        if confidential or size:
            yield confidential, sampler.batch(places, rng)


def trained(noise: Any, model: Model, graph: KnowledgeGraph, count: int = 25) -> np.ndarray:
    """All rows after some steps, as one vector."""
    step = SoundStep(KernelStep(model, SETTINGS), noise, SIGMA, BOUND, EXPECTED)
    for confidential, batch in batches(graph, count):
        step.confidential(batch) if confidential else step.unrestricted(batch)
    noise.flush()
    return np.concatenate([table.ravel() for table in model.tables.values()]).astype(np.float64)


def small_model(graph: KnowledgeGraph) -> Model:
    return build_model(ModelSettings(name="DistMult", dim=3), graph, 0)


def test_lazy_noise_is_dense_noise_put_off() -> None:
    graph = random_graph(0)
    dense, lazy = small_model(graph), small_model(graph)
    rng = np.random.default_rng(0)
    steps = sum(confidential for confidential, _ in batches(graph, 25))
    numbers = {
        name: rng.normal(size=(steps, *table.shape)).astype(np.float32)
        for name, table in dense.tables.items()
    }
    stream = Recorded(np.concatenate([numbers[name].reshape(steps, -1) for name in dense.tables], axis=1))
    expected = trained(DenseNoise(stream), dense, graph)  # type: ignore[arg-type]
    assert stream.place == stream.numbers.size
    charge = (SETTINGS.learning_rate * SIGMA * BOUND / EXPECTED) ** 2
    found = trained(RecordedLazyNoise(numbers, lazy.tables, charge), lazy, graph)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_lazy_noise_has_the_distribution_of_dense_noise() -> None:
    graph = random_graph(0, entities=12, triples=40)
    found: dict[type, np.ndarray] = {}
    trials = 200
    for kind in (DenseNoise, LazyNoise):
        rows = []
        for trial in range(trials):
            model = small_model(graph)
            stream = Keystream(derived(bytes(32), kind.__name__, str(trial)))
            noise = DenseNoise(stream) if kind is DenseNoise else LazyNoise(stream, model.tables)
            with one_thread():
                rows.append(trained(noise, model, graph, 9))
        found[kind] = np.array(rows)  # (trials, numbers)
    dense, lazy = found[DenseNoise], found[LazyNoise]
    spread = dense.std(axis=0)
    assert np.abs(dense.mean(axis=0) - lazy.mean(axis=0)).max() < 5 * np.sqrt(2 / trials) * spread.max()
    ratio = lazy.var(axis=0) / dense.var(axis=0)
    assert np.abs(ratio - 1).max() < 5 * 2 / np.sqrt(trials)
    assert abs(ratio.mean() - 1) < 0.05
    across = np.corrcoef(lazy[:, 0], lazy[:, 17])[0, 1] - np.corrcoef(dense[:, 0], dense[:, 17])[0, 1]
    assert abs(across) < 5 * np.sqrt(2 / trials)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("size", [0, 5])
def test_a_confidential_step_moves_every_row_by_noise_of_the_right_size(lazy: bool, size: int) -> None:
    graph = random_graph(0, entities=400, relations=60, triples=80)
    model = build_model(ModelSettings(dim=50), graph, 0)
    plain = {name: table.copy() for name, table in model.tables.items()}
    stream = Keystream(bytes(32))
    noise = LazyNoise(stream, model.tables) if lazy else DenseNoise(stream)
    batch = NegativeSampler(graph, SETTINGS).batch(np.arange(size), np.random.default_rng(0))
    SoundStep(KernelStep(model, SETTINGS), noise, SIGMA, BOUND, EXPECTED).confidential(batch)
    noise.flush()
    expected = SETTINGS.learning_rate * SIGMA * BOUND / EXPECTED
    for name, table in model.tables.items():
        moved = table.astype(np.float64) - plain[name]
        assert (np.abs(moved).sum(axis=1) > 0).all()
        read = {"entity": np.unique(np.concatenate([batch.anchors, batch.candidates.ravel()])),
                "relation": np.unique(batch.relations)}[name]  # fmt: skip
        rest = np.delete(moved, read, axis=0).ravel()
        assert abs(rest.std() / expected - 1) < 5 / np.sqrt(2 * rest.size)
        assert abs(rest.mean()) < 5 * expected / np.sqrt(rest.size)


def carried_rows(name: str, norm: int, batch: Batch, fuses: bool, broken: bool) -> tuple[np.ndarray, float]:
    """Rows with their carry after one confidential step, and its loss."""
    graph = random_graph(0, entities=30)
    model = build_model(ModelSettings(name=name, dim=20, norm=norm), graph, 0)
    if broken:
        model.tables["entity"][batch.anchors[0]] = 1e38
    noise = LazyNoise(Keystream(bytes(32)), model.tables)
    step = SoundStep(KernelStep(model, SETTINGS), noise, SIGMA, BOUND, EXPECTED)
    step._fuses = step._fuses and fuses
    assert step._fuses == fuses
    loss = step.confidential(batch)
    rows = [table.astype(np.float64) + noise.carry[key] for key, table in model.tables.items()]
    return np.concatenate([table.ravel() for table in rows]), loss


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize(
    ("name", "norm"),
    [("TransE", 1), ("TransE", 2), ("TransM", 1), ("DistMult", 1), ("ComplEx", 1), ("RotatE", 1)],
)
@pytest.mark.parametrize("size", [1, 60])
def test_a_fused_clipped_step_is_the_one_in_passes(name: str, norm: int, size: int, broken: bool) -> None:
    """60 triples at 30 entities: rows of more than 16 parts, which are added in double precision."""
    graph = random_graph(0, entities=30)
    rng = np.random.default_rng(4)
    sampler = NegativeSampler(graph, SETTINGS.model_copy(update={"negatives": 12}))
    batch = sampler.batch(rng.permutation(len(graph.train))[:size], rng)
    (fused, loss), (expected, its_loss) = (
        carried_rows(name, norm, batch, fuses, broken) for fuses in (True, False)
    )
    if not broken:
        assert loss == pytest.approx(its_loss, rel=1e-6)
    np.testing.assert_allclose(fused, expected, rtol=1e-6, atol=1e-7)


def test_a_row_that_is_named_often_is_paid_once() -> None:
    ids = np.array([3, -1, 3, 0, 5], dtype=np.int32), np.array([5, 1, 3], dtype=np.int32)
    paid = np.array([0.0, 2.0, 0.0, 1.0, 0.0, 0.5])
    rows, since = np.empty(8, dtype=np.int32), np.empty(8)
    count = collect_debts(*ids, paid, 2.0, rows, since)
    owed = dict(zip(rows[:count].tolist(), since[:count].tolist(), strict=True))
    assert (count, owed) == (3, {3: 1.0, 0: 0.0, 5: 0.5})
    np.testing.assert_array_equal(paid, [2.0, 2.0, 0.0, 2.0, 0.0, 2.0])
    assert collect_debts(*ids, paid, 2.0, rows, since) == 0


def test_two_steps_draw_different_noise() -> None:
    graph = random_graph(0)
    model = small_model(graph)
    noise = DenseNoise(Keystream(bytes(32)))
    step = SoundStep(KernelStep(model, SETTINGS), noise, SIGMA, BOUND, EXPECTED)
    empty = NegativeSampler(graph, SETTINGS).batch(np.arange(0), np.random.default_rng(0))
    moves = []
    for _ in range(2):
        before = model.tables["entity"].copy()
        step.confidential(empty)
        moves.append((model.tables["entity"] - before).ravel())
    assert abs(np.corrcoef(*moves)[0, 1]) < 5 / np.sqrt(moves[0].size)


@pytest.mark.parametrize(
    ("optimizer", "negatives", "asked", "expected"),
    [
        ("SGD", 1, "auto", "lazy"),
        ("SGD", 256, "auto", "dense"),  # every row is read at every step
        ("SGD", 256, "lazy", "lazy"),
        ("SGD", 1, "dense", "dense"),
        ("Adam", 1, "auto", "dense"),
        ("LazyAdam", 1, "lazy", "dense"),
        ("Adagrad", 1, "lazy", "dense"),
    ],
)
def test_noise_is_lazy_where_that_is_exact_and_saves(
    optimizer: str, negatives: int, asked: str, expected: str
) -> None:
    tables = {"entity": np.zeros((1000, 2), np.float32), "relation": np.zeros((5, 2), np.float32)}
    settings = TrainingSettings(optimizer=optimizer, negatives=negatives, batch_size=32)
    noise, why = choose_noise(
        DPSettings(mode="sound", noise=asked),  # type: ignore[arg-type]
        settings,
        build_optimizer(optimizer, tables, 0.1),
        Keystream(bytes(32)),
        tables,
    )
    assert noise.name == expected
    assert bool(why) == (asked == "lazy" and expected == "dense")
    if why:
        assert f"exact for SGD alone, not for {optimizer}" in why
