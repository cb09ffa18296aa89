"""Fixed point: exact sums, the stated error, and no silent repair of bad values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedkge.crypto import FixedPoint
from fedkge.errors import RefusedError, SettingError


def test_a_hundred_clients_with_clip_eight_have_21_bits() -> None:
    assert FixedPoint(clip=8, num_clients=100).fraction_bits == 21
    assert FixedPoint(clip=8, num_clients=100).error_bound == 2.0**-22


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    arrays(np.float64, (7, 5), elements=st.floats(-3.7, 3.7)),
    st.integers(1, 7),
)
def test_a_mean_over_holders_is_within_the_bound(values: np.ndarray, holders: int) -> None:
    point = FixedPoint(clip=3.7, num_clients=7)
    total = np.zeros(5, dtype=np.uint32)
    for row in values[:holders]:
        total += point.encode(row).words
    mean = point.decode(total) / holders
    assert np.abs(mean - values[:holders].mean(axis=0)).max() <= point.error_bound * (1 + 1e-9)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.floats(1e-3, 1e6), st.integers(1, 1000))
def test_all_clients_at_the_clip_do_not_wrap(clip: float, num_clients: int) -> None:
    point = FixedPoint(clip, num_clients)
    for extreme in (clip, -clip):
        word = point.encode(np.array([extreme])).words.view(np.int32).astype(np.int64)
        assert abs(int(word[0])) * num_clients < 2**31


def test_the_bound_is_tight_and_the_next_bit_would_overflow() -> None:
    point = FixedPoint(clip=8, num_clients=100)
    assert 100 * 8 * 2 ** (point.fraction_bits + 1) >= 2**31
    half = 2.0 ** -(point.fraction_bits + 1)
    assert abs(point.decode(point.encode(np.array([half])).words)[0] - half) == point.error_bound


def test_zero_is_exactly_zero() -> None:
    assert not FixedPoint(8, 5).encode(np.zeros((3, 4), dtype=np.float32)).words.any()


def test_values_beyond_the_clip_are_clipped_and_counted() -> None:
    encoded = FixedPoint(clip=2, num_clients=3).encode(np.array([-5.0, -2.0, 0.5, 2.0, 2.1]))
    assert FixedPoint(2, 3).decode(encoded.words).tolist() == [-2.0, -2.0, 0.5, 2.0, 2.0]
    assert encoded.num_clipped == 2
    assert encoded.clip_rate == pytest.approx(0.4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(RefusedError, match="1 of 3 values are NaN or infinite"):
        FixedPoint(8, 5).encode(np.array([1.0, bad, 2.0]))


@pytest.mark.parametrize(("clip", "num_clients"), [(0, 5), (-1, 5), (np.nan, 5), (1e9, 5), (8, 0)])
def test_settings_without_an_encoding_are_refused(clip: float, num_clients: int) -> None:
    with pytest.raises(SettingError):
        FixedPoint(clip, num_clients)


def test_float32_and_float64_encode_alike() -> None:
    values = np.random.default_rng(0).normal(0, 3, 1000).astype(np.float32)
    point = FixedPoint(8, 5)
    assert np.array_equal(point.encode(values).words, point.encode(values.astype(np.float64)).words)


def test_memory_can_be_used_again_if_it_fits() -> None:
    point, memory = FixedPoint(8, 5), np.zeros(3, dtype=np.uint32)
    encoded = point.encode(np.array([1.0, -1.0, 0.5]), out=memory)
    assert encoded.words is memory
    assert point.decode(memory).tolist() == [1.0, -1.0, 0.5]
    with pytest.raises(SettingError, match="4 values do not fit into 3 words"):
        point.encode(np.zeros(4), out=memory)


def test_a_sum_over_its_holders_is_rounded_as_if_divided_afterwards() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, (1000, 3), dtype=np.uint32)
    holders = rng.integers(1, 50, (1000, 1))
    point = FixedPoint(8, 50)
    assert np.array_equal(point.decode(words, divisor=holders), point.decode(words) / holders)
