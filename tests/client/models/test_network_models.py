"""Models of networks: LINE, skip-gram and the factorisation of DeepWalk."""

from __future__ import annotations

import numpy as np
import pytest

from fedkge.client.models import MODELS, build_model
from fedkge.client.models.walking import FirstOrder, SecondOrder, SkipGram, both_ways
from fedkge.client.privacy import mechanism_of
from fedkge.client.training.loop import train
from fedkge.datasets import KnowledgeGraph, mark
from fedkge.datasets.networks.network import network_of
from fedkge.errors import DataError, SettingError
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from tests.contracts.model import ExtensionContract

SGNS = TrainingSettings(loss="logistic", negatives=5, learning_rate=0.05, corrupt="both", batch_size=64)


def two_cliques(size: int = 8) -> KnowledgeGraph:
    """Two cliques with one edge between them."""
    pairs = [(i, j) for i in range(size) for j in range(i)]
    pairs += [(size + i, size + j) for i, j in pairs] + [(0, size)]
    return network_of("cliques", [f"v{number}" for number in range(2 * size)], np.array(pairs))


class TestFirstOrder(ExtensionContract):
    name = "LINE-1"
    kind = FirstOrder


class TestSecondOrder(ExtensionContract):
    name = "LINE-2"
    kind = SecondOrder


class TestSkipGram(ExtensionContract):
    name = "SkipGram"
    kind = SkipGram


def test_second_order_compares_a_vertex_with_a_context() -> None:
    graph = two_cliques()
    model = build_model(ModelSettings(name="LINE-2", dim=4), graph, 0)
    rows = model.tables["entity"]
    expected = (rows[:5, :4] * rows[5:10, 4:]).sum(1)
    ids = np.arange(5)
    np.testing.assert_allclose(model.scores_of(ids, np.zeros(5, int), ids + 5), expected, rtol=1e-5)
    np.testing.assert_array_equal(model.entity_vectors(), rows[:, :4])


@pytest.mark.parametrize("name", ["LINE-1", "LINE-2", "SkipGram", "DeepWalkMF"])
def test_vertices_of_a_clique_come_together(name: str) -> None:
    """On the mean, a vertex is more like one of its own clique than like one of the other."""
    graph = two_cliques()
    settings = SGNS if name != "DeepWalkMF" else SGNS.model_copy(update={"local_epochs": 1})
    model = build_model(ModelSettings(name=name, dim=8), graph, 0)
    train(model, graph, np.random.default_rng(0), settings, epochs=40 if name.startswith("LINE") else 5)
    rows = model.entity_vectors().astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    alike = rows @ rows.T
    inside = (alike[:8, :8].sum() + alike[8:, 8:].sum() - 16) / (2 * 56)
    assert inside > alike[:8, 8:].mean() + 0.2


def test_an_edge_without_direction_is_learnt_both_ways() -> None:
    graph = two_cliques()
    arcs = {tuple(arc) for arc in both_ways(graph)[:, [0, 2]].tolist()}
    assert arcs == {
        arc for head, tail in graph.train[:, [0, 2]].tolist() for arc in ((head, tail), (tail, head))
    }
    counts = []
    for directed in (False, True):
        settings = ModelSettings(name="LINE-2", dim=4, options={"directed": directed})
        model = build_model(settings, graph, 0)
        counts.append(train(model, graph, np.random.default_rng(0), SGNS, epochs=1).triples)
    assert counts[0] == 2 * counts[1]


def test_a_network_without_a_walk_is_refused() -> None:
    graph = network_of("empty", ["a", "b"], np.array([[0, 1]]))
    bare = KnowledgeGraph.from_ids("bare", ["a", "b"], ["link"], {"train": np.array([[0, 0, 0]])})
    model = build_model(ModelSettings(name="SkipGram", dim=4), graph, 0)
    with pytest.raises(DataError, match="no walk leaves its vertex"):
        train(model, bare, np.random.default_rng(0), SGNS)


def test_a_factorisation_refuses_another_training_type() -> None:
    graph = two_cliques()
    model = build_model(ModelSettings(name="DeepWalkMF", dim=4), graph, 0)
    with pytest.raises(SettingError, match=r'^training.type = "KvsAll": DeepWalkMF factorises'):
        train(model, graph, np.random.default_rng(0), TrainingSettings(type="KvsAll"))


@pytest.mark.parametrize("name", ["SkipGram", "DeepWalkMF"])
def test_private_training_refuses_what_one_edge_reaches_too_far(name: str) -> None:
    graph = mark(two_cliques(), "1.0", 0)
    with pytest.raises(SettingError, match="trained on the network as a whole"):
        mechanism_of(DPSettings(mode="sound")).check(MODELS[name], graph, TrainingSettings())
    mechanism_of(DPSettings(mode="sound")).check(MODELS["LINE-1"], graph, TrainingSettings())
