"""Networks among clients: secure and open sums agree, tasks are reported, edges are attacked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from fedkge.attacks.findings import Finding
from fedkge.client.networks import tasks
from fedkge.datasets import partition
from fedkge.datasets.networks.network import edges_of, network_of
from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.simulations.report import write_report
from fedkge.simulations.runs.attacking import attack_run
from fedkge.simulations.runs.run import RunResult, resume, run
from fedkge.simulations.runs.run_folder import RunFolder
from fedkge.simulations.scoring.network_tasks import LINKS, VERTICES, joined_anywhere

NETWORK = (
    "data.partition=edges",
    "model.name=DeepWalkMF",
    "model.dim=8",
    'model.options.solver="als"',
    "training.local_epochs=1",
    "federation.strategy=FedE",
    "federation.rounds=2",
    "federation.evaluate_every=2",
)

LONGER = ("federation.rounds=4",)


def blocks(folder: Path, classes: str = "xy") -> Path:
    """Two blocks of thirty vertices, joined inside, each of a class."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    pairs = [
        (i, j) for i in range(60) for j in range(i) if rng.random() < (0.3 if i // 30 == j // 30 else 0.02)
    ]
    (folder / "edges.tsv").write_text("".join(f"v{i}\tv{j}\n" for i, j in pairs))
    (folder / "classes.tsv").write_text("".join(f"v{i}\t{classes[i // 30]}\n" for i in range(60)))
    return folder


def ran(experiment: Experiment, out: Path) -> RunResult:
    return run(experiment, out)


def test_a_federated_factorisation_is_the_same_under_secure_aggregation(
    secret: Callable[..., Experiment], data_folder: Path, tmp_path: Path
) -> None:
    """Edges of Cora among three clients, vertex rows shared as in FedE: equal to rounding, in every row."""
    changes = ("data.dataset=Cora", "privacy.union=plain", "privacy.min_holders=1", *NETWORK)
    folders = [
        ran(secret(*changes, f"privacy.secure_aggregation={how}"), tmp_path / how).folder
        for how in ("true", "false")
    ]
    for client in range(3):
        masked, plain = (
            load_file(folder / "embeddings" / f"client-{client}.safetensors") for folder in folders
        )
        assert np.abs(plain["entity"]).max() > 0.1
        for name in ("entity", "context"):
            np.testing.assert_allclose(masked[name], plain[name], atol=1e-5)


def test_a_run_says_what_vertex_rows_are_good_for(tiny: Callable[..., Experiment], tmp_path: Path) -> None:
    result = ran(tiny(f"data.dataset={blocks(tmp_path / 'net')}", *NETWORK), tmp_path / "run")
    scores = result.summary["utility"]["tasks"]
    accuracy = scores[VERTICES]["mean"]["accuracy"]
    assert accuracy["value"] > 0.75
    assert accuracy["interval"][0] < accuracy["value"] < accuracy["interval"][1]
    assert set(scores[LINKS]["mean"]) == {"accuracy", "AUC", "macro F1"}
    assert set(scores[VERTICES]["clients"]) == {"0", "1", "2"}
    write_report([result.folder])
    page = (result.folder / "report.html").read_text()
    assert "Tasks on vertex rows" in page
    assert "vertex classification" in page


