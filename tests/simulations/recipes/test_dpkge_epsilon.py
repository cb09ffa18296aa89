"""The ε of the DPKGE paper."""

from __future__ import annotations

import pytest

from fedkge.simulations.studies.dpkge.dpkge_epsilon import (
    epsilon_by_share,
    epsilon_over_epochs,
    epsilon_tables,
)
from fedkge.simulations.studies.dpkge.dpkge_paper import CLIP_STUDY, LINK_PREDICTION, METHODS, SIGMAS


@pytest.fixture(scope="module")
def tables():
    return epsilon_tables("quick")


def test_27_of_the_28_published_values_are_reproduced(tables):
    assert len(tables) == 28
    assert tables["reproduced"].sum() >= 27
    assert ((tables["published"] - tables["classic"]).abs() < 0.015).all()


def test_the_proven_bounds_lie_below_the_published_conversion(tables):
    assert (tables["rdp"] <= tables["classic"] + 0.01).all()
    settled = tables.dropna(subset="prv")
    assert set(settled["dataset"]) == {"FB15k-237"}
    assert (settled["prv"] <= settled["rdp"]).all()


def test_epsilon_grows_with_epochs_to_the_table():
    frame = epsilon_over_epochs("quick")
    for _, curve in frame.groupby(["dataset", "sigma", "method"]):
        assert curve["classic"].is_monotonic_increasing
        last = curve.iloc[-1]
        assert last["epoch"] == 100
        assert last["classic"] == pytest.approx(last["published"], abs=0.011)


def test_epsilon_falls_as_more_is_confidential():
    frame = epsilon_by_share("quick")
    assert frame["rdp"].is_monotonic_decreasing
    assert frame["classic"].iloc[-1] == pytest.approx(6.02, abs=0.011)


def test_the_clip_study_agrees_with_the_link_prediction_table():
    """The two tables of the paper print the same runs, rounded on their own."""
    for model, by_percentile in CLIP_STUDY.items():
        for sigma, score in zip(SIGMAS, by_percentile[20], strict=True):
            table = LINK_PREDICTION[model, "DPKGE", sigma]
            assert score.mr == pytest.approx(table.mr, abs=0.011)
            assert score.hits == pytest.approx(table.hits, abs=0.011)
    assert {method for _, method, _ in LINK_PREDICTION} == set(METHODS)
