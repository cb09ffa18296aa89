"""The command line as functions: quick to import, at home in a notebook, results as frames."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedkge
from fedkge.errors import InputError
from fedkge.experiment import Experiment
from fedkge.server.progress import Observer, Progress
from fedkge.simulations.runs.comparison import compare
from fedkge.simulations.runs.run_folder import RunResult

HEAVY = ("torch", "flwr", "ray", "numba", "pandas", "pykeen", "matplotlib", "sklearn")


@pytest.mark.parametrize("module", ["fedkge", "fedkge.simulations.cli.main"])
def test_importing_brings_in_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_promised_is_there() -> None:
    for name in fedkge.__all__:
        promised = getattr(fedkge, name)
        assert isinstance(promised, Mapping) if name.isupper() else callable(promised)
        assert name in dir(fedkge)
    with pytest.raises(AttributeError, match=r"it has ATTACKS, .*Experiment, attack, audit, compare"):
        fedkge.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_importing_is_quick() -> None:
    """The best of three starts: others may use the machine."""
    code = "import time; t = time.perf_counter(); import fedkge; print(time.perf_counter() - t)"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = [subprocess.run([sys.executable, "-c", code], env=env, capture_output=True) for _ in range(3)]
    assert min(float(one.stdout) for one in done) < 0.15


def test_data_are_divided_audited_trained_and_evaluated() -> None:
    graph = fedkge.load_graph("synthetic:entities=40,relations=4,triples=160")
    split = fedkge.partition(graph, "random", clients=2)
    assert fedkge.audit(graph).triples == fedkge.audit(split).triples == graph.num_triples
    experiment = Experiment().override(["model.dim=8", "training.negatives=4"])
    model = fedkge.MODELS[experiment.model.name].build(experiment.model, graph, 0)
    before = fedkge.evaluate(model, graph, "train", experiment.evaluation).metrics["mrr"]
    fedkge.train(model, graph, np.random.default_rng(0), experiment.training, epochs=20)
    assert fedkge.evaluate(model, graph, "train", experiment.evaluation).metrics["mrr"] > before


def test_an_attack_leaves_its_findings_in_the_folder(smallest: Experiment, out: Path) -> None:
    settings = ["federation.strategy=FedE", "adversary.record=last", "adversary.colluders=[0]"]
    result = fedkge.run(smallest.override(settings), out)
    findings = fedkge.attack(result.folder, ["reconstruction"], protocols=["paper"])
    assert {finding.attack for finding in findings} == {"reconstruction"}
    again = fedkge.open_run(result.folder)
    assert len(again.summary["leakage"]["reconstruction"]["paper"]) == len(findings)
    assert "The strongest attacks" in (result.folder / "report.html").read_text(encoding="utf-8")
    with pytest.raises(InputError, match="unknown attack 'reconstuction'"):
        fedkge.attack(result.folder, ["reconstuction"])


def test_a_run_within_an_event_loop_prints_nothing(
    smallest: Experiment, finished: RunResult, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A notebook's cell runs inside a loop."""

    async def cell() -> RunResult:
        return fedkge.run(smallest, out)

    result = asyncio.run(cell())
    assert result.summary["result_hash"] == finished.summary["result_hash"]
    assert capfd.readouterr() == ("", "")


def test_results_are_frames(finished: RunResult) -> None:
    again = fedkge.open_run(finished.folder)
    assert again.summary == finished.summary
    for frame in (again.metrics, again.messages, again.frame):
        assert isinstance(frame, pd.DataFrame)
        assert len(frame) > 0
    found = again.frame.set_index(["filter", "mean", "part", "split", "metric"])
    assert found.index.is_unique
    for name in ("own", "all"):
        score = found.loc[(name, "micro", "all", "test", "mrr")]
        assert score["value"] == again.test("mrr", name)
        assert score["low"] <= score["value"] <= score["high"]
    assert "<table" in again._repr_html_()


def test_a_comparison_joins_its_runs(smallest: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(smallest.to_toml())
    found = fedkge.compare(path, ["Local", "FedR"], tmp_path / "c", progress=True)
    assert set(found.frame["strategy"]) == {"Local", "FedR"}
    assert set(found.messages.groupby("strategy")["bytes"].sum().index) == {"Local", "FedR"}
    for name, (result,) in found.runs.items():
        part = found.metrics[found.metrics["strategy"] == name]
        assert len(part) == len(result.metrics)
        assert set(part["seed"]) == {0}


def test_a_comparison_that_was_stopped_goes_on(smallest: Experiment, tmp_path: Path) -> None:
    """The first run is there, the second was cut; a different experiment is not mixed in."""

    def stop(name: str) -> Observer:
        def watch(now: Progress) -> None:
            if name.startswith("FedR") and now.round > 1:
                raise KeyboardInterrupt

        return watch

    whole = compare(smallest, ["Local", "FedR"], tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        compare(smallest, ["Local", "FedR"], tmp_path / "cut", watch=stop)
    assert (tmp_path / "cut" / "Local-seed0" / "summary.json").exists()
    assert not (tmp_path / "cut" / "FedR-seed0" / "summary.json").exists()
    again = compare(smallest, ["Local", "FedR"], tmp_path / "cut")
    for name, (result,) in whole.runs.items():
        assert again.runs[name][0].summary["result_hash"] == result.summary["result_hash"]
    with pytest.raises(InputError, match="holds a different experiment"):
        compare(smallest.override(["model.dim=9"]), ["Local", "FedR"], tmp_path / "cut")


def test_the_default_folder_is_the_first_free_one(
    smallest: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "quickstart-Local-1").mkdir(parents=True)
    result = fedkge.run(smallest.override(["federation.strategy=Local"]))
    assert result.folder == tmp_path / "runs" / "quickstart-Local-2"
    assert fedkge.resume(result.folder).summary == result.summary
