"""The ε of Ghanvatkar and Wei (2021)."""

from __future__ import annotations

import pytest

from fedkge.client.privacy.accountant import Event, epsilon
from fedkge.simulations.studies.dkrl.epsilon import PRINTED, READINGS, epsilon_of_texts, printed_conversion


@pytest.fixture(scope="module")
def table():
    return epsilon_of_texts("quick").set_index(["sigma", "batch_divided"])


def test_dividing_by_entities_gives_what_is_printed(table):
    for sigma, printed in PRINTED.items():
        for reading in READINGS[:2]:
            assert table["theirs"][sigma, reading.name] == pytest.approx(printed, abs=0.016)


def test_dividing_by_triples_gives_a_tenth(table):
    right = READINGS[-1].name
    assert table["theirs"][1.0, right] == pytest.approx(0.673, abs=5e-4)
    assert table["theirs"][1.2, right] == pytest.approx(0.441, abs=5e-4)


def test_their_conversion_is_rdp_at_whole_orders(table):
    """Opacus' curve is the oracle of equation 1; more orders can only be tighter."""
    for event in (Event(1.0, 3e-4, 50_000), Event(1.2, 4e-3, 50_000), Event(2.0, 0.01, 1000)):
        theirs, ours = printed_conversion(event, 1e-5), epsilon([event], 1e-5, "rdp")
        assert ours <= theirs + 1e-9
        assert theirs == pytest.approx(ours, rel=0.02)


def test_the_proven_bounds_lie_below(table):
    assert (table["prv"] <= table["rdp"]).all()
    assert (table["rdp"] <= table["theirs"] + 1e-3).all()
