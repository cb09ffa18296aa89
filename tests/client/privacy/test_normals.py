"""The keystream: unpredictable without its key, normal, independent; and Poisson samples of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedkge.client.privacy.normals import Keystream, derived, poisson_sample
from fedkge.errors import SettingError


def drawn(count: int, key: bytes = bytes(32)) -> np.ndarray:
    numbers = np.zeros(count, dtype=np.float32)
    Keystream(key).add_normals(numbers, 1.0)
    return numbers.astype(np.float64)


def test_normals_have_the_moments_and_the_tails_of_a_normal_distribution() -> None:
    x = drawn(2_000_000)
    for power, expected, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - expected) < 5 * np.sqrt(spread / x.size)
    assert stats.kstest(x[:200_000], "norm").pvalue > 1e-3
    for limit in (3.0, 4.0):
        expected = 2 * stats.norm.sf(limit) * x.size
        assert abs((np.abs(x) > limit).sum() - expected) < 5 * np.sqrt(expected)


@pytest.mark.parametrize("lag", [1, 2, 64, 128, 16_384, 32_768])
def test_normals_are_independent(lag: int) -> None:
    """Both halves of a block come from the same words, half a block apart."""
    x = drawn(500_000)
    for f in (np.asarray, np.square, np.abs):
        a, b = f(x[:-lag]), f(x[lag:])
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(a.size)


def test_they_are_what_box_and_muller_make_of_the_words() -> None:
    key = derived(bytes(32), "test")
    found = np.zeros(1001, dtype=np.float32)
    Keystream(key).add_normals(found, 2.0)
    words = np.frombuffer(Keystream(key)._cipher.update(bytes(8 * 501)), dtype="<u4").astype(np.int64)
    radius = np.sqrt(-2 * np.log(((words[:501] >> 1) + 0.5) / 2**31))
    angle = 2 * np.pi * words[501:] / 2**32
    expected = 2 * np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:1001]
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_noise_is_added_to_what_is_there() -> None:
    base = np.arange(10, dtype=np.float32)
    out = base.copy()
    Keystream(bytes(32)).add_normals(out, 0.5)
    np.testing.assert_allclose(out - base, 0.5 * drawn(10), atol=1e-5)


@pytest.mark.parametrize(("count", "width"), [(1, 3), (2, 4), (7, 5), (300, 128), (3, 40_000)])
def test_rows_get_noise_of_their_own_deviation(count: int, width: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.permutation(2 * count)[:count].astype(np.int32)
    deviations = rng.uniform(0.5, 2, count).astype(np.float32)
    table = np.zeros((2 * count, width), dtype=np.float32)
    Keystream(bytes(32)).add_to_rows(table, rows, deviations)
    assert not np.delete(table, rows, axis=0).any()
    x = (table[rows] / deviations[:, None]).ravel().astype(np.float64)
    assert x.all()
    assert len(np.unique(x)) > 0.99 * x.size
    if x.size > 1000:
        assert abs(x.var() - 1) < 5 * np.sqrt(2 / x.size)
        assert abs(x.mean()) < 5 / np.sqrt(x.size)
    if width > 100 and count > 1:
        across = np.corrcoef(table[rows[0]], table[rows[-1]])[0, 1]
        assert abs(across) < 5 / np.sqrt(width)


def test_a_long_stream_changes_its_key_and_does_not_repeat() -> None:
    stream = Keystream(bytes(32), bytes_per_key=1024)
    numbers = np.zeros((40, 100), dtype=np.float32)
    for row in numbers:
        stream.add_normals(row, 1.0)
    assert len(np.unique(numbers)) == numbers.size
    assert abs(numbers.std() - 1) < 5 / np.sqrt(2 * numbers.size)


def test_another_key_or_purpose_gives_another_stream() -> None:
    keys = [bytes(32), derived(bytes(32), "a"), derived(bytes(32), "b"), derived(bytes(32), "a", "b")]
    keys.append(derived(bytes(32), "ab"))
    assert len({drawn(4, key).tobytes() for key in keys}) == len(keys)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(SettingError, match="32 bytes, not 16"):
        derived(bytes(16), "noise")


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.7])
def test_poisson_samples_take_every_place_alike_and_apart(rate: float) -> None:
    stream, count, trials = Keystream(bytes(32)), 60, 20_000
    taken = np.zeros((trials, count))
    for row in taken:
        row[poisson_sample(stream, count, rate)] = 1
    spread = np.sqrt(rate * (1 - rate) / trials)
    assert np.abs(taken.mean(axis=0) - rate).max() < 5 * spread
    sizes = taken.sum(axis=1)
    variance = count * rate * (1 - rate)
    kurtosis = 3 + (1 - 6 * rate * (1 - rate)) / variance
    assert abs(sizes.var() - variance) < 5 * variance * np.sqrt((kurtosis - 1) / trials)
    neighbours = ((taken[:, 1:] - rate) * (taken[:, :-1] - rate)).mean()
    assert abs(neighbours) < 5 * rate * (1 - rate) / np.sqrt(trials * (count - 1))


def test_poisson_samples_are_sorted_and_within_bounds() -> None:
    stream = Keystream(bytes(32))
    for count in (0, 1, 5, 1000):
        for rate in (1e-9, 0.5, 1.0):
            places = poisson_sample(stream, count, rate)
            assert (np.diff(places) > 0).all()
            assert places.size == 0 or (places[0] >= 0 and places[-1] < count)
    np.testing.assert_array_equal(poisson_sample(stream, 7, 1.0), np.arange(7))
