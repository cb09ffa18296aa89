"""The ε of the DPKGE paper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedkge.simulations.studies.dpkge.dpkge_cells import NUMBERS, SIGMAS, Cell
from fedkge.simulations.studies.dpkge.dpkge_epsilon import (
    epsilon_by_share,
    epsilon_over_epochs,
    epsilon_tables,
)


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
    models = NUMBERS.values("2-3", "model")
    assert len(models) == 4
    for model in models:
        for sigma in SIGMAS:
            cell = Cell("FB15k-237", model, "DPKGE", "paper", sigma)
            for metric in ("mr", "hits"):
                printed = cell.published(metric)
                assert printed is not None
                assert replace(cell, percentile=20).published(metric) == pytest.approx(printed, abs=0.011)
    assert NUMBERS.values("7", "method") == ["NDP", "U", "DPKGE", "FullDP"]
