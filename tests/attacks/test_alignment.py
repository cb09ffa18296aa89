"""Alignment and inference against slow, obvious loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.attacks.reconstruction import alignment
from fedkge.attacks.reconstruction.alignment import mutual, nearest, ranks, superpose, unit
from fedkge.attacks.reconstruction.relations import RelationModel
from fedkge.client.models import MODELS
from tests.attacks import planted


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 30), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_nearest_rows_are_those_of_a_loop(seed: int, count: int, size: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    rows, pool = (rng.normal(size=(n, 5)).astype(np.float32) for n in (count, size))
    found = nearest(rows, pool, k)
    assert found.indices.shape == (count, min(k, size))
    for row, places, similarity in zip(rows, found.indices, found.similarity, strict=True):
        expected = sorted((cosine(row, other) for other in pool), reverse=True)[:k]
        np.testing.assert_allclose(similarity, expected, atol=1e-5)
        np.testing.assert_allclose([cosine(row, pool[place]) for place in places], expected, atol=1e-5)


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows, pool = (rng.normal(size=(n, 8)).astype(np.float32) for n in (50, 30))
    whole = nearest(rows, pool, 3).indices
    monkeypatch.setattr(alignment, "_BLOCK", 7)
    np.testing.assert_array_equal(nearest(rows, pool, 3).indices, whole)


def test_a_row_of_zeros_is_no_error() -> None:
    assert np.isfinite(unit(np.zeros((2, 3), np.float32))).all()


def test_ranks_count_the_better_ones() -> None:
    rng = np.random.default_rng(1)
    rows, pool = (rng.normal(size=(n, 4)).astype(np.float32) for n in (20, 15))
    right = rng.integers(15, size=20)
    expected = [
        1 + sum(cosine(row, other) > cosine(row, pool[place]) + 1e-7 for other in pool)
        for row, place in zip(rows, right, strict=True)
    ]
    np.testing.assert_array_equal(ranks(rows, pool, right), expected)


def test_mutual_neighbours_of_the_same_rows_are_the_rows_themselves() -> None:
    rows = np.random.default_rng(2).normal(size=(20, 6)).astype(np.float32)
    own, there = mutual(rows, rows)
    np.testing.assert_array_equal(own, np.arange(20))
    np.testing.assert_array_equal(there, own)


def test_anchors_undo_any_rotation_and_shift() -> None:
    rng = np.random.default_rng(3)
    pool = rng.normal(size=(200, 12)).astype(np.float32)
    turn = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    rows = (pool @ turn + rng.normal(size=12)).astype(np.float32)
    known = np.arange(20)
    assert (nearest(rows, pool).indices[:, 0] == np.arange(200)).mean() < 0.2
    moved, still = superpose(rows, pool, (known, known))
    np.testing.assert_array_equal(nearest(moved, still).indices[:, 0], np.arange(200))


def test_without_anchors_a_shift_is_undone() -> None:
    rng = np.random.default_rng(4)
    pool = rng.normal(size=(200, 12)).astype(np.float32)
    rows = (pool + 5 * rng.normal(size=12) + 0.01 * rng.normal(size=pool.shape)).astype(np.float32)
    assert (nearest(rows, pool).indices[:, 0] == np.arange(200)).mean() < 0.5
    moved, still = superpose(rows, pool)
    np.testing.assert_array_equal(nearest(moved, still).indices[:, 0], np.arange(200))


@pytest.mark.parametrize("name", [name for name, kind in MODELS.items() if not kind.has_encoder])
def test_relations_are_those_of_a_loop_over_pairs_and_relations(name: str) -> None:
    rng = np.random.default_rng(5)
    tables = planted.planted_tables(name, rng)
    noise = rng.normal(scale=0.3, size=tables["entity"].shape).astype(np.float32)
    rows = tables["entity"] + noise
    h, t = rows[rng.integers(len(rows), size=25)], rows[rng.integers(len(rows), size=25)]
    model = RelationModel(planted.settings(name), tables["relation"])
    ids = np.arange(planted.KINDS)
    kind = MODELS[name].of_rows(planted.settings(name), rows, tables["relation"])
    found, places = model.best(h, t), model.ranks(h, t, np.full(25, 2))
    for pair in range(25):
        both = np.stack([h[pair], t[pair]])
        one = MODELS[name].of_rows(planted.settings(name), both, tables["relation"])
        scores = one.scores_of(np.zeros_like(ids), ids, np.ones_like(ids))
        assert scores[found.relations[pair]] == pytest.approx(scores.max(), abs=1e-4)
        assert found.confidence[pair] == pytest.approx(scores.max(), abs=1e-4)
        assert abs(places[pair] - (1 + (scores > scores[2]).sum())) <= 1
    top = model.top_triples(rows[:6], rows[:30], 17)
    heads, tails = np.divmod(np.arange(180), 30)
    every = np.concatenate([kind.scores_of(heads, np.full(180, r), tails) for r in ids])
    scored = kind.scores_of(top.heads, top.relations, top.tails)
    np.testing.assert_allclose(scored, np.sort(every)[::-1][:17], rtol=1e-3, atol=1e-3)
