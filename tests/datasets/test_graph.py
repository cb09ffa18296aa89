"""Graphs are frozen, checked, and their lookups agree with dicts of sets."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.datasets import KnowledgeGraph, LabelledTriples, Lookup
from fedkge.errors import DataError

rows = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(0, 6)), max_size=40)


@given(rows)
def test_lookup_agrees_with_a_dict_of_sets(triples: list[tuple[int, int, int]]) -> None:
    array = np.array(triples, dtype=np.int32).reshape(-1, 3)
    lookup = Lookup.build(array[:, 0], array[:, 1], array[:, 2], num_relations=4)
    truth = defaultdict(set)
    for head, relation, tail in triples:
        truth[head, relation].add(tail)
    for head in range(8):
        for relation in range(4):
            assert lookup.of(head, relation).tolist() == sorted(truth[head, relation])


def test_lookup_spans_are_vectorised_and_empty_for_unknown_keys() -> None:
    lookup = Lookup.build(*np.array([[0, 0, 2], [1, 1, 0], [5, 3, 4]], dtype=np.int32), num_relations=2)
    starts, stops = lookup.spans(np.array([0, 1, 2], dtype=np.int32), np.array([1, 1, 0], dtype=np.int32))
    assert [lookup.values[a:b].tolist() for a, b in zip(starts, stops, strict=True)] == [[3, 5], [], [4]]


def test_true_tails_and_heads_cover_all_splits(umls: KnowledgeGraph) -> None:
    for head, relation, tail in (umls.train[0], umls.valid[0], umls.test[0]):
        assert tail in umls.true_tails.of(head, relation)
        assert head in umls.true_heads.of(tail, relation)
    assert len(umls.true_tails.values) == len({tuple(row) for row in umls.triples.tolist()})


def test_a_graph_cannot_be_changed(umls: KnowledgeGraph) -> None:
    with pytest.raises(ValueError, match="read-only"):
        umls.train[0, 0] = 1


def test_labels_are_numbered_as_they_appear() -> None:
    graph = KnowledgeGraph.from_labels("g", {"train": LabelledTriples(["b", "a"], ["r", "s"], ["a", "c"])})
    assert graph.entity_labels == ("b", "a", "c")
    assert graph.train.tolist() == [[0, 0, 1], [1, 1, 2]]


def test_declared_labels_keep_their_numbers_even_when_unused() -> None:
    rows = {"train": LabelledTriples(["b"], ["r"], ["a"])}
    graph = KnowledgeGraph.from_labels("g", rows, entity_labels=["z", "a"])
    assert graph.entity_labels == ("z", "a", "b")
    assert graph.num_entities == 3


@pytest.mark.parametrize(
    ("triples", "message"),
    [([[0, 0, 5]], "entity id 5"), ([[0, 7, 1]], "relation id 7"), ([[-1, 0, 1]], "negative")],
)
def test_ids_outside_the_vocabulary_are_refused(triples: list[list[int]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        KnowledgeGraph.from_ids("g", ["a", "b"], ["r"], {"train": np.array(triples)})


def test_marks_must_match_the_triples() -> None:
    with pytest.raises(DataError, match="2 marks for 1 train"):
        KnowledgeGraph.from_ids(
            "g", ["a"], ["r"], {"train": np.array([[0, 0, 0]])}, {"train": np.array([True, False])}
        )


def test_unseen_counts_held_out_triples_with_a_part_that_train_lacks() -> None:
    splits = {"train": [[0, 0, 1]], "valid": [[1, 0, 0], [0, 0, 2]], "test": [[0, 1, 1]]}
    graph = KnowledgeGraph.from_ids("g", "abc", "rs", {k: np.array(v) for k, v in splits.items()})
    assert (graph.unseen("train"), graph.unseen("valid"), graph.unseen("test")) == (0, 1, 1)
