"""The FedR recipes: the paper's settings, its printed numbers in their places, what a cell measures."""

from __future__ import annotations

from itertools import product

import pandas as pd
import pytest

from fedkge.client.models import MODELS as KNOWN_MODELS
from fedkge.client.models.kbgat import KBGAT
from fedkge.server.privacy import check_privacy
from fedkge.simulations.runs.run import divide, run
from fedkge.simulations.runs.run_folder import RunFolder
from fedkge.simulations.studies.cells import StudyCache, TableCell
from fedkge.simulations.studies.fedr import fedr_figures, fedr_runs, fedr_tables, noge_candidates, noge_graphs
from fedkge.simulations.studies.fedr.fedr_runs import (
    CLIENTS,
    DATASETS,
    MODELS,
    NUMBERS,
    STRATEGIES,
    FedRFederation,
)
from fedkge.strategy import STRATEGIES as KNOWN

TINY = ("model.dim=8", "training.negatives=4", "federation.rounds=2", "federation.evaluate_every=1")


def test_the_printed_table_is_whole():
    def printed(dataset: str, clients: int, model: str, strategy: str) -> float | None:
        keys = {"dataset": dataset, "clients": clients, "model": model, "strategy": strategy}
        return NUMBERS.get("2", "mrr", **keys)

    cells = list(product(DATASETS, CLIENTS, MODELS, STRATEGIES))
    assert all(printed(*cell) is not None for cell in cells)
    assert len(cells) == sum(row["table"] == "2" for row in NUMBERS.rows)
    assert printed("WN18RR", 15, "DistMult", "FedR") == 0.1198
    assert printed("FB15k-237", 20, "ComplEx", "FedE") == 0.0751
    assert printed("DDB14", 3, "ComplEx", "FedE") is None


def test_full_table_2_has_every_cell_on_the_split_of_the_paper_and_a_clean_one():
    cells = fedr_tables.link_prediction.cells("full", [0, 1, 2])
    assert (
        len(cells) == (2 + 1 + 1) * 4 * 5 * 3 * 3
    )  # DDB14 on two splits; clients, models, strategies, seeds
    assert len({cell.file for cell in cells}) == len(cells)
    legacy = {cell.keys["dataset"] for cell in cells if cell.keys["partition"] == "fedr-legacy"}
    assert legacy == {"DDB14"}


def test_table_7_has_both_models_with_every_printed_number():
    cells = fedr_tables.three_clients.cells("full", [0])
    assert len(cells) == 2 * 2 * 3  # splits, models, strategies
    assert {cell.keys["partition"] for cell in fedr_tables.three_clients.cells("quick", [0])} == {
        "fedr-legacy"
    }
    keys = [{name: cell.keys[name] for name in ("dataset", "clients", "model", "strategy")} for cell in cells]
    printed = [NUMBERS.get("7", metric, **key) for key in keys for metric in fedr_tables.METRICS]
    assert None not in printed
    assert len(set(printed)) == sum(row["table"] == "7" for row in NUMBERS.rows) == 24
    full = FedRFederation("DDB14", "fedr-legacy", 3, "KBGAT", "FedE", "full", 0).experiment
    assert (full.model.dim, full.model.margin, full.training.local_epochs) == (50, 5.0, 500)
    options = KBGAT.options_of(full.model)
    assert (options.decoder_epochs, options.decoder_negatives, options.filters, options.heads) == (
        150,
        40,
        50,
        1,
    )
    quick = FedRFederation("DDB14", "fedr-legacy", 3, "KBGAT", "FedE", "quick", 0).experiment
    assert (quick.training.local_epochs, quick.training.negatives, quick.federation.rounds) == (30, 2, 4)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_experiments_are_the_papers(strategy):
    full = FedRFederation("DDB14", "fedr", 5, "RotatE", strategy, "full", 7).experiment
    check_privacy(full, KNOWN[strategy].shared)
    assert (full.model.name, full.model.dim, full.model.margin, full.seed) == ("RotatE", 128, 10.0, 7)
    assert (full.training.negatives, full.training.batch_size, full.training.local_epochs) == (256, 512, 3)
    assert (full.federation.rounds, full.federation.evaluate_every, full.federation.patience) == (300, 5, 5)
    assert FedRFederation("DDB14", "fedr", 5, "RotatE", strategy, "quick", 7).settings != (
        FedRFederation("DDB14", "fedr", 5, "RotatE", strategy, "full", 7).settings
    )


