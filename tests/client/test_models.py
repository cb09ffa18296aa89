"""Every registered model keeps the contract, and its score is what its paper says."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge.client.kernels.gradients import triple_gradients
from fedkge.client.models import MODELS, Model, build_model
from fedkge.client.models.bilinear import DistMult
from fedkge.client.models.initial import seed_key, uniform_rows
from fedkge.client.models.rotations import RotatE
from fedkge.client.models.translations import TransE
from fedkge.client.training.steps import KernelStep
from fedkge.datasets import load_graph
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import UnknownNameError
from fedkge.experiment import ModelSettings, TrainingSettings
from tests.contracts.model import MARGIN, RATE, ExtensionContract, ModelContract, mixed_batch


class TestTransE(ModelContract):
    name = "TransE"
    norms = (1, 2)

    @staticmethod
    def formula(h, r, t, norm):
        return -np.linalg.norm(h + r - t, ord=norm)

    def test_the_relation_between_two_entities_fits_them(self, graph):
        model = self.build(graph)
        h, t = model.entity[:1], model.entity[1:2]
        assert model.score(h, model.relation_between(h, t), t).abs() < 1e-6


class TestTransM(TestTransE):
    name = "TransM"

    def test_weights_fall_with_the_number_of_answers(self):
        train = np.array([[0, 0, 1], [0, 1, 1], [0, 1, 2], [0, 1, 3], [0, 1, 4]], dtype=np.int32)
        none = np.empty((0, 3), dtype=np.int32)
        graph = KnowledgeGraph("weights", tuple("abcde"), ("one", "many", "unused"), train, none, none)
        # one: 1 tail per head, 1 head per tail; many: 4 tails per head, 1 head per tail
        np.testing.assert_allclose(self.build(graph).scale, 1 / np.log([2, 5, 2]), rtol=1e-6)


class TestTransH(ModelContract):
    name = "TransH"
    norms = (1, 2)

    @staticmethod
    def formula(h, r, t, norm):
        d, w = np.split(r, 2)
        w = w / np.linalg.norm(w)
        return -np.linalg.norm((h - (w @ h) * w) + d - (t - (w @ t) * w), ord=norm)


class TestTransR(ModelContract):
    name = "TransR"
    norms = (1, 2)

    @staticmethod
    def formula(h, r, t, norm):
        m = r[len(h) :].reshape(len(h), len(h))
        return -np.linalg.norm(m @ h + r[: len(h)] - m @ t, ord=norm)


class Backwards:
    """Queries of a parent, twice as far and the wrong way round."""

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        return h - 2 * r

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        return t + 2 * r


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("parent", [TransE, DistMult, RotatE])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_model_may_ask_another_way_than_its_parent(parent: type[Model], mixed: bool, norm: int) -> None:
    bases, own = ((Backwards, parent), {}) if mixed else ((parent,), dict(vars(Backwards)))
    names = ("query_tail", "query_head")
    child = type("Child", bases, {name: own[name] for name in names if name in own})
    child.relation_width = parent.entity_width  # type: ignore[attr-defined]
    model = child.build(ModelSettings(dim=4, norm=norm), load_graph("Nations"), 0)
    h, r = model.tables["entity"][:4], model.tables["relation"][:4]
    queries, backward = model.queries(h, r, 2)
    np.testing.assert_array_equal(queries, np.concatenate([h[:2] - 2 * r[:2], h[2:] + 2 * r[2:]]))
    at_h, at_r = backward(np.ones_like(queries))
    np.testing.assert_array_equal(at_h, np.ones_like(h))
    np.testing.assert_array_equal(at_r, np.repeat([[-2], [2]], 2, axis=0) * np.ones_like(r))
    check_own_way(model)


def check_own_way(model: Model) -> None:
    """A step of the kernels moves its rows as a step over the triples' own gradients does."""
    batch = mixed_batch()._replace(shared=None)
    batch = batch._replace(anchors=batch.anchors % 14, candidates=np.minimum(batch.candidates, 13))
    triples = triple_gradients(model, KernelStep(model, TrainingSettings()).objective, batch)
    triples.weigh(np.full(6, 1 / 6, dtype=np.float32))
    every = np.arange(14, dtype=np.int32)
    expected = triples.entity_sums(model.tables["entity"]).rows(every)
    before = model.tables["entity"].copy()
    KernelStep(model, TrainingSettings(optimizer="SGD", learning_rate=RATE))(batch)
    np.testing.assert_allclose((before - model.tables["entity"]) / RATE, expected, rtol=1e-4, atol=1e-6)


