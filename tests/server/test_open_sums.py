"""Open means against a dict of lists, in any order of arrival."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.crypto.union.listing import NameListing
from fedkge.errors import MessageError
from fedkge.exchange import Table
from fedkge.server.sums.open import mean_step

ROWS, WIDTH = 8, 3


@st.composite
def uploads(draw: st.DrawFn) -> tuple[dict[int, Table], dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Steps of some of the rows that each client holds, in any order, and what each row counts."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    sent, rows, weights = {}, {}, {}
    for client in draw(st.permutations(range(draw(st.integers(1, 5))))):
        rows[client] = rng.permutation(ROWS)[: rng.integers(0, ROWS + 1)]
        weights[client] = rng.integers(1, 50, len(rows[client])).astype(np.float64)
        ids = rows[client][rng.random(len(rows[client])) < 0.7].astype(np.int32)
        sent[client] = Table(ids, rng.normal(size=(len(ids), WIDTH)))
    return sent, rows, weights


@given(uploads())
def test_the_mean_is_over_the_clients_that_hold_the_row(
    given: tuple[dict[int, Table], dict[int, np.ndarray], dict[int, np.ndarray]],
) -> None:
    sent, rows, weights = given
    held: dict[int, list[tuple[float, np.ndarray]]] = {}
    for client in sorted(sent):
        steps = dict(zip(sent[client].ids.tolist(), sent[client].rows.astype(np.float64), strict=True))
        for row, weight in zip(rows[client].tolist(), weights[client], strict=True):
            held.setdefault(row, []).append((weight, steps.get(row, np.zeros(WIDTH))))  # not sent: not moved
    means = mean_step(ROWS, WIDTH, sent, rows, weights)
    for row in range(ROWS):
        parts = held.get(row, [(1.0, np.zeros(WIDTH))])
        expected = sum(weight * step for weight, step in parts) / sum(weight for weight, _ in parts)
        np.testing.assert_array_equal(means[row], expected)


@given(uploads())
def test_the_order_of_arrival_does_not_matter(
    given: tuple[dict[int, Table], dict[int, np.ndarray], dict[int, np.ndarray]],
) -> None:
    sent, rows, weights = given
    backwards = dict(reversed(sent.items()))
    first, second = (mean_step(ROWS, WIDTH, order, rows, weights) for order in (sent, backwards))
    assert first.tobytes() == second.tobytes()


def test_rows_that_a_client_does_not_hold_are_refused() -> None:
    sent = {0: Table(np.arange(2), np.ones((2, WIDTH)))}
    with pytest.raises(MessageError, match="client 0 sent rows that it does not hold"):
        mean_step(ROWS, WIDTH, sent, {0: np.array([1])}, {0: np.ones(1)})


@given(st.dictionaries(st.integers(0, 5), st.lists(st.text(max_size=3), unique=True), min_size=1))
def test_the_union_gives_equal_labels_equal_rows(held: dict[int, list[str]]) -> None:
    listing = NameListing(()).append(label for labels in held.values() for label in labels)
    assert set(listing.names) == set().union(*held.values())
    for labels in held.values():
        assert [listing.names[row] for row in listing.rows(labels)] == labels
