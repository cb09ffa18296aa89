"""The recipe that says where defaults of private training come from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedkge.client.privacy import mechanism_of
from fedkge.datasets import mark
from fedkge.simulations.studies import RECIPES
from fedkge.simulations.studies.cells import StudyCache
from fedkge.simulations.studies.central import whole_graph
from fedkge.simulations.studies.private import tuning_study
from fedkge.simulations.studies.private.tuning_study import TuningCell, measure_tuning
from fedkge.simulations.studies.private.utility_cells import PREDICATES
from fedkge.simulations.tuning.candidates import CANDIDATES

CELL = TuningCell("UMLS", "TransE", "sound", "phase", epochs=4, seed=0)


def test_no_triple_of_the_compared_predicates_is_in_the_task() -> None:
    graph = mark(whole_graph("UMLS"), PREDICATES["UMLS"])
    task = CELL.task.graph
    for split in ("train", "valid", "test"):
        dropped = set(graph[split][graph.marks(split), 1].tolist())
        assert not dropped & set(task[split][:, 1].tolist())
    assert 0 < task.marks("train").sum() <= graph.marks("train").sum()


def test_rows_are_the_values_in_order_with_gains_over_the_default(tmp_path: Path) -> None:
    rows = measure_tuning(CELL, StudyCache(tmp_path))
    assert [row["value"] for row in rows] == ["0.2", "0.5", "1 (default)"]
    means = [row["mrr"] for row in rows]
    assert [row["rank"] for row in rows] == [1 + sum(other > mean for other in means) for mean in means]
    for row in rows[:2]:
        assert row["gain"] == pytest.approx(row["mrr"] - rows[2]["mrr"])
        assert row["gain_low"] < row["gain"] < row["gain_high"]
    assert "gain" not in rows[2]


def test_the_default_is_trained_once_for_all_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    scores = tuning_study.PublicTask.scores

    def counted(task, dp, seed):  # type: ignore[no-untyped-def]
        trained.append(dict(dp.options))
        return scores(task, dp, seed)

    monkeypatch.setattr(tuning_study.PublicTask, "scores", counted)
    for option in ("phase", "average"):
        measure_tuning(replace(CELL, option=option), StudyCache(tmp_path))
    assert trained.count({}) == 1
    measure_tuning(replace(CELL, seed=1), StudyCache(tmp_path))
    assert trained.count({}) == 2
    assert len(list(tmp_path.glob("runs/*.npy"))) == 2
    assert all(np.load(path).ndim == 1 for path in tmp_path.glob("runs/*.npy"))


def test_another_default_is_another_cell() -> None:
    assert repr(mechanism_of(CELL.dp).options) in CELL.settings


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_every_option_that_is_tried_has_a_cell(scale: str) -> None:
    cells = RECIPES["privacy-tuning"].cells(scale, [0])  # type: ignore[arg-type]
    named = {(cell.keys["mechanism"], cell.keys["option"]) for cell in cells}
    wanted = {(mode, option) for mode, options in CANDIDATES.items() for option in options}
    assert named == wanted - (set() if scale == "full" else {("sound", "gradient_share")})
    assert len({cell.file for cell in cells}) == len(cells)
