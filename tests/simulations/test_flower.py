"""The same app under Flower's own runtime: a SuperLink and nodes on loopback."""

from __future__ import annotations

import csv
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedkge.client.keyring import ROSTER, create_identity
from fedkge.datasets import load_graph
from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs
from tests.simulations.superlink import Deployment, deployed, doctored_app

Make = Callable[..., Experiment]

# Rows that are not shared start from secrets, which differ: here, all are shared.
EVERYTHING = ["federation.strategy=FedER", "federation.rounds=1", "federation.evaluate_every=1"]


def spying(loot: Path) -> str:
    """One line for client/app.py that writes down the node's labels."""
    write = f"__import__('pathlib').Path({str(loot)!r}).write_text(' '.join(graph.labels['entity']))"
    return f"load_graph = lambda place, load=load_graph: [graph := load(place), {write}][0]"


def test_nodes_run_the_installed_code_and_give_the_same_bits(tiny: Make, tmp_path: Path) -> None:
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
def test_a_plain_supernode_runs_whatever_code_a_run_sends(tiny: Make, tmp_path: Path) -> None:
    """What the README warns of, and what makes the test above one that can fail."""
    experiment = tiny(*EVERYTHING)
    runs.run(experiment, tmp_path / "inline")
    data = [tmp_path / "inline" / "data" / f"client-{number}" for number in range(3)]
    app = doctored_app(tmp_path / "clone", spying(tmp_path / "loot.txt"))
    with deployed(tmp_path, data, plain=True) as deployment:
        deployment.summary(deployment.run(experiment, app))
    loot = (tmp_path / "loot.txt").read_text()
    assert loot in [" ".join(load_graph(folder).labels["entity"]) for folder in data]


# Nodes that go and come back (finding 13).


@contextmanager
def going_on(deployment: Deployment, experiment: Experiment) -> Iterator[Future[str]]:
    """A run that goes on beside the block; what it printed, once it is over."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(deployment.run, experiment)


def lost(deployment: Deployment) -> set[tuple[str, str]]:
    """Which client failed in which phase, as failures.csv says."""
    path = deployment.folder / "failures.csv"
    if not path.exists():
        return set()
    with path.open(newline="", encoding="utf-8") as file:
        return {(row["client"], row["phase"]) for row in csv.DictReader(file)}


@pytest.mark.slow
def test_a_run_that_lost_a_node_is_resumed(tiny: Make, tmp_path: Path) -> None:
    rounds = ["federation.rounds=2", "federation.min_clients=3", "federation.timeout=600"]
    experiment = tiny(*EVERYTHING, *rounds)
    inline = runs.run(experiment, tmp_path / "inline")
    data = [tmp_path / "inline" / "data" / f"client-{number}" for number in range(3)]
    with deployed(tmp_path, data) as deployment:
        with going_on(deployment, experiment) as printed:
            deployment.wait_for("node-1", "Receiving: train message", times=2)
            deployment.stop("node-1")
        assert "--resume" in printed.result()
        assert lost(deployment) == {("1", "train")}
        deployment.start_node(1)
        summary = deployment.summary(deployment.run(experiment, resume=True))
        assert lost(deployment) == {("1", "train")}
    assert summary["result_hash"] == inline.summary["result_hash"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "times", "phase"),
    [("query.advertise", 1, "union"), ("train", 1, "train"), ("query.unmask", 2, "unmask")],
)
def test_a_secure_run_goes_on_when_a_killed_node_returns(
    moment: str, times: int, phase: str, secret: Make, tmp_path: Path
) -> None:
    experiment = secret(*EVERYTHING, "federation.on_failure=repeat", "federation.timeout=600")
    runs.run(experiment, tmp_path / "inline")
    data = [tmp_path / "inline" / "data" / f"client-{number}" for number in range(3)]
    keys = [tmp_path / f"keys-{number}" for number in range(3)]
    roster = "".join(f"{create_identity(folder).hex()}\n" for folder in keys)
    for folder in keys:
        (folder / ROSTER).write_text(roster)
    with deployed(tmp_path, data, keys=keys) as deployment:
        with going_on(deployment, experiment) as printed:
            deployment.wait_for("node-1", f"Receiving: {moment} message", times)
            deployment.stop("node-1", signal.SIGKILL)
            while not lost(deployment) and not printed.done():  # Flower notices within a minute
                time.sleep(0.5)
            deployment.start_node(1)
        deployment.summary(printed.result())
        assert lost(deployment) == {("1", phase)}
