"""Negatives: exact exclusion, fair draws, the right side replaced."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.client.training.negatives import NegativeSampler, head_shares, others
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import TrainingSettings
from tests.client.conftest import random_graph

NONE = np.empty((0, 3), dtype=np.int32)


def batch_of(graph, seed=0, **options):
    sampler = NegativeSampler(graph, TrainingSettings(**options))
    return sampler.batch(np.arange(len(graph.train)), np.random.default_rng(seed))


def known_answers(graph, anchor, relation, head_replaced):
    kept, asked = (2, 0) if head_replaced else (0, 2)
    return {int(row[asked]) for row in graph.train if row[kept] == anchor and row[1] == relation}


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 1000),
    entities=st.integers(5, 40),
    triples=st.integers(3, 300),
    corrupt=st.sampled_from(["tail", "head", "both"]),
    shared=st.booleans(),
)
def test_no_negative_is_a_known_answer_and_the_target_comes_first(seed, entities, triples, corrupt, shared):
    graph = random_graph(seed, entities, 2, triples)
    batch = batch_of(graph, seed, corrupt=corrupt, negatives=20, shared_negatives=shared)
    rebuilt = []
    for i, (anchor, relation) in enumerate(zip(batch.anchors, batch.relations, strict=True)):
        target, *negatives = batch.candidates[i].tolist()
        head_replaced = i >= batch.num_tails
        answers = known_answers(graph, anchor, relation, head_replaced)
        assert target in answers
        assert not answers & set(negatives)
        assert all(-1 <= negative < entities for negative in negatives)
        if len(answers) < entities and not shared:
            assert -1 not in negatives
        rebuilt.append((target, relation, anchor) if head_replaced else (anchor, relation, target))
    assert Counter(rebuilt) == Counter(map(tuple, graph.train.tolist()))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 1000),
    corrupt=st.sampled_from(["tail", "head", "both"]),
    shared=st.booleans(),
    unfiltered=st.booleans(),
)
def test_negatives_of_seen_entities_are_those_of_a_graph_without_the_others(
    seed, corrupt, shared, unfiltered
):
    graph = random_graph(seed, 12, 2, 30)
    spread = np.sort(np.random.default_rng(seed).choice(40, 12, replace=False)).astype(np.int32)
    train = np.stack([spread[graph.train[:, 0]], graph.train[:, 1], spread[graph.train[:, 2]]], axis=1)
    seen = np.unique(graph.train[:, [0, 2]])
    compact = np.searchsorted(seen, graph.train[:, [0, 2]]).astype(np.int32)
    narrow = np.stack([compact[:, 0], graph.train[:, 1], compact[:, 1]], axis=1)
    options = {
        "corrupt": corrupt,
        "shared_negatives": shared,
        "negatives": 30,
        "filter_negatives": not unfiltered,
    }
    labels, relations = tuple(map(str, range(40))), graph.relation_labels
    wide = KnowledgeGraph("wide", labels, relations, train, NONE, NONE)
    small = KnowledgeGraph("small", labels[: len(seen)], relations, narrow, NONE, NONE)
    batch = batch_of(wide, seed, **options, negatives_from="seen")
    alone = batch_of(small, seed, **options)
    back = np.append(spread[seen], -1)  # −1 stays −1
    np.testing.assert_array_equal(batch.candidates, back[alone.candidates])
    np.testing.assert_array_equal(batch.anchors, back[alone.anchors])
    if shared:
        np.testing.assert_array_equal(batch.shared, back[alone.shared])


def test_which_entities_are_seen_is_counted_in_the_graph_that_may_be_counted():
    labels = tuple("abcdefgh")
    public = KnowledgeGraph("public", labels, ("r",), np.array([[0, 0, 1], [2, 0, 1]], np.int32), NONE, NONE)
    hidden = KnowledgeGraph("hidden", labels, ("r",), np.array([[3, 0, 4]], np.int32), NONE, NONE)
    options = TrainingSettings(negatives=200, negatives_from="seen")
    sampler = NegativeSampler(hidden, options, counted=public)
    drawn = sampler.batch(np.arange(1), np.random.default_rng(0)).candidates[0]
    assert drawn[0] == 4
    assert set(drawn[1:].tolist()) == {0, 1, 2}
    nobody = KnowledgeGraph("nobody", labels, ("r",), NONE, NONE, NONE)
    drawn = NegativeSampler(hidden, options, counted=nobody).batch(np.arange(1), np.random.default_rng(0))
    assert set(drawn.candidates[0, 1:].tolist()) == {0, 1, 2, 3, 5, 6, 7}


def test_every_other_entity_is_equally_likely():
    train = np.array([[0, 0, 1], [0, 0, 4], [0, 0, 5], [0, 0, 9]], dtype=np.int32)
    graph = KnowledgeGraph("star", tuple("abcdefghij"), ("r",), train, NONE, NONE)
    counts = np.bincount(batch_of(graph, negatives=20_000).candidates[:, 1:].ravel(), minlength=10)
    assert (counts[[1, 4, 5, 9]] == 0).all()
    others = counts[[0, 2, 3, 6, 7, 8]]
    assert (abs(others - others.mean()) < 5 * np.sqrt(others.mean())).all()


def test_long_lists_of_answers_are_skipped_too():
    tails = np.arange(0, 600, 2, dtype=np.int32)
    train = np.stack([np.zeros_like(tails), np.zeros_like(tails), tails], axis=1)
    graph = KnowledgeGraph("hub", tuple(map(str, range(600))), ("r",), train, NONE, NONE)
    drawn = np.unique(batch_of(graph, negatives=50).candidates[:, 1:])
    np.testing.assert_array_equal(drawn, np.arange(1, 600, 2))


def test_without_the_filter_answers_are_drawn():
    train = np.array([[0, 0, 1], [0, 0, 0]], dtype=np.int32)
    graph = KnowledgeGraph("pair", ("a", "b"), ("r",), train, NONE, NONE)
    assert set(batch_of(graph, filter_negatives=False).candidates[:, 1:].ravel()) == {0, 1}


def test_a_triple_to_which_everything_is_an_answer_has_no_negatives():
    train = np.array([[0, 0, 1], [0, 0, 0]], dtype=np.int32)
    graph = KnowledgeGraph("pair", ("a", "b"), ("r",), train, NONE, NONE)
    assert (batch_of(graph).candidates[:, 1:] == -1).all()


def test_only_train_triples_are_known():
    test = np.array([[0, 0, 2]], dtype=np.int32)
    graph = KnowledgeGraph("leak", ("a", "b", "c"), ("r",), np.array([[0, 0, 1]]), NONE, test)
    assert 2 in batch_of(graph).candidates[:, 1:]


def test_shared_negatives_are_the_same_for_the_whole_batch(graph):
    candidates = batch_of(graph, shared_negatives=True, filter_negatives=False).candidates[:, 1:]
    assert (candidates == candidates[0]).all()


def test_the_same_generator_gives_the_same_batch(graph):
    a, b = (batch_of(graph, seed=7, corrupt="both") for _ in range(2))
    np.testing.assert_array_equal(a.candidates, b.candidates)


def test_bernoulli_replaces_the_side_with_fewer_answers_more_rarely():
    # One head with four tails: four tails per head, one head per tail.
    train = np.array([[0, 0, 1], [0, 0, 2], [0, 0, 3], [0, 0, 4]], dtype=np.int32)
    graph = KnowledgeGraph("fan", tuple("abcde"), ("r",), train, NONE, NONE)
    np.testing.assert_allclose(head_shares(graph)[graph.train[:, 1]], 4 / 5)


def test_bernoulli_needs_both_sides(graph):
    with pytest.raises(SettingError, match=r'set training.corrupt = "both"'):
        batch_of(graph, sampler="bernoulli")


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), entities=st.integers(5, 40), lacking=st.floats(0, 1))
def test_a_pool_alone_is_drawn_from_and_what_it_lacks_is_no_negative(seed, entities, lacking):
    graph, rng = random_graph(seed, entities, 2, 60), np.random.default_rng(seed)
    pool = np.where(rng.random(entities) < lacking, -1, rng.permutation(entities)).astype(np.int32)
    sampler = NegativeSampler(graph, TrainingSettings(negatives=50), pool=pool)
    batch = sampler.batch(np.arange(len(graph.train)), rng)
    assert set(batch.candidates[:, 1:].ravel().tolist()) <= {*pool.tolist(), -1}
    for anchor, relation, row in zip(batch.anchors, batch.relations, batch.candidates, strict=True):
        assert not known_answers(graph, anchor, relation, False) & set(row[1:].tolist())


def test_the_first_numbers_need_a_pool():
    with pytest.raises(SettingError, match=r'negatives_from: "first".*FedE'):
        batch_of(random_graph(0, 10, 2, 20), negatives_from="first")


def test_negatives_of_a_batch_are_entities_of_its_other_triples() -> None:
    """As Daza et al. (2021) draw them: uniform over both ends of all others, with replacement."""
    rng = np.random.default_rng(0)
    anchors, targets = np.arange(5, dtype=np.int32), np.arange(10, 15, dtype=np.int32)
    drawn = others(anchors, targets, 4000, rng)
    for i in range(5):
        ends = np.delete(np.stack([anchors, targets]), i, axis=1).ravel()
        values, counts = np.unique(drawn[i], return_counts=True)
        assert set(values) == set(ends)
        assert np.abs(counts - 500).max() < 5 * np.sqrt(500)
    assert (others(anchors[:1], targets[:1], 3, rng) == -1).all()


def test_a_sampler_within_batches_fills_them_and_refuses_shared_negatives() -> None:
    graph = random_graph(0, 50, 2, 200)
    chosen = TrainingSettings(negatives=8, negatives_from="batch", filter_negatives=False, corrupt="both")
    batch = NegativeSampler(graph, chosen).batch(np.arange(20), np.random.default_rng(0))
    ends = {*batch.anchors.tolist(), *batch.candidates[:, 0].tolist()}
    assert set(batch.candidates[:, 1:].ravel().tolist()) <= ends
    with pytest.raises(SettingError, match="shared_negatives"):
        NegativeSampler(graph, chosen.model_copy(update={"shared_negatives": True}))
