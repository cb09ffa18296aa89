"""Ranks filtered by all clients' answers: against a naive ranking over the pooled graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.client.models import build_model
from fedkge.client.training.ranks import rank, rank_by_filter
from fedkge.client.training.truths import Truths
from fedkge.datasets import Split, partition
from fedkge.datasets.graph import KnowledgeGraph, LabelledTriples
from fedkge.experiment import ModelSettings
from tests.client.conftest import random_graph
from tests.client.test_ranking import exact_scores, on_a_grid


def labelled(split: Split) -> set[tuple[str, str, str]]:
    """Every client's triples of every split, by label."""
    return {
        (graph.entity_labels[h], graph.relation_labels[r], graph.entity_labels[t])
        for graph in split.clients
        for h, r, t in graph.triples.tolist()
    }


def naive(model, graph, triple, side, known, offered):
    """Score what is offered, drop every other answer that is known by its labels, count."""
    h, r, t = map(int, triple)
    target = t if side == "tail" else h

    def is_known(entity):
        ends = (h, entity) if side == "tail" else (entity, t)
        return (graph.entity_labels[ends[0]], graph.relation_labels[r], graph.entity_labels[ends[1]]) in known

    left = [e for e in offered if e == target or not is_known(e)]
    heads, tails = ([h] * len(left), left) if side == "tail" else (left, [t] * len(left))
    scores = exact_scores(model, heads, [r] * len(left), tails)
    own = scores[left.index(target)]
    return 1 + (scores > own).sum() + 0.5 * ((scores == own).sum() - 1), len(left)


@settings(deadline=None, max_examples=30)
@given(
    name=st.sampled_from(["TransE", "TransR", "DistMult", "ComplEx"]),
    seed=st.integers(0, 10_000),
    entities=st.integers(8, 60),
    clients=st.integers(1, 4),
    levels=st.integers(0, 2),
    rule=st.sampled_from(["random", "fedr"]),
    fewer=st.booleans(),
)
def test_the_filter_of_all_is_a_naive_ranking_over_the_pooled_graph(
    name, seed, entities, clients, levels, rule, fewer
):
    split = partition(random_graph(seed, entities, 4, 120), rule, clients=clients, seed=seed)
    known = labelled(split)
    for number, graph in enumerate(split.clients):
        others = [other for client, other in enumerate(split.clients) if client != number]
        model = on_a_grid(build_model(ModelSettings(name=name, dim=3), graph, 0), seed, levels)
        own_entities = np.unique(graph.triples[:, [0, 2]])
        candidates = own_entities if fewer else None
        offered = own_entities.tolist() if fewer else range(graph.num_entities)
        truths = Truths.of_others(graph, others)
        found = rank_by_filter(model, graph, "test", "both", candidates, truths)
        alone = rank(model, graph, "test", "both", candidates)
        for part in ("better", "equal", "candidates", "seen"):
            np.testing.assert_array_equal(getattr(found["own"], part), getattr(alone, part))
        for i, triple in enumerate(graph.test):
            for j, side in enumerate(("tail", "head")):
                expected, left = naive(model, graph, triple, side, known, offered)
                assert found["all"].ranks()[i, j] == expected
                assert found["all"].candidates[i, j] == left


@pytest.mark.parametrize("name", ["TransE", "ComplEx", "RotatE"])
def test_both_filters_in_one_pass_are_two_passes(name):
    """A graph that has the others' triples in its own train split filters by all of them."""
    split = partition(random_graph(3, 80, 5, 900), "random", clients=3, seed=1)
    graph, *others = split.clients
    model = build_model(ModelSettings(name=name, dim=16), graph, 0)
    truths = Truths.of_others(graph, others)
    assert len(truths.triples) > 50
    pooled = KnowledgeGraph(
        graph.name,
        *graph.labels.values(),
        np.concatenate([graph.train, truths.triples]),
        graph.valid,
        graph.test,
    )
    both = rank_by_filter(model, graph, "test", "both", None, truths)
    for found, alone in ((both["own"], rank(model, graph)), (both["all"], rank(model, pooled))):
        for part in ("better", "equal", "candidates"):
            np.testing.assert_array_equal(getattr(found, part), getattr(alone, part))


def test_others_answers_are_found_by_label_and_only_where_the_client_knows_them():
    def graph(name, *triples):
        return KnowledgeGraph.from_labels(name, {"train": LabelledTriples(*zip(*triples, strict=True))})

    own = graph("own", ("a", "r", "b"), ("b", "s", "_:x"), ("c", "r", "a"))
    known = ("b", "r", "a"), ("a", "r", "b"), ("c", "s", "a")
    unknown = ("a", "q", "b"), ("d", "r", "a"), ("b", "s", "_:x")
    other = graph("other", *known, *unknown)
    again = graph("again", ("c", "s", "a"), ("a", "s", "c"))
    truths = Truths.of_others(own, [other, again])
    found = {
        (own.entity_labels[h], own.relation_labels[r], own.entity_labels[t])
        for h, r, t in truths.triples.tolist()
    }
    assert found == {("b", "r", "a"), ("c", "s", "a"), ("a", "s", "c")}
    assert len(truths.triples) == 3
    assert len(Truths.of_others(own, []).triples) == 0
