"""Shamir's shares against the textbook, and what fewer than t of them show."""

from __future__ import annotations

import itertools
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedkge.crypto.shares import DRAW_SIZE, PRIME, combine_shares, deal_shares
from fedkge.errors import SettingError, TamperError
from tests.crypto.parties import stream


def textbook_shares(secrets: list[bytes], threshold: int, num_parties: int, drawn: bytes) -> list[list[int]]:
    """One polynomial at a time, one power at a time, every step reduced."""
    numbers = [int.from_bytes(drawn[i : i + DRAW_SIZE], "little") for i in range(0, len(drawn), DRAW_SIZE)]
    shares = []
    for x in range(1, num_parties + 1):
        row = []
        for s, secret in enumerate(secrets):
            value = int.from_bytes(secret, "little")
            for j in range(threshold - 1):
                value += numbers[j * len(secrets) + s] * pow(x, threshold - 1 - j, PRIME)
            row.append(value % PRIME)
        shares.append(row)
    return shares


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 100), st.data())
def test_dealing_is_the_textbook_s(num_parties: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, num_parties))
    secrets = data.draw(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=3))
    drawn = stream(num_parties, threshold)(DRAW_SIZE * len(secrets) * (threshold - 1))
    dealt = deal_shares(secrets, threshold, num_parties, _entropy=lambda size: drawn[:size])
    assert dealt == textbook_shares(secrets, threshold, num_parties, drawn)


def test_the_largest_coefficients_do_not_spill_into_the_next_lane() -> None:
    secrets = [b"\xff" * 32, b"\0" * 32, b"\xff" * 32]
    top = (PRIME - 1).to_bytes(DRAW_SIZE, "little")
    dealt = deal_shares(secrets, 100, 100, _entropy=lambda size: top * (size // DRAW_SIZE))
    assert dealt == textbook_shares(secrets, 100, 100, top * 3 * 99)


def test_every_quorum_rebuilds_the_secret() -> None:
    secret = stream("secret")(32)
    dealt = deal_shares([secret], 3, 5, _entropy=stream("dealer"))
    for quorum in itertools.permutations(range(5), 3):
        assert combine_shares({party: dealt[party][0] for party in quorum}) == secret


def test_fewer_than_the_threshold_rebuild_something_else() -> None:
    secret = bytes(32)
    dealt = deal_shares([secret], 3, 5, _entropy=stream("dealer"))
    for pair in itertools.combinations(range(5), 2):
        with suppress(TamperError):
            assert combine_shares({party: dealt[party][0] for party in pair}) != secret


def low_bytes(threshold: int, seen: int, secret: bytes) -> np.ndarray:
    """How often each value occurs in the low 32 bytes of `seen` shares, over many dealings."""
    entropy = stream("uniform", threshold, secret)
    counts = np.zeros(256, dtype=np.int64)
    for _ in range(400):
        for row in deal_shares([secret], threshold, 5, _entropy=entropy)[:seen]:
            low = (row[0] & ((1 << 256) - 1)).to_bytes(32, "little")
            counts += np.bincount(np.frombuffer(low, np.uint8), minlength=256)
    return counts


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_fewer_than_the_threshold_look_uniform(secret: bytes) -> None:
    assert chisquare(low_bytes(3, 2, secret)).pvalue > 1e-3
    assert (
        chisquare(low_bytes(1, 2, secret)).pvalue < 1e-12
    )  # the test can tell: with t = 1 shares are the secret


def test_two_shares_fit_every_secret_equally() -> None:
    """For any secret there is exactly one third share that turns two given ones into it."""
    dealt = deal_shares([b"s" * 32], 3, 3, _entropy=stream("fit"))
    for wanted in (bytes(32), b"\x01" * 32, b"\xff" * 32):
        third = third_share(dealt[0][0], dealt[1][0], int.from_bytes(wanted, "little"))
        assert combine_shares({0: dealt[0][0], 1: dealt[1][0], 2: third}) == wanted


def third_share(first: int, second: int, secret: int) -> int:
    # f(0) = 3 f(1) − 3 f(2) + f(3) for a parabola
    return (secret - 3 * first + 3 * second) % PRIME


@pytest.mark.parametrize(("threshold", "num_parties"), [(0, 3), (4, 3)])
def test_a_threshold_outside_the_parties_is_refused(threshold: int, num_parties: int) -> None:
    with pytest.raises(SettingError, match="threshold"):
        deal_shares([bytes(32)], threshold, num_parties)


def test_a_secret_of_another_size_is_refused() -> None:
    with pytest.raises(SettingError, match="32 bytes"):
        deal_shares([bytes(31)], 2, 3)