class TestRESCAL(ModelContract):
    name = "RESCAL"

    @staticmethod
    def formula(h, r, t, _norm):
        return h @ r.reshape(len(h), len(h)) @ t


class TestDistMult(ModelContract):
    name = "DistMult"

    @staticmethod
    def formula(h, r, t, _norm):
        return sum(h * r * t)


class TestComplEx(ModelContract):
    name = "ComplEx"

    @staticmethod
    def formula(h, r, t, _norm):
        a, b, c = (x[: len(x) // 2] + 1j * x[len(x) // 2 :] for x in (h, r, t))
        return (a * b * c.conj()).sum().real


class TestRotatE(ModelContract):
    name = "RotatE"

    @staticmethod
    def formula(h, r, t, _norm):
        a, c = (x[: len(x) // 2] + 1j * x[len(x) // 2 :] for x in (h, t))
        phase = r / ((MARGIN + 2) / len(r)) * np.pi
        return -abs(a * np.exp(1j * phase) - c).sum()

    def test_the_relation_between_two_turned_entities_turns_them_back(self, graph):
        model = self.build(graph)
        h, r = model.entity[:1], model.relation[:1]
        t = model.query_tail(h, r)
        torch.testing.assert_close(model.relation_between(h, t), r, rtol=1e-4, atol=1e-5)


class TestQuatE(ModelContract):
    name = "QuatE"

    @staticmethod
    def formula(h, r, t, _norm):
        a, b, c = (x.reshape(4, -1).T for x in (h, r, t))
        return sum(
            np.dot(quaternion(p) @ (q / np.linalg.norm(q)), s) for p, q, s in zip(a, b, c, strict=True)
        )


def quaternion(p):
    """The matrix of multiplication by p from the left."""
    a, b, c, d = p
    return np.array([[a, -b, -c, -d], [b, a, -d, c], [c, d, a, -b], [d, -c, b, a]])


def test_every_registered_model_has_a_contract_class():
    """A shallow one here; others in tests/client/models, under their names.

    A factorisation has no step that the contract could check: tests/client/networks/test_factors.py does.
    """
    factorised = {"DeepWalkMF"}
    covered = {
        value.name
        for value in globals().values()
        if isinstance(value, type) and issubclass(value, ModelContract) and hasattr(value, "name")
    }
    others = {
        name
        for name, kind in MODELS.items()
        if kind.has_encoder or not kind.has_query or kind.relation_width == 0
    }
    assert covered == set(MODELS) - others
    modules = [
        import_module(f"tests.client.models.{path.stem}")
        for path in (Path(__file__).parent / "models").glob("test_*.py")
    ]
    assert {contract.name for module in modules for contract in contracts_of(module)} == others - factorised


def contracts_of(module: ModuleType) -> list[type[ExtensionContract]]:
    """The contract classes of registered models."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ExtensionContract) and hasattr(value, "name")
    ]


def test_an_unknown_model_names_the_nearest(graph):
    with pytest.raises(UnknownNameError, match=r"unknown model 'transe'; known: .*Did you mean 'TransE'\?"):
        build_model(ModelSettings(name="transe"), graph, 0)


def test_initial_rows_are_uniform_and_differ_between_tables():
    labels = [f"label {i}" for i in range(500)]
    rows = uniform_rows(seed_key(0, "entity"), labels, 64)
    assert rows.min() > 0
    assert rows.max() < 1
    counts, _ = np.histogram(rows, bins=16, range=(0, 1))
    assert (abs(counts - rows.size / 16) < 5 * np.sqrt(rows.size / 16)).all()
    assert abs(np.corrcoef(rows[:, 0], rows[:, 1])[0, 1]) < 0.2
    assert not np.array_equal(rows, uniform_rows(seed_key(0, "relation"), labels, 64))


def test_a_row_does_not_depend_on_the_width_or_the_other_labels():
    rows = uniform_rows(seed_key(0, "entity"), ["a", "b", "c"], 8)
    np.testing.assert_array_equal(rows[1:2, :5], uniform_rows(seed_key(0, "entity"), ["b"], 5))
