"""SummedScalars: exact sums of losses, counts and scores in words of 16 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.errors import MessageError, RefusedError
from fedkge.metrics import RANKING, TRAINING, MetricSums, SummedScalars


@given(st.lists(st.floats(0, 2.0**30), min_size=1, max_size=50))
def test_a_sum_is_exact_to_the_scale_in_any_order(values: list[float]) -> None:
    scalars = SummedScalars({"a": 2**24, "b": 1})
    words = [scalars.encode({"a": value, "b": 2**64 - 1}) for value in values]
    total = scalars.decode(sum(words, start=np.zeros(8, dtype=np.uint32)))
    assert total["a"] == sum(round(value * 2**24) for value in values) / 2**24
    assert total["b"] == float(len(values) * (2**64 - 1))


def test_words_leave_room_for_many_clients() -> None:
    words = TRAINING.encode(dict.fromkeys(TRAINING.scales, 12345.678))
    assert words.dtype == np.uint32
    assert words.max() < 2**16


def test_scores_of_large_graphs_fit() -> None:
    n, rank = 10**6, 10**6
    sums = MetricSums(
        n,
        n,
        {"mrr": n, "mr": n * rank, "hits@1": n, "hits@3": n, "hits@10": n},
        {"mrr": n, "mr": float(n) * rank**2, "hits@1": n, "hits@3": n, "hits@10": n},
    )
    values = sums.scalars(seconds=1e5)
    assert RANKING.decode(RANKING.encode(values)) == values
    assert MetricSums.from_scalars(values) == sums


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e30])
def test_what_cannot_be_summed_is_refused(value: float) -> None:
    with pytest.raises(RefusedError, match="scalar 'a' is"):
        SummedScalars({"a": 1}).encode({"a": value})


def test_words_of_another_length_are_refused() -> None:
    with pytest.raises(MessageError, match="3 words"):
        RANKING.decode(np.zeros(3, dtype=np.uint32))
