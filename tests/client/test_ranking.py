"""Ranks against a ranking that sorts nothing and hides nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.client.models import MODELS, build_model
from fedkge.client.training.ranks import rank, rank_as
from fedkge.client.training.truths import Truths
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError
from fedkge.experiment import EvaluationSettings, ModelSettings
from tests.client.conftest import random_graph

TIES = ("optimistic", "realistic", "pessimistic")


def naive(model, graph, triple, side, ties, candidates=None):
    """Score every candidate with the plain formula, drop other answers, count."""
    h, r, t = map(int, triple)
    target = t if side == "tail" else h
    known = {tuple(row) for row in graph.triples.tolist()}
    offered = range(graph.num_entities) if candidates is None else sorted(set(candidates.tolist()))
    left = [e for e in offered if e == target or ((h, r, e) if side == "tail" else (e, r, t)) not in known]
    heads, tails = ([h] * len(left), left) if side == "tail" else (left, [t] * len(left))
    scores = exact_scores(model, heads, [r] * len(left), tails)
    own = scores[left.index(target)]
    better, equal = (scores > own).sum(), (scores == own).sum() - 1
    share = {"optimistic": 0, "realistic": 0.5, "pessimistic": 1}[ties]
    return 1 + better + share * equal, len(left)


def exact_scores(model, h, r, t):
    rows = model.entity.double()[h], model.relation.double()[r], model.entity.double()[t]
    return model.score(*rows).numpy()


def on_a_grid(model, seed, levels):
    """Rows of small integers: every sum is exact in float32 whatever its order, and ties abound."""
    rng = np.random.default_rng(seed)
    for table in model.tables.values():
        table[:] = rng.integers(-levels, levels + 1, table.shape)
    return model


@settings(deadline=None, max_examples=40)
@given(
    name=st.sampled_from(["TransE", "TransM", "TransR", "RESCAL", "DistMult", "ComplEx"]),
    seed=st.integers(0, 10_000),
    entities=st.integers(5, 90),
    levels=st.integers(0, 2),
    dim=st.integers(1, 5),
    norm=st.sampled_from([1, 2]),
    ties=st.sampled_from(TIES),
)
def test_ranks_are_the_naive_ones_ties_and_all(name, seed, entities, levels, dim, norm, ties):
    graph = random_graph(seed, entities, 2, 60)
    model = on_a_grid(build_model(ModelSettings(name=name, dim=dim, norm=norm), graph, 0), seed, levels)
    ranks = rank(model, graph, "test", "both")
    for i, triple in enumerate(graph.test):
        for j, side in enumerate(("tail", "head")):
            expected, left = naive(model, graph, triple, side, ties)
            assert ranks.ranks(ties)[i, j] == expected
            assert ranks.candidates[i, j] == left


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_ranks_by_its_own_score(graph, name):
    model = build_model(ModelSettings(name=name, dim=8, margin=2.0), graph, 3)
    ranks = rank(model, graph, "test", "both").ranks()
    for i, triple in enumerate(graph.test):
        for j, side in enumerate(("tail", "head")):
            assert ranks[i, j] == naive(model, graph, triple, side, "realistic")[0]


@pytest.mark.parametrize("name", ["TransE", "DistMult", "ComplEx", "RotatE", "TransH"])
def test_equal_rows_tie_wherever_they_stand(name):
    graph = random_graph(1, 333, 2, 60)
    model = build_model(ModelSettings(name=name, dim=37), graph, 0)
    model.entity[:] = model.entity[5].clone()
    ranks = rank(model, graph, "test", "both")
    np.testing.assert_array_equal(ranks.better, 0)
    np.testing.assert_array_equal(ranks.equal, ranks.candidates - 1)


def test_candidates_may_be_fewer(graph):
    model = build_model(ModelSettings(dim=6), graph, 0)
    own = np.unique(np.concatenate([graph.test[:, [0, 2]].ravel(), np.arange(10, dtype=np.int32)]))
    ranks = rank(model, graph, "test", "tail", own)
    expected = [naive(model, graph, triple, "tail", "realistic", own) for triple in graph.test]
    np.testing.assert_array_equal(ranks.ranks()[:, 0], [place for place, _ in expected])
    np.testing.assert_array_equal(ranks.candidates[:, 0], [left for _, left in expected])


@settings(deadline=None, max_examples=25)
@given(
    name=st.sampled_from(["TransE", "TransR", "DistMult", "ComplEx", "RotatE"]),
    seed=st.integers(0, 10_000),
    levels=st.integers(0, 2),
    ties=st.sampled_from(TIES),
)
def test_the_seen_are_candidates_of_all_and_the_unseen_of_their_own_question(name, seed, levels, ties):
    graph = holed(random_graph(seed, 24, 2, 60))
    model = build_model(ModelSettings(name=name, dim=3), graph, 0)
    if name != "RotatE":  # whose modulus of whole numbers is not exact
        on_a_grid(model, seed, levels)
    seen = np.flatnonzero(graph.seen_entities)
    others = Truths(graph.test[::2] * [1, 0, 1] + [0, 1, 0], 2)
    for split in ("valid", "test"):
        for candidates, offered in (("seen", seen), ("own", known_at(graph, split)), ("all", None)):
            evaluation = EvaluationSettings(candidates=candidates, sides="both")
            ranks = rank_as(evaluation, model, graph, split, others)
            assert list(ranks) == ["own", "all"]
            for i, triple in enumerate(graph[split]):
                for j, side in enumerate(("tail", "head")):
                    target = np.array([triple[2 if side == "tail" else 0]])
                    own = None if offered is None else np.concatenate([offered, target])
                    expected, left = naive(model, graph, triple, side, ties, own)
                    assert ranks["own"].ranks(ties)[i, j] == expected
                    assert ranks["own"].candidates[i, j] == left
                    assert ranks["all"].candidates[i, j] <= left


def holed(graph):
    """A third of its entities are in no train triple, a sixth in test alone."""
    rows = graph.triples
    ends = rows[:, [0, 2]]
    part = np.where((ends < 4).any(axis=1), 2, np.where((ends < 8).any(axis=1), 1, 0))
    arrays = {split: rows[part == number] for number, split in enumerate(("train", "valid", "test"))}
    return KnowledgeGraph.from_ids("holed", *graph.labels.values(), arrays)


def known_at(graph, split):
    """As BLP ranks: all at test; at validation whoever is in train or valid triples."""
    splits = ("train", "valid") if split == "valid" else ("train", "valid", "test")
    return np.array(sorted({int(e) for name in splits for h, _, t in graph[name] for e in (h, t)}))


def test_a_broken_row_that_is_unseen_is_last():
    graph = holed(random_graph(3, 24, 2, 60))
    model = build_model(ModelSettings(dim=6), graph, 0)
    model.entity[:4] = torch.nan
    ranks = rank_as(EvaluationSettings(candidates="seen"), model, graph, "test")["own"]
    unseen = graph.test[:, 2] < 4
    assert unseen.any()
    np.testing.assert_array_equal(ranks.ranks()[unseen], ranks.candidates[unseen])


def test_a_target_outside_the_candidates_is_refused(graph):
    model = build_model(ModelSettings(dim=6), graph, 0)
    outside = np.setdiff1d(np.arange(30, dtype=np.int32), graph.test[:1, 2])
    with pytest.raises(DataError, match=r"tails to rank are not candidates; offer every entity"):
        rank(model, graph, "test", "tail", outside)


def test_sides_are_ranked_apart(graph):
    model = build_model(ModelSettings(dim=6), graph, 0)
    both = rank(model, graph, "test", "both").ranks()
    np.testing.assert_array_equal(both[:, :1], rank(model, graph, "test", "tail").ranks())
    np.testing.assert_array_equal(both[:, 1:], rank(model, graph, "test", "head").ranks())


def test_a_broken_row_never_looks_good(graph):
    model = build_model(ModelSettings(dim=6), graph, 0)
    target = int(graph.test[0, 2])
    model.entity[target] = torch.nan
    ranks = rank(model, graph, "test", "tail")
    assert ranks.ranks()[0, 0] == ranks.candidates[0, 0]


def test_unseen_entities_are_ranked_and_marked():
    none = np.empty((0, 3), dtype=np.int32)
    test = np.array([[0, 0, 2], [0, 0, 3], [0, 1, 1]], dtype=np.int32)
    train = np.array([[0, 0, 1], [1, 0, 2]], dtype=np.int32)
    graph = KnowledgeGraph("unseen", tuple("abcd"), ("r", "s"), train, none, test)
    ranks = rank(build_model(ModelSettings(dim=6), graph, 0), graph, "test", "both")
    assert len(ranks.triples) == 3
    np.testing.assert_array_equal(ranks.seen, [True, False, False])


def test_an_empty_split_has_no_ranks():
    none = np.empty((0, 3), dtype=np.int32)
    graph = KnowledgeGraph("empty", tuple("ab"), ("r",), np.array([[0, 0, 1]]), none, none)
    for name in ("TransE", "TransR"):
        assert rank(build_model(ModelSettings(name=name, dim=3), graph, 0), graph).better.shape == (0, 2)
