"""The studies of descriptions on UMLS, with readers that need no download."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fedkge.client.models import MODELS
from fedkge.client.privacy.accountant import Event, epsilon
from fedkge.simulations.runs.run_folder import RunFolder
from fedkge.simulations.studies import RECIPES
from fedkge.simulations.studies.cells import StudyCache
from fedkge.simulations.studies.dkrl import bridge_study, fusion_study, inductive_study, noised_study
from fedkge.simulations.studies.dkrl.described_runs import METRICS, NUMBERS, DescribedRun, Reader

needs_texts = pytest.mark.skipif(
    not Path(os.environ.get("FEDKGE_DATA", ""), "text/UMLS-entity2text.txt.gz").is_file(),
    reason="needs FEDKGE_DATA",
)
HASHED = Reader("BLP", "hash", ("federation.rounds=2", "model.dim=16"))


def test_published_numbers_stand_beside_their_rows() -> None:
    rows = {
        row: NUMBERS.get("1", "mrr", dataset="FB15k-237", model=row) for row in inductive_study.TABLE_ROWS
    }
    assert rows["DKRL-BERT"] == 0.082
    assert rows["DKRL-Flair"] == 0.098
    assert rows["Torchcoder-AEC"] == 0.013
    blp = {row: NUMBERS.get("blp", "mrr", dataset="WN18RR", model=row) for row in inductive_study.BLP_ROWS}
    assert blp["GloVe-BOW"] == 0.170
    assert blp["BLP-TransE"] == 0.285
    assert blp["BLP-TransE stacked"] is None  # ours


@pytest.mark.parametrize("name", ["dkrl-table-1", "blp", "text-fusion", "text-bridge"])
def test_every_cell_is_another_run(name: str) -> None:
    for scale in ("quick", "full"):
        cells = RECIPES[name].cells(scale)
        assert len({cell.settings for cell in cells}) == len({cell.title for cell in cells}) == len(cells)


def test_every_reader_has_options_that_its_model_takes() -> None:
    readers = {
        **inductive_study.TABLE_ROWS,
        **inductive_study.BLP_ROWS,
        **fusion_study.FUSED,
        **bridge_study.READERS,
    }
    for reader in readers.values():
        settings = DescribedRun("FB15k-237", reader, True, "full", 0).experiment.model
        MODELS[settings.name].options_of(settings)


@needs_texts
def test_a_cell_has_the_metrics_of_its_run_among_unseen_entities(tmp_path: Path) -> None:
    run = DescribedRun("UMLS", HASHED, True, "quick", 0)
    cache = StudyCache(tmp_path)
    rows = inductive_study._measured("1", "DKRL-BERT", run).rows(cache, tmp_path / "cells")
    folder = RunFolder.read(run.result(cache).folder)
    assert [row["metric"] for row in rows] == list(METRICS)
    for row in rows:
        test = folder.summary.part("utility", "test", row["metric"])
        assert row["measured"] == test.number("value")
        assert row["low"] <= row["measured"] <= row["high"]
        assert row["published"] is None  # that is of another graph
    test = run.result(cache).summary["utility"]["test"]
    assert test["unseen"] == test["count"] > 0


@needs_texts
def test_strangers_have_relations_in_common_and_no_entity(tmp_path: Path) -> None:
    split = bridge_study.strangers("UMLS", "known", 0)
    held = [set(graph.entity_labels) for graph in split.clients]
    assert sum(map(len, held)) == len(set().union(*held)) > 135  # several names for one thing
    assert set.intersection(*(set(graph.relation_labels) for graph in split.clients))
    named: dict[str, set[str]] = {}
    for graph in split.clients:
        assert any(graph.texts["entity"])
        for label, text in zip(graph.entity_labels, graph.texts["entity"], strict=True):
            named.setdefault(label.partition(".")[2], set()).add(text)
    assert all(len(texts) == 1 for texts in named.values())  # the text went with its entity


@needs_texts
def test_a_bridge_shares_nothing_of_entities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bridge_study.READERS, "text (BLP)", HASHED)
    cache = StudyCache(tmp_path)
    cell = bridge_study.BridgeCell("UMLS", "unseen", "text (BLP)", "relations and weights", 0)
    (row,) = bridge_study._measured(cell, "quick").rows(cache, tmp_path / "cells")
    own = RunFolder.read(cell.result(cache, "quick").folder)
    alone = RunFolder.read(replace(cell, shared="nothing").result(cache, "quick").folder)
    mrr = [run.summary.part("utility", "test", "mrr").number("value") for run in (own, alone)]
    assert row["mrr"] == mrr[0]
    assert row["gain"] == pytest.approx(mrr[0] - mrr[1])
    assert row["bytes"] > alone.bytes_total
    summary = cell.result(cache, "quick").summary
    assert set(summary["privacy"]["rows_not_shared"]) == {"relation", "projection"}  # of what is shared
    assert summary["utility"]["test"]["unseen"] == summary["utility"]["test"]["count"] > 0


@needs_texts
def test_noised_training_claims_the_epsilon_of_its_own_batches() -> None:
    cell = noised_study.NoisedCell("UMLS", "BLP", "hash", 1.0, 0)
    values, claimed = noised_study.measure_noised(cell, epochs=1)
    graph = noised_study._confidential("UMLS")
    steps, rate = -(-len(graph.train) // 64), 64 / len(graph.train)
    assert claimed == pytest.approx(epsilon([Event(1.0, rate, steps)], 1 / len(graph.train), "rdp"), rel=0.05)
    for value, low, high in values.values():
        assert low <= value <= high
    assert NUMBERS.get("2", "epsilon", dataset="FB15k-237", model="DKRL-BERT", sigma=1.0) == 6.49
    assert NUMBERS.get("2", "mrr", dataset="FB15k-237", model="DKRL-BERT", sigma=1.2) == 0.063
