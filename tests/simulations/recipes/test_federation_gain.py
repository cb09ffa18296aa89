"""What federation gains under two filters, and FedE taken apart, on small federations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedkge.simulations.studies import RECIPES
from fedkge.simulations.studies.cells import StudyCache
from fedkge.simulations.studies.fedr import federation_gain as gain
from fedkge.simulations.studies.fedr.fede_apart import FedEApart

FEDE = gain.GainCell("UMLS", "both", "FedE", 2, 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gain")


def row_of(cell: gain.GainCell, folder: Path) -> dict[str, float]:
    (row,) = gain._measured(cell).rows(StudyCache(folder), folder / "cells")
    return row


def test_means_are_those_of_the_runs_and_gains_their_differences(folder: Path) -> None:
    row, alone = row_of(FEDE, folder), row_of(FEDE.alone, folder)
    for name in gain.FILTERS:
        summary = json.loads((FEDE.result(StudyCache(folder)).folder / "summary.json").read_text())
        assert row[f"mrr_{name}"] == pytest.approx(
            summary["utility"]["filters"][name]["test"]["mrr"]["value"]
        )
        assert row[f"gain_{name}"] == pytest.approx(row[f"mrr_{name}"] - alone[f"mrr_{name}"])
    assert row["mrr_all"] > row["mrr_own"]  # fewer candidates are left to beat
    assert "gain_own" not in alone


def test_a_paired_interval_is_narrower_than_that_of_either(folder: Path) -> None:
    row = row_of(FEDE, folder)
    width = {name: row[f"{name}_high"] - row[f"{name}_low"] for name in ("mrr_all", "gain_all")}
    assert 0 < width["gain_all"] < 1.5 * width["mrr_all"]


def test_the_recipe_trains_what_it_ranks_and_lists_every_strategy_under_both_sides() -> None:
    cells = RECIPES["federation-gain"].cells("full")
    seeds = {(cell.keys["dataset"], cell.keys["seed"]) for cell in cells}
    assert len([seed for dataset, seed in seeds if dataset == "UMLS"]) == 5
    assert len([seed for dataset, seed in seeds if dataset == "DDB14"]) == 3
    assert len(cells) == 2 * 4 * (5 + 3)
    for sides in gain.SIDES:
        experiment = replace(FEDE, sides=sides).experiment
        assert experiment.training.corrupt == experiment.evaluation.sides == sides


def test_fede_apart_varies_two_settings_alone() -> None:
    kinds = [
        FedEApart(negatives, start, "full", 0).experiment
        for negatives in ("own", "first")
        for start in ("own", "alike")
    ]
    plain = kinds[0].override(["training.negatives_from=own", "federation.start=own"])
    same = [kind.override(["training.negatives_from=own", "federation.start=own"]) for kind in kinds]
    assert all(kind.digest() == plain.digest() for kind in same)
    assert len({kind.digest() for kind in kinds}) == 4
    assert len(RECIPES["fedr-fede-apart"].cells("full")) == 12
