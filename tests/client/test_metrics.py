"""Metrics: their definitions, PyKEEN's AMRI, intervals that cover, relations that add up."""

from __future__ import annotations

import numpy as np
import pytest
from pykeen.metrics.ranking import AdjustedArithmeticMeanRankIndex

from fedkge.client.models import build_model
from fedkge.client.training.evaluate import METRICS, evaluate, intervals, measure, measure_by_relation
from fedkge.client.training.loop import train
from fedkge.client.training.ranks import Ranks
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import EvaluationSettings, ModelSettings, TrainingSettings


def ranks_of(places, candidates=100, relation=None):
    places = np.asarray(places).reshape(len(places), 1)
    n = len(places)
    triples = np.zeros((n, 3), dtype=np.int32)
    triples[:, 1] = 0 if relation is None else relation
    left = np.broadcast_to(candidates, places.shape)
    return Ranks(triples, ("tail",), places - 1, np.zeros_like(places), left, np.ones(n, dtype=bool))


def test_metrics_are_their_definitions():
    found = measure(ranks_of([1, 2, 4, 20]))
    assert found["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 20) / 4)
    assert found["mr"] == pytest.approx(27 / 4)
    assert (found["hits@1"], found["hits@3"], found["hits@10"]) == (0.25, 0.5, 0.75)


def test_amri_is_that_of_pykeen():
    rng = np.random.default_rng(0)
    candidates = rng.integers(20, 100, 50)
    places = rng.integers(1, candidates + 1)
    expected = AdjustedArithmeticMeanRankIndex()(places.astype(float), candidates)
    assert measure(ranks_of(places, candidates[:, None]))["amri"] == pytest.approx(expected)


def test_ties_are_resolved_as_asked():
    one = np.ones((1, 1), dtype=np.int64)
    ranks = Ranks(np.zeros((1, 3), dtype=np.int32), ("tail",), one, 2 * one, 9 * one, np.array([True]))
    assert [measure(ranks, ties)["mr"] for ties in ("optimistic", "realistic", "pessimistic")] == [2, 3, 4]


def test_intervals_hold_the_metric_and_repeat():
    ranks = ranks_of(np.random.default_rng(1).integers(1, 100, 300))
    found = intervals(ranks, np.random.default_rng(2))
    for name, value in measure(ranks).items():
        low, high = found[name]
        assert low < value < high
    assert found == intervals(ranks, np.random.default_rng(2))


def test_intervals_cover_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(3)
    truth = (1 / np.arange(1, 101)).mean()
    covered = 0
    for _ in range(100):
        low, high = intervals(ranks_of(rng.integers(1, 101, 200)), rng, resamples=200)["mrr"]
        covered += low <= truth <= high
    assert 85 <= covered <= 100


def test_relations_add_up_to_the_whole():
    ranks = ranks_of([1, 2, 4, 20], relation=[0, 0, 2, 2])
    found = measure_by_relation(ranks, ("a", "b", "c"))
    assert set(found) == {"a", "c"}
    whole = sum(part["mrr"] * part["triples"] for part in found.values()) / 4
    assert whole == pytest.approx(measure(ranks)["mrr"])


def test_no_triples_give_no_numbers():
    found = measure(ranks_of(np.empty((0, 1), dtype=np.int64)))
    assert set(found) == set(METRICS)
    assert np.isnan(list(found.values())).all()


def test_own_candidates_are_the_entities_of_the_clients_triples(graph):
    wider = KnowledgeGraph(
        "wider", (*graph.entity_labels, "x", "y"), graph.relation_labels, graph.train, graph.valid, graph.test
    )
    model = build_model(ModelSettings(dim=6), wider, 0)
    own, everyone = (
        evaluate(model, wider, "test", EvaluationSettings(candidates=choice)) for choice in ("own", "all")
    )
    extra = wider.num_entities - len(np.unique(graph.triples[:, [0, 2]]))
    np.testing.assert_array_equal(own.ranks.candidates + extra, everyone.ranks.candidates)


def test_unseen_triples_are_counted():
    none = np.empty((0, 3), dtype=np.int32)
    test = np.array([[0, 0, 2]], dtype=np.int32)
    graph = KnowledgeGraph("unseen", tuple("abc"), ("r",), np.array([[0, 0, 1]]), none, test)
    found = evaluate(build_model(ModelSettings(dim=6), graph, 0), graph, "test", EvaluationSettings())
    assert (found.num_triples, found.num_unseen) == (1, 1)


def test_training_on_umls_beats_chance_by_far(umls):
    model = build_model(ModelSettings(name="RotatE", dim=32, margin=6.0), umls, 0)
    options = TrainingSettings(negatives=32, batch_size=256, learning_rate=0.02, corrupt="both")
    train(model, umls, np.random.default_rng(0), options, epochs=20)
    found = evaluate(model, umls, "test", EvaluationSettings(sides="both"), np.random.default_rng(0))
    assert found.metrics["mrr"] > 0.5  # chance is 0.04
    low, high = found.intervals["mrr"]
    assert low < found.metrics["mrr"] < high
