"""What every embedding model promises, whatever its formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fedkge.client.kernels.comparisons import compare
from fedkge.client.kernels.fused import ROWS
from fedkge.client.kernels.gradients import Objective, triple_gradients
from fedkge.client.kernels.losses import LOSSES, loss_per_triple
from fedkge.client.models import MODELS, Model, build_model
from fedkge.client.training.autograd import AutogradStep
from fedkge.client.training.loop import Step, build_step
from fedkge.client.training.negatives import Batch
from fedkge.client.training.optimizers import OPTIMIZERS, SGD
from fedkge.client.training.ranks import rank
from fedkge.client.training.steps import KernelStep
from fedkge.client.training.threads import one_thread
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import ModelSettings, TrainingSettings
from tests.client.conftest import random_graph

MARGIN = 2.0
RATE = 2.0**12
# What attackers take: rows are all that is scored, by a query.
SHALLOW = sorted(
    name for name, kind in MODELS.items() if kind.has_query and not kind.has_encoder and not kind.whole_graph
)
# Those of them that private training takes: stages of a model's own train on another graph.
PRIVATE = [name for name in SHALLOW if MODELS[name].stages is Model.stages]


class ModelContract:
    """Subclass it with the name of a model; `formula` writes the score of one triple as the paper does."""

    name: ClassVar[str]
    norms: ClassVar[tuple[int, ...]] = (1,)

    @staticmethod
    def formula(h: np.ndarray, r: np.ndarray, t: np.ndarray, norm: int, /) -> float:
        raise NotImplementedError

    def build(self, graph: KnowledgeGraph, dim: int = 5, norm: int = 1, seed: int = 0) -> Model:
        return build_model(ModelSettings(name=self.name, dim=dim, margin=MARGIN, norm=norm), graph, seed)

    def perturbed(self, graph: KnowledgeGraph, dim: int = 5, norm: int = 1) -> Model:
        """Away from special starts such as identity matrices."""
        model = self.build(graph, dim, norm)
        rng = np.random.default_rng(1)
        for table in model.tables.values():
            table += rng.normal(scale=0.2, size=table.shape).astype(np.float32)
        return model

    def test_score_is_the_formula_of_the_paper(self, graph: KnowledgeGraph) -> None:
        for norm in self.norms:
            model = self.perturbed(graph, norm=norm)
            h, r, t = graph.train[:10].T
            entity, relation = (table.astype(np.float64) for table in model.tables.values())
            expected = [
                self.formula(entity[i], relation[j], entity[k], norm) for i, j, k in zip(h, r, t, strict=True)
            ]
            scale = model.scale.numpy()[r]
            np.testing.assert_allclose(model.scores_of(h, r, t), expected * scale, rtol=1e-5, atol=1e-5)

    def test_both_queries_compare_to_the_score(self, graph: KnowledgeGraph) -> None:
        for norm in self.norms:
            model = self.perturbed(graph, norm=norm)
            ids = torch.from_numpy(graph.train[:10].astype(np.int64))
            h, r, t = model.entity[ids[:, 0]], model.relation[ids[:, 1]], model.entity[ids[:, 2]]
            sign = model.comparison.sign
            score = model.score(h, r, t)
            tail = compare(model.comparison, model.query_tail(h, r), model.project(t[:, None], r)[:, 0])
            head = compare(model.comparison, model.query_head(t, r), model.project(h[:, None], r)[:, 0])
            torch.testing.assert_close(sign * tail, score, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(sign * head, score, rtol=1e-4, atol=1e-5)

    def test_a_label_gets_the_same_row_whatever_its_number(self, graph: KnowledgeGraph) -> None:
        model = self.build(graph)
        turned = KnowledgeGraph(
            "turned",
            graph.entity_labels[::-1],
            graph.relation_labels[::-1],
            graph.train,
            graph.valid,
            graph.test,
        )
        for name, table in self.build(turned).tables.items():
            np.testing.assert_array_equal(table[::-1], model.tables[name])

    def test_another_seed_gives_other_rows(self, graph: KnowledgeGraph) -> None:
        assert not np.array_equal(self.build(graph).entity, self.build(graph, seed=1).entity)

    def test_kernels_see_the_tensors_without_a_copy(self, graph: KnowledgeGraph) -> None:
        model = self.build(graph)
        model.tables["entity"][0, 0] = 42
        assert model.entity[0, 0] == 42

    @pytest.mark.parametrize("loss", sorted(LOSSES))
    def test_kernel_gradients_are_those_of_autograd(self, loss: str) -> None:
        for norm, dim, batch in (
            (self.norms[0], 5, tail_batch()),
            (self.norms[-1], 8, mixed_batch()),
            (self.norms[-1], 3, one_negative()),
            (self.norms[0], 5, shared_batch()),
            (self.norms[-1], 45, mixed_batch()),  # four lanes at a time, then one, then single columns
            (self.norms[0], 45, mixed_batch()),
        ):
            model = self.perturbed(random_graph(0), dim, norm)
            objective = Objective(LOSSES[loss], MARGIN, temperature=0.7)
            expected, losses = autograd(model, objective, batch)
            self.check_step(model, objective, batch, expected, losses.mean())
            triples = triple_gradients(model, objective, batch)
            triples.weigh(np.full(len(batch.anchors), 1 / len(batch.anchors), dtype=np.float32))
            entity, relation = model.tables.values()
            every_entity = np.arange(len(entity), dtype=np.int32)
            every_relation = np.arange(len(relation), dtype=np.int32)
            assert_close(triples.entity_sums(entity).rows(every_entity), expected["entity"])
            assert_close(triples.relation_sums(len(relation)).rows(every_relation), expected["relation"])
            np.testing.assert_allclose(triples.losses, losses, rtol=1e-4)

    @pytest.mark.parametrize("anchors", ["some", "all"])
    def test_a_step_over_many_blocks_is_that_of_autograd(self, anchors: str) -> None:
        """More rows than are summed before they move."""
        count = 4 * ROWS
        model = self.perturbed(random_graph(0, entities=count))
        batch = large_batch(count, count if anchors == "all" else ROWS)
        objective = Objective(LOSSES["self-adversarial"], MARGIN, temperature=0.7)
        expected, losses = autograd(model, objective, batch)
        self.check_step(model, objective, batch, expected, losses.mean())

    def check_step(
        self, model: Model, objective: Objective, batch: Batch, expected: dict[str, np.ndarray], loss: float
    ) -> None:
        """A step of plain descent moves each row by its gradient; far, so that a row read after it shows."""
        tables = {name: table.copy() for name, table in model.tables.items()}
        for optimizer in (SGD, DenseSGD):
            step = KernelStep(model, TrainingSettings())
            step.objective, step.optimizer = objective, optimizer(model.tables, RATE)
            assert step(batch) == pytest.approx(loss, rel=1e-4)
            for name, table in tables.items():
                assert_close((table - model.tables[name]) / RATE, expected[name])
                model.tables[name][:] = table


class DenseSGD(SGD):
    """It asks for every row, also for those that have no gradient."""

    dense = True


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    """To 1e-4 of the larger of a row's norm and a thousandth of the largest row's."""
    norms = np.linalg.norm(expected, axis=1)
    error = np.linalg.norm(actual - expected, axis=1)
    assert norms.max() > 0
    assert (error <= 1e-4 * np.maximum(norms, 1e-3 * norms.max())).all()


def autograd(model: Model, objective: Objective, batch: Batch) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Float64 gradients of the mean loss at every parameter, by the model's own encoder and score alone."""
    leaves = {name: model[name].double().requires_grad_() for name in model.parameters}
    bound = model.bind(leaves, {name: _doubled(buffer) for name, buffer in model.buffers.items()})
    entity, relation = bound.encode()
    candidates = torch.from_numpy(batch.candidates.astype(np.int64))
    kept = entity[torch.from_numpy(batch.anchors.astype(np.int64))][:, None]
    r = relation[torch.from_numpy(batch.relations.astype(np.int64))][:, None]
    offered = entity[candidates.clamp(min=0)]
    scores = torch.where(
        (torch.arange(len(kept)) < batch.num_tails)[:, None],
        bound.score(kept, r, offered),
        bound.score_head(offered, r, kept),
    )
    scores = scores * model.scale.double()[torch.from_numpy(batch.relations.astype(np.int64))][:, None]
    scores = (scores + model.shift).masked_fill(candidates < 0, -torch.inf)
    losses = loss_per_triple(objective.loss, scores, objective.margin, objective.temperature)
    gradients = torch.autograd.grad(losses.mean(), list(leaves.values()))
    return dict(zip(leaves, (g.numpy() for g in gradients), strict=True)), losses.detach().numpy()


