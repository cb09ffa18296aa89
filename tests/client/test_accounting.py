"""The cost of private training, against the binomial formula and the exact Gaussian curve."""

from __future__ import annotations

import subprocess
import sys
from math import comb, exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from fedkge.client.privacy.accountant import (
    ACCOUNTANTS,
    Accountant,
    Event,
    PrivacyLedger,
    PureEvent,
    epsilon,
    sigma_for,
    steps_within,
)
from fedkge.errors import DataError, SettingError, UnknownNameError

BOTH: tuple[Accountant, ...] = ("prv", "rdp")
EVENTS = st.builds(
    Event,
    sigma=st.floats(0.6, 20),
    rate=st.floats(1e-3, 0.2),
    steps=st.integers(1, 300),
)


def binomial_rdp(sigma: float, rate: float, order: int) -> float:
    """Rényi divergence of the sampled Gaussian at a whole order, term by term (Mironov et al., 2019)."""
    terms = [
        log(comb(order, k)) + (order - k) * log(1 - rate) + k * log(rate) + k * (k - 1) / (2 * sigma**2)
        for k in range(order + 1)
    ]
    return float(np.logaddexp.reduce(terms)) / (order - 1)


def gaussian_epsilon(sigma: float, delta: float) -> float:
    """The exact ε of one Gaussian release (Balle and Wang, 2018)."""

    def excess(eps: float) -> float:
        return norm.cdf(0.5 / sigma - eps * sigma) - exp(eps) * norm.cdf(-0.5 / sigma - eps * sigma) - delta

    return brentq(excess, 0, 200)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_nothing_done_costs_nothing(accountant):
    assert epsilon([], 1e-5, accountant) == 0
    assert epsilon([Event(1.0, 0.01, 0)], 1e-5, accountant) == 0


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(0.8, 0.01, 400), (1.0, 0.05, 50), (3.0, 0.2, 200)])
def test_classic_and_rdp_follow_the_binomial_formula(sigma, rate, steps):
    delta, orders = 1e-5, range(2, 64)
    curve = {order: steps * binomial_rdp(sigma, rate, order) for order in orders}
    classic = min(rdp + log(1 / delta) / (order - 1) for order, rdp in curve.items())
    tighter = min(
        rdp + log((order - 1) / order) - (log(delta) + log(order)) / (order - 1)
        for order, rdp in curve.items()
    )
    events = [Event(sigma, rate, steps)]
    # Fractional orders can only help, and between whole ones they help little.
    assert 0.98 * classic < epsilon(events, delta, "classic") <= classic * (1 + 1e-9)
    assert 0.98 * tighter < epsilon(events, delta, "rdp") <= tighter * (1 + 1e-9)


@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 1), (5.0, 10), (20.0, 400)])
def test_prv_meets_the_exact_curve_where_every_triple_is_in_every_step(sigma, steps):
    exact = gaussian_epsilon(sigma / sqrt(steps), 1e-5)
    assert exact <= epsilon([Event(sigma, 1.0, steps)], 1e-5) <= exact + 0.021


def test_the_bounds_stand_in_their_order():
    events = [Event(1.0, 0.01, 1000)]
    prv, rdp, classic = (epsilon(events, 1e-5, name) for name in ("prv", "rdp", "classic"))
    assert prv < rdp < classic


@settings(max_examples=8, deadline=None)
@given(first=EVENTS, second=EVENTS)
def test_more_steps_never_cost_less_and_their_order_costs_nothing(first, second):
    for accountant in BOTH:
        alone, both = (epsilon(events, 1e-5, accountant) for events in ([first], [first, second]))
        assert both >= alone - 0.02  # the mesh of PRV
        assert epsilon([second, first], 1e-5, accountant) == both


@settings(max_examples=8, deadline=None)
@given(event=EVENTS)
def test_more_noise_and_a_larger_delta_cost_less(event):
    quieter = Event(2 * event.sigma, event.rate, event.steps)
    for accountant in BOTH:
        here = epsilon([event], 1e-5, accountant)
        assert epsilon([quieter], 1e-5, accountant) <= here + 0.02
        assert epsilon([event], 1e-4, accountant) <= here + 0.02


def test_splitting_an_event_changes_nothing():
    whole = [Event(1.0, 0.02, 300), Event(2.0, 0.05, 10)]
    parts = [Event(1.0, 0.02, 100), Event(2.0, 0.05, 10), Event(1.0, 0.02, 200)]
    for accountant in ACCOUNTANTS:
        assert epsilon(whole, 1e-6, accountant) == epsilon(parts, 1e-6, accountant)


@pytest.mark.parametrize("event", [Event(0.01, 0.5, 10**4), Event(1e5, 1e-6, 3), Event(1.0, 0.9, 10**9)])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.9])
def test_extremes_give_a_bound(event, delta):
    for accountant in ACCOUNTANTS:
        found = epsilon([event], delta, accountant)
        assert np.isfinite(found)
        assert found >= 0


def test_a_tiny_delta_falls_back_on_rdp():
    events = [Event(1.0, 0.01, 100)]
    assert epsilon(events, 1e-10, "prv") == epsilon(events, 1e-10, "rdp")


