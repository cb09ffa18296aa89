"""The README's three answers, on a shortened quickstart."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedkge.attacks.findings import Finding, most_recovered
from fedkge.experiment import Experiment
from fedkge.simulations.runs.run_folder import RunFolder
from fedkge.simulations.studies.cells import StudyCache
from fedkge.simulations.studies.fedr import three_answers as answers


@pytest.fixture
def shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Experiment.load
    monkeypatch.setattr(Experiment, "load", lambda file: load(file).override(["federation.rounds=2"]))


def test_a_cell_has_what_its_run_gained_paid_and_leaked(shorter: None, tmp_path: Path) -> None:
    cache = StudyCache(tmp_path)
    rows = {}
    for strategy in ("Local", "FedE"):
        cell = answers.AnswersCell("UMLS", strategy, 0)
        (rows[strategy],) = answers._measured(cell).rows(cache, tmp_path / "cells")
    run = RunFolder.read(answers.AnswersCell("UMLS", "FedE", 0).result(cache).folder)
    fede, local = rows["FedE"], rows["Local"]
    assert fede["bytes"] == run.bytes_total > 100 * local["bytes"]
    assert fede["gain_all"] == pytest.approx(fede["mrr_all"] - local["mrr_all"])
    assert fede["recovered_low"] <= fede["recovered"] <= fede["recovered_high"]
    assert (fede["recovered"], fede["guessing"]) in {(each.value, each.baseline) for each in run.findings}
    assert "gain_own" not in local
    assert "recovered" not in local  # nothing is sent


def test_what_was_granted_or_is_no_triple_is_not_recovered() -> None:
    def found(metric: str, value: float, baseline: float, granted: str = "") -> Finding:
        where = ("uploads", "server", granted, 0.0, 1, "")
        return Finding("reconstruction", "rigorous", *where, metric, value, value, value, baseline)

    weaker, stronger = found("recall", 0.5, 0.4), found("TRR", 0.3, 0.1)
    others = [found("ERR", 1.0, 0.0), found("recall", 0.9, 0.0, granted="entity rows")]
    assert most_recovered([weaker, *others, stronger]) is stronger
    assert most_recovered(others) is None
