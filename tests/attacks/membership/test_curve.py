"""ROC figures against slow, obvious counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.attacks.membership.clusters import entity_intervals
from fedkge.attacks.membership.curve import RATES, Curve
from fedkge.attacks.membership.guesses import Guess, decision_figures
from fedkge.attacks.membership.plots import plot_curves
from fedkge.errors import DataError


def naive_auc(certainty, member):
    pairs = [(a > b) + 0.5 * (a == b) for a in certainty[member] for b in certainty[~member]]
    return sum(pairs) / len(pairs)


def naive_tpr(certainty, member, rate):
    """Try every bar, and one above all."""
    found = 0.0
    for bar in [*certainty.tolist(), np.inf]:
        alarms = sum(certainty[~member] >= bar)
        if alarms <= rate * (~member).sum():
            found = max(found, sum(certainty[member] >= bar) / member.sum())
    return found


@st.composite
def answers(draw):
    size = draw(st.integers(2, 60))
    certainty = draw(st.lists(st.integers(-9, 9), min_size=size, max_size=size))  # few values: many ties
    member = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    member[:2] = [True, False]
    return np.array(certainty, dtype=np.float64), member


@settings(max_examples=200, deadline=None)
@given(answers(), st.sampled_from([0.0, 0.001, 0.01, 0.1, 0.25, 1 / 3, 0.5, 1.0]))
def test_area_and_rates_are_those_of_counting(given_answers, rate):
    certainty, member = given_answers
    curve = Curve.of(certainty, member)
    assert curve.auc == pytest.approx(naive_auc(certainty, member), abs=1e-12)
    assert curve.tpr_at(rate) == pytest.approx(naive_tpr(certainty, member, rate), abs=1e-12)


def test_planted_separation_is_found_exactly():
    member = np.arange(3000) < 1000
    certainty = np.where(np.arange(3000) < 900, 2.0, 0.0)  # 900 of the members stand out
    figures = Curve.of(certainty, member).figures(np.random.default_rng(0))
    assert figures["auc"][0] == pytest.approx(0.95)
    assert figures["tpr@1.0%"][0] == figures["tpr@0.1%"][0] == pytest.approx(0.9)


def test_random_certainty_is_at_chance_and_intervals_say_so():
    inside = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        figures = Curve.of(rng.normal(size=2000), rng.random(2000) < 0.4).figures(rng)
        inside += figures["auc"][1][0] <= 0.5 <= figures["auc"][1][1]
        assert abs(figures["auc"][0] - 0.5) < 0.05
        assert figures["tpr@1.0%"][0] < 0.04
    assert inside >= 17  # 95 % of twenty, less two deviations


def test_intervals_cover_the_true_area():
    """Two normals one deviation apart have an area of Φ(1/√2) = 0.7602."""
    covered = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        member = np.arange(600) < 300
        low, high = Curve.of(rng.normal(size=600) + member, member).figures(rng)["auc"][1]
        covered += low <= 0.7602 <= high
    assert covered >= 34


def test_entity_intervals_cover_chance_where_rows_alone_decide():
    """Scores that entities decide, and no membership: redrawing triples is too sure, entities is not."""
    inside = {"triples": 0, "entities": 0}
    for seed in range(30):
        rng = np.random.default_rng(seed)
        ends = rng.integers(0, 25, (600, 2))
        certainty = rng.normal(size=25)[ends].sum(axis=1)
        member = rng.normal(size=25)[ends].sum(axis=1) > 0  # some entities have many members, others few
        guess = Guess(certainty, certainty > certainty.mean())
        intervals = {
            "triples": Curve.of(certainty, member).figures(rng)["auc"][1],
            "entities": entity_intervals(guess, member, ends, rng)["auc"],
        }
        for name, (low, high) in intervals.items():
            inside[name] += low <= 0.5 <= high
    assert inside["triples"] < 15
    assert inside["entities"] >= 24


def test_equal_entity_weights_give_the_curves_own_figures(monkeypatch):
    rng = np.random.default_rng(0)
    certainty, member = rng.integers(0, 9, 200).astype(float), rng.random(200) < 0.4

    class Equal:
        def exponential(self, size):
            return np.ones(size)

    guess = Guess(certainty, certainty > 4)
    found = entity_intervals(guess, member, rng.integers(0, 30, (200, 2)), Equal())
    curve = Curve.of(certainty, member)
    assert found["auc"] == pytest.approx((curve.auc, curve.auc))
    assert found["tpr@1.0%"] == pytest.approx((curve.tpr_at(0.01),) * 2)
    for name, (value, _) in decision_figures(guess.member, member).items():
        assert found[name] == pytest.approx((value, value))


def test_rates_follow_the_standard_definition():
    assert RATES == (0.01, 0.001)


@pytest.mark.parametrize("member", [np.ones(3, dtype=bool), np.zeros(3, dtype=bool)])
def test_one_class_alone_has_no_curve(member):
    with pytest.raises(DataError, match="members and non-members"):
        Curve.of(np.arange(3.0), member)


def test_broken_certainty_is_refused():
    with pytest.raises(DataError, match="finite"):
        Curve.of(np.array([1.0, np.nan]), np.array([True, False]))


def test_decisions_on_equal_classes_are_the_plain_ones():
    member = np.array([True] * 4 + [False] * 4)
    guess = np.array([True, True, True, False, True, False, False, False])
    figures = {name: value for name, (value, _) in decision_figures(guess, member).items()}
    assert figures == pytest.approx({"accuracy": 6 / 8, "precision": 3 / 4, "recall": 3 / 4, "f1": 3 / 4})


def test_decisions_on_unequal_classes_are_those_of_repeated_ones():
    rng = np.random.default_rng(1)
    member = np.array([True] * 30 + [False] * 10)
    guess = rng.random(40) < np.where(member, 0.8, 0.3)
    repeated = np.concatenate([np.arange(30), np.tile(np.arange(30, 40), 3)])
    plain = decision_figures(guess[repeated], member[repeated])
    for name, (value, _) in decision_figures(guess, member).items():
        assert value == pytest.approx(plain[name][0])


def test_saying_no_to_all_has_no_precision():
    figures = decision_figures(np.zeros(4, dtype=bool), np.array([True, True, False, False]))
    assert figures["accuracy"][0] == 0.5
    assert np.isnan(figures["precision"][0])


def test_curves_are_drawn(tmp_path):
    rng = np.random.default_rng(0)
    member = rng.random(500) < 0.5
    curves = {
        "good": Curve.of(rng.normal(size=500) + member, member),
        "bad": Curve.of(rng.random(500), member),
    }
    plot_curves(curves, tmp_path / "roc.png", "two attacks")
    assert (tmp_path / "roc.png").read_bytes().startswith(b"\x89PNG")
