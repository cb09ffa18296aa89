"""The counted table lists a union exactly, and says so when it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.crypto.kernels import multiply
from fedkge.crypto.rings import FIELD61
from fedkge.crypto.union.pseudonyms import Pseudonyms, pseudonyms_under
from fedkge.crypto.union.table import TableShape, TableTooSmallError, fill_table, list_table
from fedkge.errors import SettingError
from tests.crypto.parties import stream

P = FIELD61.modulus


def union_of(held: list[set[str]], expected: int, seed: object) -> Pseudonyms:
    """The tables of all clients, summed in the field, peeled, and doubled until they peel."""
    entropy = stream("table", seed)
    while True:
        shape = TableShape.expecting(expected, entropy(16))
        total = np.zeros(shape.num_words, dtype=np.uint64)
        for names in held:
            FIELD61.add(
                total, fill_table(shape, pseudonyms_under(b"k" * 32, sorted(names)), _entropy=entropy)
            )
        FIELD61.settle(total)
        try:
            return list_table(shape, total)
        except TableTooSmallError:
            expected *= 2


def test_the_listing_equals_the_set_union_in_a_thousand_cases() -> None:
    rng = np.random.default_rng(0)
    for case in range(1000):
        pool = [f"/m/{i}" for i in range(int(rng.integers(1, 200)))]
        held = [{name for name in pool if rng.random() < 0.5} for _ in range(int(rng.integers(3, 6)))]
        united = sorted(set().union(*held))
        found = union_of(held, max(len(united) // int(rng.integers(1, 5)), 1), case)
        wanted = pseudonyms_under(b"k" * 32, united).distinct()
        assert np.array_equal(found.high, wanted.high)
        assert np.array_equal(found.low, wanted.low)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.integers(0, P), st.integers(0, P))
def test_products_are_whole_numbers_mod_p(left: int, right: int) -> None:
    assert int(multiply(np.uint64(left), np.uint64(right))) == left * right % P


@pytest.mark.parametrize("left", [0, 1, 2, P - 2, P - 1, P])
@pytest.mark.parametrize("right", [0, 1, (1 << 31) - 1, 1 << 31, P - 1, P])
def test_products_at_the_borders(left: int, right: int) -> None:
    assert int(multiply(np.uint64(left), np.uint64(right))) == left * right % P


def test_what_a_client_shows_is_reduced() -> None:
    shape = TableShape.expecting(100, bytes(16))
    table = fill_table(
        shape, pseudonyms_under(b"k" * 32, map(str, range(100))), _entropy=lambda n: b"\xff" * n
    )
    assert table.max() < P  # blinds of 2^61 − 1 are zero and add nothing
    assert not table.any()


def test_a_crowded_table_is_reported() -> None:
    shape = TableShape.expecting(50, bytes(16))
    items = pseudonyms_under(b"k" * 32, map(str, range(500)))
    with pytest.raises(TableTooSmallError, match="twice the size"):
        list_table(shape, fill_table(shape, items, _entropy=stream(1)))


def test_any_false_word_in_the_sum_is_reported() -> None:
    shape = TableShape.expecting(40, bytes(16))
    total = fill_table(shape, pseudonyms_under(b"k" * 32, map(str, range(20))), _entropy=stream(2))
    for place in range(0, len(total), 7):
        false = total.copy()
        false[place] = (int(false[place]) + 1) % P
        with pytest.raises(TableTooSmallError, match="false"):
            list_table(shape, false)
    assert len(list_table(shape, total)) == 20


def test_peeling_leaves_the_sum_as_it_was() -> None:
    shape = TableShape.expecting(40, bytes(16))
    total = fill_table(shape, pseudonyms_under(b"k" * 32, map(str, range(20))), _entropy=stream(2))
    before = total.copy()
    list_table(shape, total)
    assert np.array_equal(total, before)


def test_an_empty_union_is_empty() -> None:
    shape = TableShape.expecting(0, bytes(16))
    assert len(list_table(shape, np.zeros(shape.num_words, dtype=np.uint64))) == 0


@pytest.mark.parametrize(("items", "cells", "positions"), [(0, 64, 4), (237, 404, 4), (15000, 20250, 3)])
def test_sizes_follow_the_stated_rule(items: int, cells: int, positions: int) -> None:
    shape = TableShape.expecting(items, bytes(16))
    assert (shape.num_cells, shape.num_positions) == (cells, positions)


@pytest.mark.parametrize(("cells", "positions"), [(60, 4), (65, 4), (100, 5), (100, 0), (1 << 32, 4)])
def test_impossible_shapes_are_refused(cells: int, positions: int) -> None:
    with pytest.raises(SettingError):
        TableShape(bytes(16), cells, positions)


def test_a_fifth_of_a_million_items_is_listed() -> None:
    items = Pseudonyms.of_digests(stream("many")(32 * 200_000))
    shape = TableShape.expecting(200_000, bytes(16))
    found = list_table(shape, fill_table(shape, items, _entropy=stream("blinds")))
    assert np.array_equal(found.high, items.distinct().high)


def test_pseudonyms_with_equal_high_parts_are_told_apart() -> None:
    listed = Pseudonyms(np.array([7, 3, 7, 7], dtype=np.uint64), np.array([2, 9, 1, 5], dtype=np.uint64))
    wanted = Pseudonyms(
        np.array([7, 7, 7, 7, 3, 8], dtype=np.uint64), np.array([5, 1, 2, 4, 9, 2], dtype=np.uint64)
    )
    assert listed.find(wanted).tolist() == [3, 2, 0, -1, 1, -1]
    assert len(Pseudonyms.concatenate([listed, listed]).distinct()) == 4