def test_no_edge_of_another_client_is_offered_as_not_joined(
    tiny: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By labels, against the file that the edges of all clients come from."""
    net = blocks(tmp_path / "net")
    truth = {frozenset(line.split()) for line in (net / "edges.tsv").read_text().splitlines()}
    offered: list[np.ndarray] = []
    draw = tasks.drawn_non_edges

    def drawn(*given: Any) -> np.ndarray:
        offered.append(draw(*given))
        return offered[-1]

    monkeypatch.setattr(tasks, "drawn_non_edges", drawn)
    folder = RunFolder(ran(tiny(f"data.dataset={net}", *NETWORK), tmp_path / "run").folder)
    assert len(offered) == 3 * tasks.REPEATS
    for number, pairs in enumerate(offered):
        labels = folder.graph(number // tasks.REPEATS).entity_labels
        assert truth.isdisjoint({frozenset((labels[one], labels[other])) for one, other in pairs})


@given(st.integers(0, 99))
def test_edges_that_join_anywhere_are_those_of_all_clients_between_own_vertices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = network_of("drawn", [f"v{i}" for i in range(20)], rng.integers(0, 20, (40, 2)))
    split = partition(graph, "edges:valid=0.1,test=0.2", clients=3, seed=seed)
    named = {
        frozenset((client.entity_labels[one], client.entity_labels[other]))
        for client in split.clients
        for one, other in edges_of(client, "train", "valid", "test")
    }
    for number, client in enumerate(split.clients):
        own = set(client.entity_labels)
        found = joined_anywhere(split, number)
        told = {frozenset((client.entity_labels[one], client.entity_labels[other])) for one, other in found}
        assert told == {edge for edge in named if edge <= own}


def test_what_cannot_be_asked_is_said_and_the_run_is_kept(
    tiny: Callable[..., Experiment], tmp_path: Path
) -> None:
    net = blocks(tmp_path / "net", classes="xx")
    changes = [*NETWORK, "data.partition=edges:valid=0,test=0"]
    scores = ran(tiny(f"data.dataset={net}", *changes), tmp_path / "run").summary["utility"]["tasks"]
    assert not scores[VERTICES]["mean"]
    assert "one class among the vertices" in scores[VERTICES]["not possible"]["0"]
    assert "0 edges to test are too few" in scores[LINKS]["not possible"]["2"]
    assert "not possible" not in scores[LINKS]["mean"]


def test_graphs_with_kinds_of_edges_have_no_such_tasks(
    tiny: Callable[..., Experiment], tmp_path: Path
) -> None:
    small = "data.dataset=synthetic:entities=40,relations=4,triples=160"
    assert "tasks" not in ran(tiny(small, "federation.rounds=1"), tmp_path / "run").summary["utility"]


@pytest.mark.parametrize("model", ["DeepWalkMF", "LINE-1"])
def test_edges_of_uploads_are_told_from_held_out_ones(
    model: str, tiny: Callable[..., Experiment], tmp_path: Path
) -> None:
    """A network has no relation rows, and none have to be guessed."""
    changes = [change for change in NETWORK if "solver" not in change or model == "DeepWalkMF"]
    experiment = tiny(
        f"data.dataset={blocks(tmp_path / 'net')}",
        *changes,
        f"model.name={model}",
        "data.partition=edges:valid=0.1,test=0.4",
        "adversary.record=every",
        "adversary.attacks=[]",
    )
    folder = ran(experiment, tmp_path / "run").folder
    found = [each for each in attack_run(folder, ["membership"]) if each.metric == "auc" and each.possible]
    assert {each.target for each in found} >= {0, 1, 2}
    assert not any("fitted" in each.regime for each in found)
    if model == "DeepWalkMF":
        best: Finding = max(found, key=lambda each: each.value or 0.0)
        assert best.low is not None
        assert best.low > 0.5


def test_a_federation_releases_each_network_once(
    secret: Callable[..., Experiment], tiny: Callable[..., Experiment], tmp_path: Path
) -> None:
    """Two rounds or four, masked or open: one ε, and the same rows where rounds are as many."""
    changes = (
        f"data.dataset={blocks(tmp_path / 'net')}",
        *NETWORK,
        "data.confidential=1.0",
        "privacy.dp.mode=randomised-response",
        "privacy.dp.target_epsilon=6.0",
    )
    masked = ("privacy.union=plain", "privacy.min_holders=1")
    for make, name, more in ((secret, "masked", masked), (tiny, "open", ()), (tiny, "long", LONGER)):
        result = ran(make(*changes, *more), tmp_path / name)
        privacy = result.summary["privacy"]
        assert privacy["epsilon"] == {"0": 6.0, "1": 6.0, "2": 6.0}
        assert privacy["delta"] == {"0": 0.0, "1": 0.0, "2": 0.0}
        assert all(
            standing.startswith("guaranteed") for standing in privacy["claimed_or_guaranteed"].values()
        )
        assert privacy["differential_privacy"]["0"]["events"] == [[6.0]]
    for client in range(3):
        rows = [
            load_file(tmp_path / name / "embeddings" / f"client-{client}.safetensors")["entity"]
            for name in ("masked", "open")
        ]
        np.testing.assert_allclose(*rows, atol=1e-5)
    write_report([tmp_path / "open"])
    page = (tmp_path / "open" / "report.html").read_text()
    assert "says, with lies, whether it is an edge" in page


def test_a_run_that_was_cut_releases_the_same_again(tiny: Callable[..., Experiment], tmp_path: Path) -> None:
    experiment = tiny(
        f"data.dataset={blocks(tmp_path / 'net')}",
        *NETWORK,
        *LONGER,
        "data.confidential=1.0",
        "privacy.dp.mode=gaussian-vertices",
        "privacy.dp.target_epsilon=6.0",
    )
    whole = ran(experiment, tmp_path / "whole").summary["result_hash"]

    def crash(progress: Any) -> None:
        if progress.round == 3 and progress.loss is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "cut", crash)
    resumed = resume(tmp_path / "cut")
    assert resumed.summary["result_hash"] == whole
    assert 5.9 < resumed.summary["privacy"]["epsilon"]["1"] <= 6.0


def test_what_a_network_cannot_answer_is_warned_of_and_counted(
    tiny: Callable[..., Experiment], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = blocks(tmp_path / "net", classes="xx")
    with (net / "classes.tsv").open("a") as file:
        file.write("lonely\tx\n")
    ran(tiny(f"data.dataset={net}", *NETWORK, "data.partition=edges:valid=0,test=0"), tmp_path / "run")
    assert "net: 1 of 61 vertices have no edge, and are with no client" in caplog.text
    assert "not possible for 3 of 3 clients: vertex classification: one class" in caplog.text
    assert "not possible for 3 of 3 clients: link prediction: 0 edges to test" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("privacy.dp.mode=top-edges",), "target_epsilon: missing"),
        (("privacy.dp.target_epsilon=1", "privacy.dp.mode=dpm", "model.name=LINE-1"), "set model.name = "),
        (("privacy.dp.target_epsilon=1", "privacy.dp.mode=dpm", "data.dataset=UMLS"), "network:graph=NAME"),
        (
            ("privacy.dp.target_epsilon=1", "privacy.dp.mode=dpne", 'model.options.solver="als"'),
            "finished rows",
        ),
    ],
)
def test_a_mode_that_cannot_be_is_refused_before_the_run(
    changes: tuple[str, ...], message: str, tiny: Callable[..., Experiment], tmp_path: Path
) -> None:
    net = f"data.dataset={blocks(tmp_path / 'net')}"
    base = [change for change in NETWORK if "solver" not in change]
    with pytest.raises(SettingError, match=message):
        ran(tiny(net, *base, "data.confidential=1.0", *changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
