"""Trackers see a run's numbers and change nothing; one that is not installed is one clear line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fedkge.errors import InputError, UnknownNameError
from fedkge.experiment import Experiment
from fedkge.simulations.runs import tracking
from fedkge.simulations.runs.run import RunResult, run
from fedkge.simulations.runs.tracking import TRACKERS, tracked


class Memory:
    """Keeps what it is told."""

    package: ClassVar[str] = "json"
    logged: ClassVar[list[tuple[int, dict[str, float]]]]
    closed: ClassVar[int]

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        type(self).logged, type(self).closed = [], 0

    def log(self, metrics: Mapping[str, float], round: int) -> None:
        self.logged.append((round, dict(metrics)))

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> type[Memory]:
    monkeypatch.setitem(TRACKERS, "memory", Memory)  # type: ignore[arg-type]
    return Memory


def seen(memory: type[Memory], name: str) -> dict[int, float]:
    return {round: metrics[name] for round, metrics in memory.logged if name in metrics}


def test_a_tracker_sees_everything_and_changes_nothing(
    memory: type[Memory], smallest: Experiment, finished: RunResult, out: Path
) -> None:
    result = run(smallest, out, track=["memory"])
    assert result.summary["result_hash"] == finished.summary["result_hash"]
    table = result.metrics.query("client == 'all' and split == 'valid' and metric == 'mrr'")
    assert seen(memory, "valid/mrr") == dict(zip(table["round"], table["value"], strict=True))
    assert set(seen(memory, "train/loss")) == {1, 2}
    assert seen(memory, "test/mrr") == {2: result.test("mrr")}
    assert seen(memory, "bytes_up") == {2: result.summary["communication"]["bytes_up"]}
    assert memory.closed == 1


def test_trackers_are_closed_when_a_run_fails(memory: type[Memory], tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), tracked(["memory"], Experiment(), tmp_path, None):
        raise RuntimeError
    assert memory.closed == 1


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_extra_is_named_before_anything_is_written(
    name: str, smallest: Experiment, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda package: None)
    with pytest.raises(InputError, match=rf"pip install fedkge\[{name}\]"):
        run(smallest, out, track=[name])
    assert not out.exists()
    with pytest.raises(UnknownNameError, match="Did you mean 'wandb'"):
        run(smallest, out, track=["wanbd"])


def log_a_little(name: str, folder: Path) -> None:
    pytest.importorskip(TRACKERS[name].package, reason=f"pip install fedkge[{name}]")
    tracker: Any = TRACKERS[name](Experiment(name="wards"), folder)
    for round in (1, 2):
        tracker.log({"test/hits@10": 0.25 * round}, round)
    tracker.close()


def test_tensorboard_reads_what_was_logged(tmp_path: Path) -> None:
    log_a_little("tensorboard", tmp_path)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("test/hits@10")] == [(1, 0.25), (2, 0.5)]


@pytest.mark.filterwarnings("ignore")  # its own, of its database
def test_mlflow_reads_what_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    log_a_little("mlflow", tmp_path)
    import mlflow

    (found,) = mlflow.search_runs(experiment_names=["wards"], output_format="list")
    assert found.data.params["model.dim"] == "128"
    history = mlflow.MlflowClient().get_metric_history(found.info.run_id, "test/hits_at_10")
    assert [(each.step, each.value) for each in history] == [(1, 0.25), (2, 0.5)]


def test_wandb_writes_a_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    log_a_little("wandb", tmp_path)
    import wandb

    wandb.teardown()  # its service writes the end of the file last
    (written,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"hits@10" in written.read_bytes()
