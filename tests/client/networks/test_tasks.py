"""Tasks on vertex rows find what is there, nothing where nothing is, and say why they cannot be done."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.client.networks.factors import factors_of
from fedkge.client.networks.tasks import SCALINGS, Score, classify_vertices, drawn_non_edges, predict_links
from fedkge.client.networks.walk_matrix import adjacency_of, walk_matrix
from fedkge.datasets import load_graph, partition
from fedkge.datasets.networks.network import edges_of
from fedkge.errors import DataError

RNG = np.random.default_rng


def test_cora_without_privacy_is_as_good_as_published(data_folder: object) -> None:
    """Rows of unit length tell classes, and standardised products tell edges that the embedding saw."""
    graph = load_graph("Cora")
    edges = edges_of(graph)
    rows = factors_of(walk_matrix(adjacency_of(edges, graph.num_entities)), 100).vertices
    # The mean over draws is 0.742; ten of them are 0.004 apart.
    assert classify_vertices(rows, graph.classes, RNG(0), repeats=60)["accuracy"].value >= 0.74
    assert predict_links(rows, edges, edges, RNG(0))["accuracy"].value >= 0.92


def test_hidden_edges_are_harder(data_folder: object) -> None:
    split = partition(load_graph("Cora"), "edges:valid=0,test=0.1", clients=1)
    graph = split.clients[0]
    rows = factors_of(walk_matrix(adjacency_of(edges_of(graph), graph.num_entities)), 100).vertices
    known, tested = edges_of(graph, "train", "test"), edges_of(graph, "test")
    score = predict_links(rows, tested, known, RNG(0), trained=0.5)["accuracy"]
    assert 0.65 < score.value < 0.85
    assert score.low < score.value < score.high


def test_rows_that_say_nothing_are_at_chance() -> None:
    """Beside rows that are the classes, and products that are the edges."""
    rng = RNG(0)
    classes = [str(number) for number in rng.integers(0, 4, 400)]
    noise = rng.normal(size=(400, 8))
    told = np.eye(4)[[int(kind) for kind in classes]] + 0.01 * noise[:, :4]
    assert classify_vertices(told, classes, RNG(1))["accuracy"].value > 0.99
    assert abs(classify_vertices(noise, classes, RNG(1))["accuracy"].value - 0.25) < 0.06
    inside = np.array([(i, j) for i in range(0, 400, 4) for j in range(1, 30, 4)], dtype=np.int32)
    edges = inside[inside[:, 0] != inside[:, 1]]
    assert abs(predict_links(noise[rng.permutation(400)], edges, edges, RNG(1))["AUC"].value - 0.5) < 0.1


def test_vertices_without_a_class_are_left_out() -> None:
    rng = RNG(0)
    rows = rng.normal(size=(60, 4))
    classes = ["a" if row[0] > 0 else "b" for row in rows]
    alone = classify_vertices(rows, classes, RNG(1))
    more = np.concatenate([rows, 100 * rng.normal(size=(20, 4))])
    assert classify_vertices(more, [*classes, *[""] * 20], RNG(1)) == alone


@given(st.integers(0, 40), st.integers(1, 20))
def test_pairs_that_are_drawn_are_no_edges_and_distinct(seed: int, count: int) -> None:
    edges = RNG(seed).integers(0, 12, (15, 2)).astype(np.int32)
    pairs = {frozenset(pair) for pair in drawn_non_edges(edges, 12, count, RNG(seed)).tolist()}
    assert len(pairs) == count
    assert all(len(pair) == 2 for pair in pairs)
    assert pairs.isdisjoint({frozenset(edge) for edge in edges.tolist()})


def test_scalings_are_what_they_say() -> None:
    rows = RNG(0).normal(2, 3, size=(50, 3))
    rows[4] = 0
    lengths = np.linalg.norm(SCALINGS["unit rows"](rows), axis=1)
    np.testing.assert_allclose(np.delete(lengths, 4), 1)
    assert lengths[4] == 0
    scaled = SCALINGS["standardised"](np.column_stack([rows, np.ones(50)]))
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.std(0), [1, 1, 1, 0])


def test_an_interval_holds_what_was_tested_and_how_it_was_drawn() -> None:
    alone, same, apart = Score.of([0.5], 100), Score.of([0.5] * 10, 100), Score.of([0.3, 0.7] * 5, 100)
    assert alone == same
    assert (alone.low, alone.high) == (pytest.approx(0.402, abs=1e-3), pytest.approx(0.598, abs=1e-3))
    assert apart.high - apart.low > same.high - same.low


@pytest.mark.parametrize(
    ("classes", "message"),
    [(["a"] * 9, "one class"), ([""] * 9, "no class"), (list("abcdefghi"), "a class of its own")],
)
def test_classes_that_cannot_be_told_are_refused(classes: list[str], message: str) -> None:
    with pytest.raises(DataError, match=f"^vertex classification: .*{message}"):
        classify_vertices(np.zeros((9, 2)), classes, RNG(0))


def test_links_that_cannot_be_tested_are_refused() -> None:
    rows, nothing = np.zeros((4, 2)), np.empty((0, 2), dtype=np.int32)
    with pytest.raises(DataError, match=r"^link prediction: 0 edges to test are too few.*edges:test=0.1"):
        predict_links(rows, nothing, nothing, RNG(0))
    whole = np.array([(i, j) for i in range(4) for j in range(i)], dtype=np.int32)
    with pytest.raises(DataError, match=r"^link prediction: only 0 pairs of 4 vertices are not joined"):
        predict_links(rows, whole, whole, RNG(0), trained=0.5)
