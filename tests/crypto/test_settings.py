"""Rosters, thresholds and sessions that cannot be safe are refused before any key is made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedkge.crypto import FIELD61, Journal, Roster, SecureAggregationClient, Session, default_threshold
from fedkge.errors import SettingError
from tests.crypto.parties import identity, make_session, roster


@pytest.mark.parametrize(("n", "t"), [(3, 3), (4, 3), (5, 4), (10, 7), (50, 34), (100, 67)])
def test_the_default_threshold_is_two_thirds_and_one(n: int, t: int) -> None:
    assert default_threshold(n) == t
    assert make_session(n).threshold == t


@pytest.mark.parametrize("n", [0, 1, 2])
def test_fewer_than_three_clients_are_refused(n: int) -> None:
    with pytest.raises(SettingError, match="needs 3"):
        roster(n)


def test_duplicate_identities_are_refused_by_number() -> None:
    with pytest.raises(SettingError, match="clients 0 and 2 have the same identity"):
        Roster.of([identity(0).public, identity(1).public, identity(0).public])


def test_an_identity_of_another_size_is_refused() -> None:
    with pytest.raises(SettingError, match="client 1: an Ed25519 identity has 32 bytes"):
        Roster.of([identity(0).public, b"short", identity(2).public])


@pytest.mark.parametrize(("n", "t"), [(5, 6), (5, 2), (5, -1), (4, 2), (10, 5)])
def test_a_threshold_that_cannot_protect_or_be_met_is_refused(n: int, t: int) -> None:
    with pytest.raises(SettingError, match="threshold"):
        make_session(n, threshold=t)


def test_an_identity_that_is_not_pinned_is_refused() -> None:
    session = make_session(3)
    with pytest.raises(SettingError, match="pinned"):
        SecureAggregationClient(session, 1, identity(2), Journal())
    with pytest.raises(SettingError, match="pinned"):
        SecureAggregationClient(session, 3, identity(3), Journal())


def test_any_difference_in_what_was_agreed_is_another_session() -> None:
    base = make_session(5)
    others = [
        replace(base, run="other"),
        replace(base, round=2),
        replace(base, round=None),
        replace(base, purpose="holders"),
        replace(base, length=9),
        replace(base, ring=FIELD61),
        replace(base, threshold=5),
        replace(base, signed=True),
        replace(base, attempt=1),
        replace(base, context=b"another union"),
        make_session(6),
    ]
    assert len({session.id for session in [base, *others]}) == 12


def test_attempts_share_the_label_and_nothing_else_does() -> None:
    base = make_session(5)
    assert replace(base, attempt=1).label == base.label
    assert replace(base, round=2).label != base.label


@pytest.mark.parametrize("changes", [{"length": -1}, {"round": -1}, {"attempt": -1}])
def test_negative_counts_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(SettingError, match="count from 0"):
        Session(**{"roster": roster(3), "run": "run", "round": 0, "purpose": "p", "length": 1, **changes})  # type: ignore[arg-type]
