"""The same app under Flower's own runtime: a SuperLink and nodes on loopback."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fedkge.datasets import load_graph
from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs
from tests.simulations.mishaps import failures
from tests.simulations.superlink import deployed, doctored_app

# Rows that are not shared start from secrets, which differ: here, all are shared.
EVERYTHING = ["federation.strategy=FedER", "federation.rounds=1", "federation.evaluate_every=1"]


def spying(loot: Path) -> str:
    """One line for client/app.py that writes down the node's labels."""
    write = f"__import__('pathlib').Path({str(loot)!r}).write_text(' '.join(graph.labels['entity']))"
    return f"load_graph = lambda place, load=load_graph: [graph := load(place), {write}][0]"


def test_nodes_run_the_installed_code_and_give_the_same_bits(
    tiny: Callable[..., Experiment], tmp_path: Path
) -> None:
    """Finding 12: the run is submitted from a clone whose client steals labels."""
    experiment = tiny(*EVERYTHING)
    inline = runs.run(experiment, tmp_path / "inline")
    data = [tmp_path / "inline" / "data" / f"client-{number}" for number in range(3)]
    app = doctored_app(tmp_path / "clone", spying(tmp_path / "loot.txt"))
    with deployed(tmp_path, data) as deployment:
        printed = deployment.run(experiment, app)
        flower = deployment.summary(printed)
    assert not (tmp_path / "loot.txt").exists()
    assert flower["result_hash"] == inline.summary["result_hash"]
    assert flower["communication"]["bytes_up"] == inline.summary["communication"]["bytes_up"]


@pytest.mark.slow
def test_a_plain_supernode_runs_whatever_code_a_run_sends(
    tiny: Callable[..., Experiment], tmp_path: Path
) -> None:
    """What the README warns of, and what makes the test above one that can fail."""
    experiment = tiny(*EVERYTHING)
    runs.run(experiment, tmp_path / "inline")
    data = [tmp_path / "inline" / "data" / f"client-{number}" for number in range(3)]
    app = doctored_app(tmp_path / "clone", spying(tmp_path / "loot.txt"))
    with deployed(tmp_path, data, plain=True) as deployment:
        deployment.summary(deployment.run(experiment, app))
    loot = (tmp_path / "loot.txt").read_text()
    assert loot in [" ".join(load_graph(folder).labels["entity"]) for folder in data]
