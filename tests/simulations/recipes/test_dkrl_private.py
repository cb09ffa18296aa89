"""The study of utility over ε for a model of texts, with few epochs."""

from __future__ import annotations

import os
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from fedkge.simulations.studies.dkrl.private_texts import TASKS, TextCell, measure_texts, private_texts

needs_texts = pytest.mark.skipif(
    not (Path(os.environ.get("FEDKGE_DATA", "")) / "text" / "UMLS-entity2textlong.txt.gz").is_file(),
    reason="FEDKGE_DATA has no texts of UMLS",
)


@needs_texts
def test_noise_costs_utility_and_stays_within_its_target() -> None:
    task = replace(TASKS["quick"], epochs=10)
    rows = {
        target: measure_texts(TextCell(1.0, "NDP" if target is None else "sound", target), task)
        for target in (None, 0.5)
    }
    assert rows[None]["epsilon"] == inf
    assert rows[0.5]["epsilon"] <= 0.5
    assert rows[None]["mrr"] > rows[0.5]["mrr"]


@needs_texts
def test_without_a_confidential_half_the_rest_is_trained_on() -> None:
    task = replace(TASKS["quick"], epochs=3)
    row = measure_texts(TextCell(0.5, "U"), task)
    assert row["epsilon"] == 0
    assert row["mrr"] > 0.03


def test_every_scale_has_every_epsilon_for_all_and_for_half() -> None:
    for scale in ("quick", "full"):
        keys = [cell.keys for cell in private_texts.cells(scale)]
        for share in (1.0, 0.5):
            targets = {key["target"] for key in keys if key["confidential"] == share}
            assert targets == {None, 0.5, 1.0, 3.0, 8.0}