@pytest.mark.parametrize("spent", [(), (Event(1.3, 0.01, 50),), (Event(3.0, 0.05, 20), Event(1.0, 0.02, 9))])
@pytest.mark.parametrize("budget", [0.9, 2.0])
def test_steps_within_stops_at_the_budget(spent, budget):
    steps = steps_within(budget, 1e-5, spent, sigma=1.0, rate=0.02)
    assert steps > 0
    assert epsilon([*spent, Event(1.0, 0.02, steps)], 1e-5) <= budget
    beyond = Event(1.0, 0.02, steps + 1 + steps // 500)
    assert epsilon([*spent, beyond], 1e-5) > budget


def test_a_budget_that_is_spent_or_too_small_allows_no_step():
    spent = [Event(0.7, 0.05, 500)]
    assert steps_within(epsilon(spent, 1e-5) - 0.01, 1e-5, spent, 1.0, 0.05) == 0
    assert steps_within(1e-6, 1e-5, [], 1.0, 0.05) == 0
    assert steps_within(0.05, 1e-5, [], 1.0, 0.02) == 0


def test_a_budget_without_bound_allows_as_many_steps_as_there_are():
    assert steps_within(1e12, 1e-5, [], 1.0, 0.05) == 10**9


@pytest.mark.parametrize("target", [0.02, 1.0, 20.0])
def test_sigma_for_meets_the_target_closely(target):
    sigma = sigma_for(target, 1e-5, rate=0.01, steps=200)
    assert epsilon([Event(sigma, 0.01, 200)], 1e-5) <= target
    assert epsilon([Event(0.97 * sigma, 0.01, 200)], 1e-5) > target


def test_the_ledger_merges_like_steps_and_survives_a_file():
    ledger = PrivacyLedger()
    for event in (Event(1.0, 0.1, 2), Event(1.0, 0.1, 3), Event(0.7, 1 / 3, 1), Event(1.0, 0.1, 4)):
        ledger = ledger.add(event)
    assert ledger.events == (Event(1.0, 0.1, 5), Event(0.7, 1 / 3, 1), Event(1.0, 0.1, 4))
    assert ledger.steps == 10
    assert ledger.add(Event(9.0, 0.1, 0)) == ledger
    assert PrivacyLedger.from_json(ledger.to_json()) == ledger


@pytest.mark.parametrize("text", ["", "{}]", "[[1, 2]]", '[["a", 0.1, 2]]', "[[-1, 0.1, 2]]", "3"])
def test_a_damaged_ledger_is_refused(text):
    with pytest.raises(DataError, match="start the run anew"):
        PrivacyLedger.from_json(text)


@pytest.mark.parametrize(
    "bad", [(0.0, 0.1, 1), (-1.0, 0.1, 1), (float("nan"), 0.1, 1), (float("inf"), 0.1, 1)]
)
def test_noise_without_a_size_is_refused(bad):
    with pytest.raises(SettingError, match="sigma"):
        Event(*bad)


def test_releases_without_delta_add_up_beside_steps():
    steps, release = Event(2.0, 0.1, 50), PureEvent(1.5)
    alone = epsilon([steps], 1e-5)
    assert epsilon([release, release], 0.0) == 3.0
    for accountant in ("prv", "rdp"):
        both = epsilon([release, steps, release], 1e-5, accountant)
        assert both == pytest.approx(3 + epsilon([steps], 1e-5, accountant))
    ledger = PrivacyLedger().add(release).add(steps).add(steps).add(release)
    assert [event.steps for event in ledger.events] == [1, 100, 1]
    assert PrivacyLedger.from_json(ledger.to_json()) == ledger
    room = steps_within(2 * alone, 1e-5, [], 2.0, 0.1)
    assert steps_within(2 * alone + 1.5, 1e-5, [release], 2.0, 0.1) == room
    assert steps_within(1.5, 1e-5, [release], 2.0, 0.1) == 0
    for cost in (0.0, float("inf")):
        with pytest.raises(SettingError, match="a finite number above 0"):
            PureEvent(cost)


def test_other_nonsense_is_refused():
    for rate in (0.0, 1.5, float("nan")):
        with pytest.raises(SettingError, match="sampling rate"):
            Event(1.0, rate, 1)
    with pytest.raises(SettingError, match="steps"):
        Event(1.0, 0.1, -1)
    for delta in (0.0, 1.0, -1e-5):
        with pytest.raises(SettingError, match="delta"):
            epsilon([Event(1.0, 0.1, 1)], delta)
    with pytest.raises(UnknownNameError, match="prv"):
        epsilon([], 1e-5, "gdp")
    with pytest.raises(SettingError, match="above 0"):
        steps_within(0.0, 1e-5, [], 1.0, 0.1)
    with pytest.raises(SettingError, match="above 0"):
        sigma_for(-1.0, 1e-5, 0.1, 10)
    with pytest.raises(SettingError, match="at least 1"):
        sigma_for(1.0, 1e-5, 0.1, 0)
    with pytest.raises(SettingError, match="out of reach"):
        sigma_for(1e-9, 1e-5, 1.0, 10**6)


def test_importing_the_module_does_not_import_opacus():
    code = "import sys, fedkge.client.privacy.accountant; sys.exit('opacus' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