def test_table_5_of_ddb14_is_the_printed_one_on_the_legacy_split(data_folder, tmp_path):
    cells = [cell for cell in fedr_tables.client_statistics.cells("quick") if cell.keys["dataset"] == "DDB14"]
    for cell in cells:
        rows = {row["metric"]: row for row in cell.rows(StudyCache(tmp_path), tmp_path)}
        mean = rows["entities"]
        if cell.keys["partition"] == "fedr-legacy":
            assert mean["measured"] == pytest.approx(
                mean["published"], abs=0.4
            )  # 2115.59 is printed, not .95
            assert rows["entities, deviation"]["measured"] == pytest.approx(
                rows["entities, deviation"]["published"], abs=0.01
            )
        else:
            assert mean["measured"] > mean["published"] + 400


def test_tables_and_figures_share_their_runs(tmp_path, monkeypatch):
    """A run is made once; figure 3 counts rounds and rows from the same folders as table 2."""
    monkeypatch.setattr(fedr_runs, "QUICK", TINY)
    monkeypatch.setattr(fedr_figures, "TARGETS", (1e-6, 0.999))
    fede, fedr = (FedRFederation("UMLS", "fedr", 3, "TransE", name, "quick", 0) for name in ("FedE", "FedR"))
    cache = StudyCache(tmp_path)

    def rows(cell: TableCell) -> pd.DataFrame:
        return pd.DataFrame(cell.rows(cache, tmp_path / "cells"))

    run = rows(fedr_figures.race([fede, fedr])).set_index(["target", "metric", "strategy"])["measured"]
    assert run[1e-6, "rounds", "FedE"] == run[1e-6, "rounds", "FedR"] == 1
    graphs = divide(fedr.experiment).clients
    relations, entities = (
        sum(len(labels) for labels in column)
        for column in zip(*((graph.relation_labels, graph.entity_labels) for graph in graphs), strict=True)
    )
    assert run[1e-6, "saved cost", "FedR"] == pytest.approx(1 - relations / entities)
    assert run[0.999].isna().all()
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/summary.json")}
    assert len(made) == 2
    own, all_clients = rows(fedr_tables.scores(fedr, {"hits@10": 0.5})).to_dict("records")
    assert (own["metric"], all_clients["metric"]) == ("hits@10", "hits@10, all filter")
    assert own["published"] == 0.5
    assert pd.isna(all_clients["published"])
    assert own["low"] <= own["measured"] <= own["high"]
    assert own["measured"] <= all_clients["measured"]
    monkeypatch.setattr(fedr_figures, "TARGETS", ())
    assert list(rows(fedr_figures.losses(fede))["round"]) == [1, 2]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/summary.json")} == made


def test_a_run_that_was_cut_is_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr(fedr_runs, "QUICK", TINY)
    federation = FedRFederation("UMLS", "fedr", 3, "TransE", "FedR", "quick", 0)
    whole = federation.result(StudyCache(tmp_path / "whole"))

    def stop(now):
        if now.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        federation.result(StudyCache(tmp_path, stop))
    (folder,) = (tmp_path / "runs").iterdir()
    assert not (folder / "summary.json").exists()
    assert federation.result(StudyCache(tmp_path)).summary["result_hash"] == whole.summary["result_hash"]
    (folder / "experiment.toml").unlink()  # as if it was cut while it was laid out
    assert federation.result(StudyCache(tmp_path)).summary["result_hash"] == whole.summary["result_hash"]


