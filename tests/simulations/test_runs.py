"""Runs: the same result everywhere, nothing lost, nothing seen that should not be."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from fedkge.client.models import MODELS, build_model
from fedkge.client.participant import Participant
from fedkge.datasets import load_graph
from fedkge.errors import FederationError, InputError, SettingError, StorageError, UnknownNameError
from fedkge.exchange import Download, Upload, decode
from fedkge.experiment import Experiment
from fedkge.server import records
from fedkge.simulations.runs import engines
from fedkge.simulations.runs import run as runs
from fedkge.simulations.runs.checks import check_names
from fedkge.simulations.runs.worker import Worker
from fedkge.strategy import STRATEGIES
from tests.simulations.mishaps import Crash, crash_in, run_with_dying_workers

Tiny = Callable[..., Experiment]


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_every_strategy_runs_and_leaves_a_complete_folder(strategy: str, tiny: Tiny, out: Path) -> None:
    weights = ["model.name=R-GCN"] if strategy == "FedAvg" else []  # it shares nothing else
    result = runs.run(tiny(f"federation.strategy={strategy}", *weights), out)
    assert set(result.summary) == {
        "utility", "communication", "leakage", "privacy", "speed", "experiment_hash", "result_hash",
    }  # fmt: skip
    assert json.loads((out / "summary.json").read_text()) == result.summary
    assert Experiment.load(out / "experiment.toml").federation.strategy == strategy
    assert json.loads((out / "environment.json").read_text())["packages"]["flwr"]
    assert set(result.metrics.columns) == {"round", "client", "split", "metric", "value"}
    assert 0 < result.test("mrr") <= 1
    clients = 1 if strategy == "Central" else 3
    for number in range(clients):
        tables = load_file(out / "embeddings" / f"client-{number}.safetensors")
        graph = load_graph(out / "data" / f"client-{number}")
        assert tables["entity"].shape == (graph.num_entities, 8)
        assert np.isfinite(tables["relation"]).all()


def test_a_name_of_this_process_alone_is_refused_where_workers_look_it_up(
    tiny: Tiny, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for registry, settings in ((MODELS, "model.name=Mine"), (STRATEGIES, "federation.strategy=Mine")):
        monkeypatch.setitem(registry, "Mine", registry["TransE" if registry is MODELS else "FedE"])
        check_names(tiny(settings))
        with pytest.raises(SettingError, match="'Mine' exists in this process alone"):
            runs.run(tiny(settings, "engine.name=ray"), out)
    assert not out.exists()


@pytest.mark.parametrize("strategy", ["FedE", "FedR", "FedER", "Local"])
def test_only_the_shared_tables_travel(
    strategy: str, tiny: Tiny, out: Path, carried: list[tuple[engines.Envelope, bytes | None]]
) -> None:
    runs.run(tiny(f"federation.strategy={strategy}"), out)
    shared = set(STRATEGIES[strategy].shared)
    uploads = [decode(payload, Upload) for _, payload in carried if payload]
    downloads = [decode(envelope.payload, Download) for envelope, _ in carried]
    assert {name for message in (*uploads, *downloads) for name in message.tables} == shared
    wire = b"".join(part for envelope, payload in carried for part in (envelope.payload, payload or b""))
    for number in range(3):
        tables = load_file(out / "embeddings" / f"client-{number}.safetensors")
        graph = load_graph(out / "data" / f"client-{number}")
        initial = build_model(tiny().model, graph, tiny().seed).tables
        for name, table in tables.items():
            # No client's row appears in any byte that the server saw; of shared rows the offset does.
            assert not any(row.tobytes() in wire for row in table)
            offsets = [message.tables[name].rows for message in downloads if name in message.tables]
            sums = {
                row.tobytes() for rows in offsets if rows.shape[1] for i in initial[name] for row in i + rows
            }
            assert all(row.tobytes() in sums for row in table) == (name in shared)


def test_the_ledger_counts_what_the_grid_carried(
    tiny: Tiny, out: Path, carried: list[tuple[engines.Envelope, bytes | None]]
) -> None:
    result = runs.run(tiny("federation.strategy=FedE"), out)
    down = sum(len(envelope.payload) for envelope, _ in carried)
    up = sum(len(payload or b"") for _, payload in carried)
    cost = result.summary["communication"]
    assert (cost["bytes_down"], cost["bytes_up"]) == (down, up)
    assert sum(cost["by_phase"].values()) == down + up
    sums = result.messages.groupby("direction")["bytes"].sum()
    assert (sums["down"], sums["up"]) == (down, up)


def test_a_client_needs_nothing_but_its_own_folder(
    tiny: Tiny, out: Path, tmp_path: Path, carried: list[tuple[engines.Envelope, bytes | None]]
) -> None:
    experiment = tiny("federation.strategy=FedR")
    runs.run(experiment, out)
    shutil.copytree(out / "data" / "client-1", tmp_path / "alone")
    shutil.rmtree(out)
    config = {"partition-id": 1, "data": str(tmp_path / "alone"), "state": str(tmp_path / "state")}
    config["simulated"] = True  # its secret comes from the seed
    worker = Worker(5, experiment.to_json(), {2: config})
    for envelope, payload in [pair for pair in carried if pair[0].node == 2]:
        answer, reason = worker.handle(2, envelope.kind, envelope.group, envelope.payload)
        assert answer is not None, reason
        assert payload is not None
        first, second = decode(payload, Upload), decode(answer, Upload)
        for name, table in first.tables.items():
            assert table.rows.tobytes() == second.tables[name].rows.tobytes()
        assert first.metadata.get("digest") == second.metadata.get("digest")


def test_the_number_of_threads_does_not_change_the_result(tiny: Tiny, tmp_path: Path) -> None:
    hashes = {
        runs.run(tiny("federation.strategy=FedER", f"engine.workers={n}"), tmp_path / str(n)).summary[
            "result_hash"
        ]
        for n in (1, 2, 3)
    }
    assert len(hashes) == 1


def test_ray_gives_the_same_bits_and_survives_a_dead_worker(
    tiny: Tiny, tmp_path: Path, ray_running: Any
) -> None:
    inline = runs.run(tiny(), tmp_path / "inline").summary
    for workers in (1, 2):
        settings = ("engine.name=ray", f"engine.workers={workers}")
        assert (
            runs.run(tiny(*settings), tmp_path / f"ray{workers}").summary["result_hash"]
            == inline["result_hash"]
        )
    experiment = tiny("engine.name=ray", "engine.workers=2")
    result = run_with_dying_workers(experiment, tmp_path / "killed", ray_running, {3})
    assert result.summary["result_hash"] == inline["result_hash"]
    assert result.summary["communication"]["bytes_up"] == inline["communication"]["bytes_up"]


def test_different_seeds_give_different_results(tiny: Tiny, tmp_path: Path) -> None:
    first, second = (runs.run(tiny(f"seed={seed}"), tmp_path / str(seed)).summary for seed in (0, 1))
    assert first["result_hash"] != second["result_hash"]


@pytest.mark.parametrize("strategy", ["FedR", "FedE", "Local"])
@pytest.mark.parametrize("when", [1, 3, 5])
def test_a_resumed_run_ends_in_the_same_bits(strategy: str, when: int, tiny: Tiny, tmp_path: Path) -> None:
    experiment = tiny(f"federation.strategy={strategy}", "federation.rounds=6")
    whole = runs.run(experiment, tmp_path / "whole")

    with pytest.raises(Crash):
        runs.run(experiment, tmp_path / "cut", crash_in(when))
    resumed = runs.resume(tmp_path / "cut", experiment=experiment)
    assert resumed.summary["result_hash"] == whole.summary["result_hash"]
    pd.testing.assert_frame_equal(resumed.metrics, whole.metrics)


def test_resuming_a_finished_run_changes_nothing(tiny: Tiny, out: Path) -> None:
    done = runs.run(tiny(), out)
    again = runs.resume(out)
    assert again.summary == done.summary
    assert json.loads((out / "summary.json").read_text()) == done.summary


def test_a_full_disk_leaves_the_previous_checkpoint_valid(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = tiny("federation.rounds=6")
    whole = runs.run(experiment, tmp_path / "whole")
    saved = []

    def full(arrays: Any, path: Path) -> None:
        saved.append(path)
        if len(saved) == 2:
            path.write_bytes(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        records_save(arrays, path)

    records_save = records.save_file
    monkeypatch.setattr(records, "save_file", full)
    with pytest.raises(StorageError, match="No space left"):
        runs.run(experiment, tmp_path / "full")
    monkeypatch.undo()
    resumed = runs.resume(tmp_path / "full")
    assert resumed.summary["result_hash"] == whole.summary["result_hash"]


def failing(monkeypatch: pytest.MonkeyPatch, client: int, round: int, times: int = 1) -> None:
    """Let a client raise when asked to train a round, a number of times."""
    train, left = Participant.train, [times]

    def sometimes(self: Participant, download: Download) -> Upload:
        if self.client == client and download.round == round and left[0] > 0:
            left[0] -= 1
            raise RuntimeError("out of coffee")
        return train(self, download)

    monkeypatch.setattr(Participant, "train", sometimes)


def failures(folder: Path) -> list[tuple[int, str, int, str]]:
    return [tuple(row) for row in pd.read_csv(folder / "failures.csv").itertuples(index=False)]


def test_a_round_goes_on_without_a_client_that_raises(
    tiny: Tiny, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, client=1, round=2)
    runs.run(tiny(), out)
    assert failures(out) == [(2, "train", 1, "RuntimeError: out of coffee")]


def test_a_failed_client_can_be_asked_again(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = runs.run(tiny(), tmp_path / "whole")
    failing(monkeypatch, client=1, round=2)
    again = runs.run(tiny("federation.on_failure=repeat"), tmp_path / "again")
    assert again.summary["result_hash"] == whole.summary["result_hash"]
    assert len(failures(tmp_path / "again")) == 1


def test_too_few_clients_stop_the_run_and_it_can_go_on(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = tiny("federation.min_clients=3", "federation.rounds=6")
    whole = runs.run(experiment, tmp_path / "whole")
    failing(monkeypatch, client=0, round=4)
    with pytest.raises(FederationError, match="2 of 3 clients answered"):
        runs.run(experiment, tmp_path / "cut")
    resumed = runs.resume(tmp_path / "cut")
    assert resumed.summary["result_hash"] == whole.summary["result_hash"]


def test_a_late_client_is_left_out(tiny: Tiny, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    train = Participant.train

    def slow(self: Participant, download: Download) -> Upload:
        if self.client == 2 and download.round == 3:
            time.sleep(3)
        return train(self, download)

    monkeypatch.setattr(Participant, "train", slow)
    runs.run(tiny("engine.workers=3", "federation.timeout=2.0"), out)
    assert (3, "train", 2, "no answer in time") in failures(out)


@pytest.mark.parametrize(
    "change", ["federation.fraction=0.5", "federation.dropout=0.1", "federation.dropout=0.5"]
)
def test_partial_participation_and_dropouts_finish(change: str, tiny: Tiny, out: Path) -> None:
    result = runs.run(tiny(change, "data.clients=6", "federation.rounds=8"), out)
    trained = result.metrics.query("metric == 'loss'").groupby("round").size()
    assert result.summary["communication"]["rounds"] == 8
    assert trained.min() < 6


def test_weights_and_half_precision_are_options(tiny: Tiny, tmp_path: Path) -> None:
    plain = runs.run(tiny("federation.strategy=FedE"), tmp_path / "plain").summary
    weighted = runs.run(
        tiny("federation.strategy=FedE", "federation.weighting=triples"), tmp_path / "weighted"
    ).summary
    half = runs.run(
        tiny("federation.strategy=FedE", "federation.precision=float16"), tmp_path / "half"
    ).summary
    assert plain["result_hash"] != weighted["result_hash"] != half["result_hash"]
    assert half["communication"]["bytes_up"] < 0.65 * plain["communication"]["bytes_up"]


def test_patience_and_target(tiny: Tiny, out: Path) -> None:
    changes = (
        "federation.rounds=60",
        "federation.patience=1",
        "federation.target_mrr=0.01",
        "training.learning_rate=0.5",
    )
    summary = runs.run(tiny(*changes), out).summary
    cost = summary["communication"]
    assert cost["rounds"] < 60
    assert cost["rounds"] == summary["utility"]["best_round"] + 2
    assert cost["rounds_to_target"] == 2
    sent = pd.read_csv(out / "messages.csv").query("round <= 2")["bytes"].sum()
    assert cost["bytes_to_target"] == sent


def test_central_pools_what_clients_hold(tiny: Tiny, out: Path) -> None:
    experiment = tiny("federation.strategy=Central")
    runs.run(experiment, out)
    pooled = load_graph(out / "data" / "client-0")
    split = runs.divide(experiment)
    assert len(pooled.train) == sum(len(graph.train) for graph in split.clients)
    assert len(pooled.test) == sum(len(graph.test) for graph in split.clients)


def test_bad_runs_are_refused_before_they_start(tiny: Tiny, tmp_path: Path, out: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'FedR'"):
        runs.run(tiny("federation.strategy=FedRR"), out)
    with pytest.raises(UnknownNameError, match="Did you mean 'TransE'"):
        runs.run(tiny("model.name=TransX"), out)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thing").touch()
    with pytest.raises(InputError, match="not empty"):
        runs.run(tiny(), tmp_path / "full")
    with pytest.raises(InputError, match="not a run folder"):
        runs.resume(tmp_path / "full")
    with pytest.raises(StorageError, match="choose another folder"):
        runs.run(tiny(), tmp_path / "full" / "thing" / "below")
    runs.run(tiny(), out)
    with pytest.raises(InputError, match="different experiment"):
        runs.resume(out, experiment=tiny("training.negatives=5"))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_an_unreachable_cluster_is_one_clear_error(address: str, tiny: Tiny) -> None:
    settings = tiny("engine.name=ray", f"engine.ray_address={address}").engine
    with pytest.raises(InputError, match="no Ray at"):
        engines.start_ray(settings)