def _doubled(buffer: torch.Tensor) -> torch.Tensor:
    return buffer.double() if buffer.is_floating_point() else buffer


class Towards:
    """A term that draws every row to a number."""

    def __init__(self, target: float, strength: float) -> None:
        self.target, self.strength = target, strength

    def gradient(self, name: str, ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
        assert rows.shape[0] == ids.shape[0]
        return np.float32(self.strength) * (rows - np.float32(self.target))


class ExtensionContract:
    """What a model promises that is more than two tables and a query; subclass it with the class.

    The contract of a registered model has its `name`.
    """

    name: ClassVar[str]
    kind: ClassVar[type[Model]]
    graph: ClassVar[Callable[[], KnowledgeGraph]] = staticmethod(lambda: random_graph(0))
    options: ClassVar[dict[str, Any]] = {}  # those of [model.options]
    tolerance: ClassVar[float] = 3e-6  # of a gradient, by its `size`

    @pytest.fixture(autouse=True)
    def _on_one_thread(self) -> Iterator[None]:
        """As training has it: torch adds up gradients of rows in any order otherwise."""
        with one_thread():
            yield

    def build(self, dim: int = 5) -> Model:
        settings = ModelSettings(dim=dim, margin=MARGIN, options=self.options)
        model = self.kind.build(settings, self.graph(), 0)
        rng = np.random.default_rng(1)
        for array in model.parameters.values():  # a writable view of what is trained
            array += rng.normal(scale=0.2, size=array.shape).astype(np.float32)
        return model

    def size(self, name: str, expected: dict[str, np.ndarray], values: dict[str, np.ndarray]) -> float:
        """What rounding of a gradient is measured by: its largest entry, or the terms that cancel in it."""
        del values
        return float(np.abs(expected[name]).max())

    def steps(self, model: Model, settings: TrainingSettings, term: Towards | None = None) -> list[Step]:
        """What trains it on the processor, and what trains it on every other device."""
        torch_step = AutogradStep(model, settings, term=term)
        chosen = build_step(model, settings, term=term)
        return [torch_step] if isinstance(chosen, AutogradStep) else [chosen, torch_step]

    @pytest.mark.parametrize("loss", sorted(LOSSES))
    def test_a_step_moves_every_parameter_by_its_gradient(self, loss: str) -> None:
        settings = TrainingSettings(
            optimizer="SGD", learning_rate=RATE, loss=loss, adversarial_temperature=0.7
        )
        objective = Objective(LOSSES[loss], MARGIN, temperature=0.7)
        for dim, batch in ((5, tail_batch()), (8, mixed_batch()), (45, mixed_batch()), (5, shared_batch())):
            model = self.build(dim)
            before = {name: array.copy() for name, array in model.parameters.items()}
            expected, losses = autograd(model, objective, batch)
            for step in self.steps(model, settings):
                assert step(batch) == pytest.approx(losses.mean(), rel=1e-5)
                for name, array in model.parameters.items():
                    moved = (before[name].astype(np.float64) - array) / RATE
                    largest = self.size(name, expected, before)
                    bound = self.tolerance * (
                        largest if largest > 1e-9 else 1
                    )  # margins cancel what is added to all
                    assert np.abs(moved - expected[name]).max() <= bound
                    array[:] = before[name]

    def test_a_term_is_added_to_the_gradient_of_rows_that_move(self) -> None:
        settings = TrainingSettings(optimizer="SGD", learning_rate=RATE)
        batch = tail_batch()
        model = self.build()
        before = {name: array.copy() for name, array in model.rows.items()}
        expected, _ = autograd(model, Objective(LOSSES[settings.loss], MARGIN, 1.0), batch)
        for step in self.steps(model, settings, Towards(3.0, 0.25)):
            step(batch)
            for name, rows in model.rows.items():
                gradient = expected[name].reshape(rows.shape)
                moves = gradient.any(axis=1)[:, None]
                wanted = gradient + np.where(moves, 0.25 * (before[name] - 3), 0)
                np.testing.assert_allclose((before[name] - rows) / RATE, wanted, rtol=1e-5, atol=1e-6)
                rows[:] = before[name]

    @pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
    def test_every_optimizer_moves_it_alike_and_goes_on_from_its_state(self, optimizer: str) -> None:
        settings = TrainingSettings(optimizer=optimizer, learning_rate=0.01)
        batches = [tail_batch(), mixed_batch(), tail_batch()]
        outcomes = []
        for i in range(2):
            model = self.build()
            step = self.steps(model, settings)[-i]
            for batch in batches[:2]:
                step(batch)
            type(step)(model, settings, step.state())(batches[2])
            outcomes.append(model.parameters)
        whole = self.build()
        step = self.steps(whole, settings)[0]
        for batch in batches:
            step(batch)
        for name, array in whole.parameters.items():
            np.testing.assert_array_equal(outcomes[0][name], array)
            np.testing.assert_allclose(outcomes[1][name], array, rtol=1e-3, atol=2e-4)

    def test_ranks_follow_from_the_scores(self) -> None:
        model, graph = self.build(), self.graph()
        ranks = rank(model, graph)
        every = np.arange(graph.num_entities, dtype=np.int32)
        for (head, relation, tail), better in zip(graph.test, ranks.better, strict=True):
            for side, (anchor, target) in enumerate(((head, tail), (tail, head))):
                fixed, r = np.full_like(every, anchor), np.full_like(every, relation)
                triple = (fixed, r, every) if side == 0 else (every, r, fixed)
                scores = model.scores_of(*triple, asks_tail=side == 0).astype(np.float64)
                known = {
                    (t if side == 0 else h)
                    for h, s, t in graph.triples.tolist()
                    if s == relation and (h if side == 0 else t) == anchor
                } - {target}
                above = np.flatnonzero(scores > scores[target] + 1e-6)
                assert better[side] == len(set(above.tolist()) - known)

    def test_it_is_restored_from_its_parameters(self) -> None:
        model, graph = self.build(), self.graph()
        saved = {name: array.copy() for name, array in model.parameters.items()}
        restored = self.kind.restore(model.settings, graph, saved)
        np.testing.assert_array_equal(restored.scores_of(*graph.test.T), model.scores_of(*graph.test.T))


def tail_batch() -> Batch:
    """Repeated entities and relations, a loop (its target is its anchor), a negative drawn twice."""
    rng = np.random.default_rng(2)
    anchors = np.array([3, 3, 3, 7, 8, 9], dtype=np.int32)
    candidates = rng.integers(0, 30, (6, 1 + 9)).astype(np.int32)
    candidates[0, 0] = 3
    candidates[1, 1:3] = 5
    candidates[2, 1] = 3
    return Batch(anchors, np.array([1, 1, 2, 0, 0, 3], dtype=np.int32), candidates, 6)


def mixed_batch() -> Batch:
    """Some heads replaced, some candidates missing, and one triple without any negative."""
    batch = tail_batch()
    candidates = batch.candidates.copy()
    candidates[1, 4:] = -1
    candidates[4, 1:] = -1
    return batch._replace(candidates=candidates, num_tails=3)


def one_negative() -> Batch:
    batch = tail_batch()
    return batch._replace(candidates=batch.candidates[:, :2].copy(), num_tails=0)


def large_batch(entities: int, anchors: int) -> Batch:
    """Every entity is a candidate; so many are an anchor, in no order; some candidates are missing."""
    rng = np.random.default_rng(3)
    order = rng.permutation(entities)[:anchors].astype(np.int32)
    candidates = rng.permuted(np.tile(np.arange(entities, dtype=np.int32), (anchors, 1)), axis=1)[:, :40]
    candidates[rng.random(candidates.shape) < 0.1] = -1
    candidates[:, 0] = rng.integers(0, entities, anchors)
    return Batch(order, rng.integers(0, 4, anchors).astype(np.int32), candidates, anchors // 2)


def shared_batch() -> Batch:
    """The same negatives for all, one of them twice, and some struck out."""
    batch = tail_batch()
    shared = np.array([5, 9, 9, 20, 3], dtype=np.int32)
    candidates = np.concatenate([batch.candidates[:, :1], np.tile(shared, (6, 1))], axis=1)
    candidates[2, 3] = -1
    return batch._replace(candidates=candidates, num_tails=4, shared=shared)
