"""Lines of a reproduction, and which cells a user may ask for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedkge.errors import InputError, SettingError, UnknownNameError
from fedkge.simulations.studies.against_published import line_up, summit
from fedkge.simulations.studies.cells import TableCell
from fedkge.simulations.studies.selection import select
from fedkge.simulations.studies.study import Quantity, study

CELLS = [
    TableCell({"dataset": dataset, "clients": clients}, lambda cache: [])
    for dataset, clients in (("DDB14", 5), ("DDB14", 10), ("WN18RR", 5))
]


@study(within=("metric",))
def printed(scale, seeds):
    """A table."""
    return []


@study([Quantity("loss", "loss"), Quantity("rank", "rank", within=())], within=("round",), over="round")
def curve(scale, seeds):
    """A curve."""
    return []


def row(model, seed, measured, published=0.5):
    bounds = {"low": measured and measured - 0.1, "high": measured and measured + 0.1}
    keys = {"dataset": "A", "model": model, "seed": seed, "metric": "mrr"}
    return {**keys, "measured": measured, "published": published, **bounds}


def test_several_seeds_have_a_mean_and_a_students_interval():
    values = [0.41, 0.44, 0.49]
    frame = pd.DataFrame([row("TransE", seed, value) for seed, value in enumerate(values)])
    (line,) = line_up(printed, frame, ["dataset", "model", "seed"]).to_dict("records")
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert (line["low"], line["high"]) == (pytest.approx(low), pytest.approx(high))
    assert (line["seeds"], line["difference"]) == (3, pytest.approx(np.mean(values) - 0.5))


def test_one_seed_keeps_its_own_interval_and_other_models_their_own_line():
    frame = pd.DataFrame([row("TransE", 0, 0.4), row("RotatE", 0, 0.6, None)])
    lined = line_up(printed, frame, ["dataset", "model", "seed"])
    assert list(lined.columns) == [
        "model", "metric", "published", "measured", "low", "high", "difference", "seeds", "older",
    ]  # fmt: skip
    assert list(lined["low"]) == [pytest.approx(0.3), pytest.approx(0.5)]
    assert lined["difference"].isna().tolist() == [False, True]


def test_a_target_that_one_seed_never_reached_has_no_mean_but_its_published_line():
    frame = pd.DataFrame([row("TransE", 0, 10.0), row("TransE", 1, None)])
    (line,) = line_up(printed, frame, ["dataset", "model", "seed"]).to_dict("records")
    assert (line["published"], line["seeds"]) == (0.5, 2)
    assert np.isnan(line["measured"])


def test_a_table_shows_the_last_point_of_a_curve_and_a_quantity_of_the_whole_once():
    frame = pd.DataFrame(
        [{"model": m, "seed": 0, "round": r, "loss": r / 10, "rank": 7} for m in "ab" for r in (1, 2, 3)]
    )
    lined = line_up(curve, frame, ["model", "seed"])
    assert (lined["metric"] == "rank").sum() == 2
    table = summit(curve, lined)
    assert list(table.loc[table["metric"] == "loss", "measured"]) == [0.3, 0.3]


def test_wishes_are_met_together_and_values_of_a_key_are_alternatives():
    assert select(CELLS, ["dataset=DDB14,clients=5"]) == CELLS[:1]
    assert select(CELLS, ["clients=5"]) == [CELLS[0], CELLS[2]]
    assert select(CELLS, ["dataset=DDB14", " clients = 10 ,clients=5"]) == CELLS[:2]


def test_a_wished_value_may_have_a_comma():
    cells = [
        TableCell({"method": method, "clients": 5}, lambda cache: [])
        for method in ("sound", "sound, pretrained")
    ]
    assert select(cells, ["method=sound, pretrained,clients=5"]) == cells[1:]


@pytest.mark.parametrize(
    ("wish", "error", "words"),
    [
        ("datset=DDB14", UnknownNameError, "unknown key of --only 'datset'.*Did you mean 'dataset'"),
        ("dataset=DDB15", UnknownNameError, "known: DDB14, WN18RR.*Did you mean 'DDB14'"),
        ("dataset", SettingError, "expected key=value"),
        ("dataset=", SettingError, "expected key=value"),
        ("dataset=WN18RR,clients=10", InputError, "no cell of this recipe is all of that"),
    ],
)
def test_a_wish_that_nothing_meets_is_one_clear_line(wish, error, words):
    with pytest.raises(error, match=words) as caught:
        select(CELLS, [wish])
    assert "\n" not in str(caught.value)
