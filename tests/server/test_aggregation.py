"""Aggregation against a dict of lists, in any order of arrival."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.errors import MessageError
from fedkge.exchange import Table, Upload
from fedkge.server.aggregation import mean_over_holders
from fedkge.server.union import PlainUnion


@st.composite
def uploads(draw: st.DrawFn) -> list[Upload]:
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    made = []
    for client in range(draw(st.integers(1, 5))):
        ids = rng.permutation(8)[: rng.integers(0, 9)].astype(np.int32)
        table = Table(ids, rng.normal(size=(len(ids), 3)), weights=rng.integers(1, 50, len(ids)))
        made.append(Upload(1, client, {"entity": table}))
    return draw(st.permutations(made))


@given(uploads(), st.booleans())
def test_the_mean_is_over_the_clients_that_hold_the_row(sent: list[Upload], weighted: bool) -> None:
    merged = mean_over_holders(sent, "entity", weighted)
    assert merged is not None
    held: dict[int, list[tuple[float, np.ndarray]]] = {}
    for upload in sorted(sent, key=lambda u: u.client):
        table = upload.tables["entity"]
        assert table.weights is not None
        for row, vector, weight in zip(table.ids.tolist(), table.rows, table.weights, strict=True):
            held.setdefault(row, []).append((float(weight) if weighted else 1.0, vector.astype(np.float64)))
    assert merged.ids.tolist() == sorted(held)
    assert merged.holders is not None
    for place, row in enumerate(merged.ids.tolist()):
        weights = [weight for weight, _ in held[row]]
        expected = sum(weight * vector for weight, vector in held[row]) / sum(weights)
        np.testing.assert_array_equal(merged.rows[place], np.asarray(expected, dtype=np.float32))
        assert merged.holders[place] == len(held[row])


@given(uploads())
def test_the_order_of_arrival_does_not_matter(sent: list[Upload]) -> None:
    first, second = (mean_over_holders(order, "entity") for order in (sent, sent[::-1]))
    assert first is not None
    assert second is not None
    assert first.rows.tobytes() == second.rows.tobytes()


def test_a_table_that_nobody_sent_is_none() -> None:
    assert mean_over_holders([Upload(1, 0)], "entity") is None


def test_rows_of_different_widths_are_refused() -> None:
    sent = [Upload(1, c, {"entity": Table(np.arange(1), np.ones((1, 2 + c)))}) for c in range(2)]
    with pytest.raises(MessageError, match=r"model\.dim"):
        mean_over_holders(sent, "entity")


@given(st.dictionaries(st.integers(0, 5), st.lists(st.text(max_size=3), unique=True), min_size=1))
def test_the_union_gives_equal_labels_equal_rows(held: dict[int, list[str]]) -> None:
    union = PlainUnion.of(held)
    assert set(union.labels) == set().union(*held.values())
    for client, labels in held.items():
        assert [union.labels[row] for row in union.rows[client]] == labels
