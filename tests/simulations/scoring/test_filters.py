"""Both filters of a run: the same everywhere, next to what clients tell, and nothing that a client sees."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from safetensors.numpy import load_file

from fedkge.client.app import resident
from fedkge.datasets import load_graph, write_graph
from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.server.app import main
from fedkge.simulations.cli.run_commands import write_flower_config
from fedkge.simulations.runs import engines
from fedkge.simulations.runs import run as runs
from fedkge.simulations.scoring import judge as judging

Make = Callable[..., Experiment]
BOTH = ("evaluation.sides=both", "training.corrupt=both")


def test_a_simulation_reports_both_filters_by_default(tiny: Make, out: Path) -> None:
    result = runs.run(tiny("federation.strategy=FedE", *BOTH), out)
    utility = result.summary["utility"]
    assert list(utility["filters"]) == ["own", "all"]
    own, other = (utility["filters"][name]["test"] for name in ("own", "all"))
    for name in ("mrr", "mr", "hits@1", "hits@3", "hits@10", "count", "unseen"):
        assert own[name] == utility["test"][name]  # the very bits that clients told
    assert other["mrr"]["value"] > own["mrr"]["value"]
    assert other["mr"]["value"] < own["mr"]["value"]
    assert result.test("mrr", "all") == other["mrr"]["value"]
    ranks = load_file(out / "ranks.safetensors")
    for name, scores in (("own", own), ("all", other)):
        values = [1 / ranks[f"client-{client}/{name}"].astype(float) for client in range(3)]
        assert np.concatenate(values).mean() == pytest.approx(scores["mrr"]["value"])
        assert np.mean([part.mean() for part in values]) == pytest.approx(scores["macro"]["mrr"]["value"])
        for column, side in enumerate(("tail", "head")):
            mean = np.concatenate(values)[:, column].mean()
            assert scores["sides"][side]["mrr"]["value"] == pytest.approx(mean)
        assert sum(part["count"] for part in scores["kinds"].values()) == scores["count"]


def test_metrics_csv_has_every_part(tiny: Make, out: Path) -> None:
    result = runs.run(tiny("federation.strategy=FedE", *BOTH), out)
    scores = result.summary["utility"]["filters"]["all"]["test"]
    rows = result.metrics[result.metrics.metric == "mrr"].set_index(["split", "client"])["value"]
    assert rows["test filter=all", "all"] == pytest.approx(scores["mrr"]["value"])
    assert rows["test filter=all", "macro"] == pytest.approx(scores["macro"]["mrr"]["value"])
    assert rows["test filter=all", "1"] == pytest.approx(scores["clients"]["1"]["mrr"]["value"])
    assert rows["test filter=all side=head", "all"] == pytest.approx(scores["sides"]["head"]["mrr"]["value"])
    assert rows["test filter=all kind=N-N", "all"] == pytest.approx(scores["kinds"]["N-N"]["mrr"]["value"])


def test_what_travels_and_what_comes_of_it_do_not_depend_on_the_filter(
    tiny: Make, tmp_path: Path, carried: list[tuple[engines.Envelope, bytes | None]]
) -> None:
    found = {}
    for name in ("own", "both", "all"):
        carried.clear()
        result = runs.run(tiny("federation.strategy=FedE", f"evaluation.filter={name}"), tmp_path / name)
        sizes = sorted((len(envelope), len(payload or b"")) for envelope, payload in carried)
        found[name] = result.summary["result_hash"], sizes
        assert list(result.summary["utility"]["filters"]) == (["own"] if name == "own" else ["own", "all"])
    assert found["own"] == found["both"] == found["all"]


@pytest.mark.parametrize("protected", [pytest.param(False, marks=pytest.mark.slow), True])
def test_every_engine_gives_the_same_scores(
    protected: bool, tiny: Make, secret: Make, tmp_path: Path, ray_running: Any
) -> None:
    make = secret if protected else tiny
    inline, ray = (
        runs.run(make("federation.strategy=FedE", f"engine.name={name}"), tmp_path / name).summary
        for name in ("inline", "ray")
    )
    assert inline["utility"]["filters"] == ray["utility"]["filters"]
    assert inline["utility"]["filters"]["own"]["test"]["mrr"]["value"] == pytest.approx(
        inline["utility"]["test"]["mrr"]["value"], abs=1e-8
    )


def test_a_run_that_stopped_before_it_was_judged_is_resumed_to_the_same_scores(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = runs.run(tiny("federation.strategy=FedE"), tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(judging, "rank_as", _stop)
        with pytest.raises(KeyboardInterrupt):
            runs.run(tiny("federation.strategy=FedE"), tmp_path / "cut")
    result = runs.resume(tmp_path / "cut")
    assert result.summary["utility"] == whole.summary["utility"]
    assert result.metrics.equals(whole.metrics)


def _stop(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_client_opens_its_own_triples_and_only_the_judge_those_of_all(tiny: Make, out: Path) -> None:
    """Clients run in threads of their own: whatever these open of the data is their own folder."""
    opened: list[tuple[str, Path]] = []
    watching = True

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "open" and isinstance(arguments[0], str | Path):
            opened.append((threading.current_thread().name, Path(arguments[0])))

    sys.addaudithook(watch)  # stays until the process ends
    runs.run(tiny("federation.strategy=FedE", "engine.workers=1"), out)
    watching = False
    data = [(thread, path) for thread, path in opened if out / "data" in path.parents]
    by_clients = [path.parent.name for thread, path in data if thread.startswith("client")]
    assert sorted(set(by_clients)) == ["client-0", "client-1", "client-2"]
    assert by_clients == sorted(by_clients)  # one after the other, each once
    assert not any("ranks" in path.name for thread, path in opened if thread.startswith("client"))


def test_nothing_but_ranking_takes_the_others_answers() -> None:
    """Who names `Truths`: what defines it, what ranks by it, and the judge, which hands it over."""
    package = Path(judging.__file__).parents[2]
    naming = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "Truths" in path.read_text(encoding="utf-8")
    }
    assert naming == {
        "client/training/truths.py",
        "client/training/ranks.py",
        "simulations/scoring/judge.py",
    }


@pytest.mark.parametrize("change", ["filter=all", "candidates=union"])
def test_a_deployment_refuses_what_only_a_simulation_knows(change: str, tiny: Make, tmp_path: Path) -> None:
    """The client's node, the server, and the command that writes the config of both."""
    write_graph(tmp_path / "data", load_graph("UMLS"))
    refused = pytest.raises(SettingError, match=r"evaluation\.\w+ = .*a client of a deployment .*; set it to")
    asked = tiny("federation.strategy=FedE", f"evaluation.{change}")
    config = {"partition-id": 0, "data": str(tmp_path / "data"), "state": str(tmp_path / "state")}
    server = {"experiment": asked.to_json(), "folder": str(tmp_path / "run")}
    with refused:
        resident(Context(77, 1, dict(config), RecordDict(), dict(server)))
    with refused:
        main(Any, Context(77, 0, {}, RecordDict(), dict(server)))
    with refused:
        write_flower_config(tmp_path / "run", tmp_path / "run.toml", sets=[f"evaluation.{change}"])
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "run.toml").exists()
    write_flower_config(tmp_path / "run", tmp_path / "run.toml")  # the default is for both


def test_a_choice_of_the_best_round_never_sees_the_filter_of_all(tiny: Make, out: Path) -> None:
    summary = runs.run(tiny("federation.strategy=FedE", "evaluation.filter=all"), out).summary
    state = json.loads((out / "checkpoint" / "server.json").read_text(encoding="utf-8"))
    assert state["best_mrr"] == summary["utility"]["valid"]["mrr"]["value"]
    assert state["best_mrr"] == summary["utility"]["filters"]["own"]["valid"]["mrr"]["value"]
    assert state["best_mrr"] != summary["utility"]["filters"]["all"]["valid"]["mrr"]["value"]


def test_different_sides_are_warned_of(tiny: Make, out: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert Experiment().unlike_sides() == ""
    runs.run(tiny("evaluation.sides=both", "federation.rounds=1"), out)
    assert 'set training.corrupt = "both"' in caplog.text
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "(training.corrupt), and ranking takes" in page


def test_a_report_names_the_protocol(tiny: Make, out: Path) -> None:
    runs.run(tiny("federation.strategy=FedE", "federation.rounds=2"), out)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "filter own, sides tail, candidates own" in page
    assert "test, all" in page
    assert "Test scores by side and kind of relation" in page