def test_noge_is_trained_as_the_authors_code_does():
    experiment = FedRFederation("DDB14", "fedr-legacy", 5, "NoGE", "FedE", "full", 0).experiment
    training = experiment.training
    assert (training.type, training.batch_size, training.learning_rate) == ("KvsAll", 1024, 0.01)
    assert (training.label_smoothing, training.label_spread, training.max_gradient_norm) == (0.1, "one", 0.5)
    assert experiment.federation.sync == "at-evaluation"
    assert (training.local_epochs, experiment.federation.rounds, experiment.model.dim) == (3, 300, 128)


def test_shortened_federations_take_their_mean_before_they_end():
    """Shared rows of NoGE meet when clients validate, so a run without a validation would share nothing."""
    for scale, rounds in (("quick", (2,)), ("full", (10, 6))):
        assert len(noge_graphs.noge_graphs.cells(scale, [0])) == 3 * len(rounds)
    for dataset, rounds in noge_graphs.ROUNDS.items():
        run = noge_graphs.Shortened(
            dataset, "fedr", 5, "NoGE", "FedE", "full", 0, rounds
        ).experiment.federation
        assert (run.rounds, run.sync) == (rounds, "at-evaluation")
        assert run.rounds > run.evaluate_every


def test_kbgat_has_the_authors_weight_decay_and_schedule_at_full_scale_alone():
    full, quick = (
        FedRFederation("DDB14", "fedr-legacy", 3, "KBGAT", "FedE", scale, 0).experiment
        for scale in ("full", "quick")
    )
    assert (full.training.weight_decay, full.training.decay_every, full.training.decay_by) == (5e-6, 500, 2.0)
    options = KNOWN_MODELS["KBGAT"].options_of(full.model)
    assert (options.decoder_weight_decay, options.decoder_decay_every) == (1e-5, 25)
    assert (quick.training.weight_decay, quick.training.decay_every) == (0.0, None)


def test_noge_of_clients_alone_is_ranked_among_all_entities_too(tmp_path, monkeypatch):
    monkeypatch.setattr(
        fedr_runs,
        "QUICK",
        (
            "data.dataset=synthetic:entities=60,relations=6,triples=300",
            "data.partition=fedr",
            "model.dim=8",
            "federation.rounds=2",
            "federation.evaluate_every=1",
        ),
    )
    federation = FedRFederation("DDB14", "fedr-legacy", 3, "NoGE", "Local", "quick", 0)
    cell = noge_candidates._measured(federation)
    fair, paper = cell.measure(StudyCache(tmp_path))
    assert (fair["metric"], paper["metric"]) == (noge_candidates.FAIR, noge_candidates.PAPER)
    assert 0 < paper["measured"] < fair["measured"]
    assert paper["low"] <= paper["measured"] <= paper["high"]
    sizes = set()
    for folder in (tmp_path / "runs").iterdir():
        graphs = [RunFolder(folder).graph(client) for client in range(3)]
        every = {label for graph in graphs for label in graph.entity_labels}
        sizes.add(tuple(graph.num_entities == len(every) for graph in graphs))
    assert len(sizes) == 2
    assert (True, True, True) in sizes


def test_noge_is_ranked_among_all_shared_entities_too(tmp_path):
    """Every entity of FedE has a row that all holders share; more candidates, never a better rank."""
    experiment = FedRFederation("DDB14", "fedr-legacy", 5, "NoGE", "FedE", "quick", 0).experiment.override(
        [
            "data.dataset=synthetic:entities=60,relations=6,triples=300",
            "data.clients=3",
            "data.partition=fedr",
            "model.dim=8",
            "training.batch_size=64",
            "federation.rounds=2",
            "federation.evaluate_every=1",
        ]
    )
    result = run(experiment, tmp_path / "run")
    graphs = [RunFolder(tmp_path / "run").graph(client) for client in range(3)]
    every = {label for graph in graphs for label in graph.entity_labels}
    assert any(len(every) > graph.num_entities for graph in graphs)
    sums = noge_candidates.among_shared(tmp_path / "run", 3)
    assert sums.count == sum(len(graph.test) for graph in graphs)
    assert 0 < sums.means()["mrr"] < result.test("mrr")
    assert sums.means()["mr"] > result.summary["utility"]["test"]["mr"]["value"]
