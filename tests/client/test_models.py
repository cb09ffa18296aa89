"""Every registered model keeps the contract, and its score is what its paper says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge.client.models import MODELS, Model, build_model
from fedkge.client.models.bilinear import DistMult
from fedkge.client.models.initial import uniform_rows
from fedkge.client.models.translations import TransE
from fedkge.datasets import load_graph
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import UnknownNameError
from fedkge.experiment import ModelSettings
from tests.contracts.model import MARGIN, ModelContract


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


@pytest.mark.parametrize("parent", [TransE, DistMult])
def test_a_model_may_ask_another_way_than_its_parent(parent: type[Model]) -> None:
    class Backwards(parent):  # type: ignore[misc, valid-type]
        def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
            return h - 2 * r

        def query_head(self, t: Tensor, r: Tensor) -> Tensor:
            return t + 2 * r

    model = Backwards.build(ModelSettings(dim=4), load_graph("Nations"), 0)
    h, r = model.tables["entity"][:4], model.tables["relation"][:4]
    queries, pull = model.queries(h, r, 2)
    np.testing.assert_array_equal(queries, np.concatenate([h[:2] - 2 * r[:2], h[2:] + 2 * r[2:]]))
    at_h, at_r = pull(np.ones_like(queries))
    np.testing.assert_array_equal(at_h, np.ones_like(h))
    np.testing.assert_array_equal(at_r, np.repeat([[-2], [2]], 2, axis=0) * np.ones_like(r))


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
    covered = {
        value.name
        for value in globals().values()
        if isinstance(value, type) and issubclass(value, ModelContract) and hasattr(value, "name")
    }
    assert covered == set(MODELS)


def test_an_unknown_model_names_the_nearest(graph):
    with pytest.raises(UnknownNameError, match=r"unknown model 'transe'; known: .*Did you mean 'TransE'\?"):
        build_model(ModelSettings(name="transe"), graph, 0)


def test_initial_rows_are_uniform_and_differ_between_tables():
    labels = [f"label {i}" for i in range(500)]
    rows = uniform_rows(0, "entity", labels, 64)
    assert rows.min() > 0
    assert rows.max() < 1
    counts, _ = np.histogram(rows, bins=16, range=(0, 1))
    assert (abs(counts - rows.size / 16) < 5 * np.sqrt(rows.size / 16)).all()
    assert abs(np.corrcoef(rows[:, 0], rows[:, 1])[0, 1]) < 0.2
    assert not np.array_equal(rows, uniform_rows(0, "relation", labels, 64))


def test_a_row_does_not_depend_on_the_width_or_the_other_labels():
    rows = uniform_rows(0, "entity", ["a", "b", "c"], 8)
    np.testing.assert_array_equal(rows[1:2, :5], uniform_rows(0, "entity", ["b"], 5))
