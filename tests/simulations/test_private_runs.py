"""Runs whose clients train privately: with and without secure sums, mixed, stopped, resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedkge.client.privacy import MECHANISMS
from fedkge.client.privacy.sound import Sound
from fedkge.datasets import load_graph, mark, write_graph
from fedkge.errors import DataError, SettingError, UnknownNameError
from fedkge.experiment import DPSettings, Experiment, Settings
from fedkge.server.guarantees import guarantees
from fedkge.simulations.runs import engines
from fedkge.simulations.runs import run as runs

Make = Callable[..., Experiment]
HALF = ("data.confidential=0.5", "training.local_epochs=1")
SIMULATED = "guaranteed if the client secrets are secret; in this simulation they come from the seed"


class Crash(BaseException):
    """Stands for a process that ends without a word."""


@pytest.mark.parametrize("strategy", ["FedE", "FedR"])
@pytest.mark.parametrize("protected", [False, True])
def test_private_clients_take_part_in_a_federation(
    strategy: str, protected: bool, tiny: Make, secret: Make, out: Path
) -> None:
    """Client 1 has more noise, client 2 none."""
    mixed = "clients=[{client=1, sigma=3.0}, {client=2, mode='off'}]"
    make = secret if protected else tiny
    result = runs.run(make(f"federation.strategy={strategy}", *HALF, "privacy.dp.sigma=1.0", mixed), out)
    privacy = result.summary["privacy"]
    assert set(privacy["epsilon"]) == {"0", "1"}
    assert privacy["epsilon"]["0"] > 2 * privacy["epsilon"]["1"] > 0
    assert privacy["claimed_or_guaranteed"] == {"0": SIMULATED, "1": SIMULATED}
    for number in range(2):
        count = int(load_graph(out / "data" / f"client-{number}").marks("train").sum())
        assert 0 < privacy["delta"][str(number)] < 1 / count
    assert any(line.startswith("test scores") for line in privacy["outside_epsilon"])
    assert not any("validation" in line for line in privacy["outside_epsilon"])
    assert any("private training" in line for line in privacy["what_the_server_learned"])
    found = result.metrics[result.metrics.metric == "epsilon"]
    assert set(map(str, found.client)) == {"0", "1"}
    assert list(found["round"].unique()) == [2, 4]
    last = found[found["round"] == 4].set_index(found[found["round"] == 4].client.astype(str)).value
    assert last.to_dict() == pytest.approx(privacy["epsilon"])


def test_a_run_without_private_training_claims_nothing(tiny: Make, out: Path) -> None:
    privacy = runs.run(tiny(), out).summary["privacy"]
    assert privacy["epsilon"] is privacy["delta"] is privacy["claimed_or_guaranteed"] is None


@pytest.mark.parametrize(
    ("change", "bare"), [("privacy.dp.mode='off'", True), ("privacy.dp.sigma=1.0", False)]
)
def test_confidential_triples_without_protection_are_warned_of(
    change: str, bare: bool, tiny: Make, out: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs.run(tiny(*HALF, change), out)
    assert ("without differential privacy" in caplog.text) == bare
    assert ("without differential privacy" in (out / "report.html").read_text(encoding="utf-8")) == bare


@pytest.mark.parametrize("protected", [False, True])
def test_a_crash_and_a_resume_give_the_same_bits_and_the_same_ledger(
    protected: bool, tiny: Make, secret: Make, tmp_path: Path
) -> None:
    make = secret if protected else tiny
    budget = ("privacy.dp.sigma=1.0", "privacy.dp.budget=2.9", "training.batch_size=64")
    experiment = make(*HALF, *budget, "federation.rounds=6")

    def crash(progress: Any) -> None:
        if progress.round == 3 and progress.loss is not None:
            raise Crash

    whole = runs.run(experiment, tmp_path / "whole").summary
    with pytest.raises(Crash):
        runs.run(experiment, tmp_path / "cut", crash)
    resumed = runs.resume(tmp_path / "cut").summary
    assert resumed["result_hash"] == whole["result_hash"]
    assert resumed["privacy"]["differential_privacy"] == whole["privacy"]["differential_privacy"]
    accounts = whole["privacy"]["differential_privacy"].values()
    assert all(account["budget_spent"] for account in accounts)
    assert all(2 < account["epsilon"] <= 2.9 for account in accounts)


def test_ray_gives_the_same_bits(secret: Make, tmp_path: Path, ray_running: Any) -> None:
    settings = ("federation.rounds=2", *HALF, "privacy.dp.sigma=1.0", "clients=[{client=2, mode='off'}]")
    inline, ray = (
        runs.run(secret(*settings, f"engine.name={name}"), tmp_path / name).summary
        for name in ("inline", "ray")
    )
    assert ray["result_hash"] == inline["result_hash"]
    assert ray["privacy"] == inline["privacy"]
    assert set(inline["privacy"]["epsilon"]) == {"0", "1"}


def test_the_paper_s_epsilon_is_a_claim_with_its_reasons(tiny: Make, out: Path) -> None:
    privacy = runs.run(tiny(*HALF, "privacy.dp.mode=paper"), out).summary["privacy"]
    assert set(privacy["claimed_or_guaranteed"].values()) == {"claimed"}
    assert sum(line.startswith("why a claim") for line in privacy["outside_epsilon"]) == 5
    assert any(line.startswith("validation scores") for line in privacy["outside_epsilon"])


def test_all_triples_confidential_leave_nothing_to_choose_by(tiny: Make, out: Path) -> None:
    """No loss is told and no validation triple ranked: the last round stands."""
    private = ("data.confidential=1.0", "privacy.dp.mode=sound", "training.local_epochs=1")
    result = runs.run(tiny(*private), out)
    assert "loss" not in set(result.metrics.metric)
    assert result.summary["utility"]["valid"]["count"] == 0
    assert result.summary["utility"]["best_round"] == 4


@pytest.mark.parametrize("mode", ["sound", "off"])
@pytest.mark.parametrize("protected", [False, True])
def test_a_simulation_reports_confidential_and_unrestricted_triples_apart(
    protected: bool, mode: str, tiny: Make, secret: Make, out: Path
) -> None:
    make = secret if protected else tiny
    result = runs.run(make(*HALF, f"privacy.dp.mode={mode}"), out)
    utility = result.summary["utility"]
    graphs = [load_graph(out / "data" / f"client-{number}") for number in range(3)]
    for split in ("valid", "test"):
        parts, rows = utility["apart"][split], result.metrics
        confidential = sum(int(graph.marks(split).sum()) for graph in graphs)
        assert parts["confidential"]["count"] == confidential > 0
        assert parts["unrestricted"]["count"] == sum(len(graph[split]) for graph in graphs) - confidential
        for part, scores in parts.items():
            found = rows[(rows.split == f"{split} {part}") & (rows.metric == "mrr")]
            assert found.value.tolist() == [pytest.approx(scores["mrr"]["value"])]
    weighed = sum(part["mrr"]["value"] * part["count"] for part in utility["apart"]["test"].values())
    assert weighed / utility["test"]["count"] == pytest.approx(utility["test"]["mrr"]["value"], rel=1e-6)
    assert "test, confidential" in (out / "report.html").read_text(encoding="utf-8")


def test_validation_is_over_unrestricted_triples(tiny: Make, tmp_path: Path) -> None:
    counts = {}
    for which in ("unrestricted", "all"):
        experiment = tiny(*HALF, "privacy.dp.sigma=1.0", f"privacy.dp.validation={which}")
        summary = runs.run(experiment, tmp_path / which).summary
        counts[which] = summary["utility"]["valid"]["count"]
        said = any(line.startswith("validation") for line in summary["privacy"]["outside_epsilon"])
        assert said == (which == "all")
    graphs = [load_graph(tmp_path / "all" / "data" / f"client-{number}") for number in range(3)]
    assert counts["all"] == sum(len(graph.valid) for graph in graphs)
    assert counts["unrestricted"] == sum(int((~graph.marks("valid")).sum()) for graph in graphs)


def test_no_confidential_triple_decides_what_leaves_a_client_before_training(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget of nothing: two runs that differ in confidential triples alone send the same bytes."""
    sent = []
    for turned in (False, True):
        folder = tmp_path / str(turned)
        split = runs.divide(tiny(*HALF))
        if turned:
            graphs = []
            for graph in split.clients:
                train, marks = graph.train.copy(), graph.marks("train")
                train[marks] = train[marks][:, [2, 1, 0]]
                graphs.append(replace(graph, train=train))
            split = type(split).of(split.name, graphs, split.partition, split.seed)
        experiment = tiny(*HALF, "privacy.dp.budget=0", "model.name=TransM", "federation.strategy=FedER")
        summary = runs.run(experiment, folder, split=split).summary
        sent.append(_tables(folder))
        assert set(summary["privacy"]["epsilon"].values()) == {0.0}
    assert sent[0] == sent[1]


def test_pooled_data_keeps_its_marks(tiny: Make, out: Path) -> None:
    runs.run(tiny(*HALF, "federation.strategy=Central", "privacy.dp.sigma=1.0"), out)
    graph = load_graph(out / "data" / "client-0")
    assert 0.4 < graph.marks("train").mean() < 0.6


def test_a_client_may_bring_its_own_data(tiny: Make, tmp_path: Path) -> None:
    own = mark(load_graph("UMLS"), "0.3", 5)
    write_graph(tmp_path / "own", own)
    settings = (f"clients=[{{client=1, data='{tmp_path / 'own'}', sigma=2.0}}]", "federation.rounds=2")
    result = runs.run(tiny(*settings), tmp_path / "run")
    assert set(result.summary["privacy"]["epsilon"]) == {"1"}
    assert len(load_graph(tmp_path / "run" / "data" / "client-1").train) == len(own.train)


def test_secrets_come_from_the_operating_system_outside_simulations(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = engines.open_grid
    monkeypatch.setattr(
        runs,
        "open_grid",
        lambda run_id, experiment, nodes, settings: serve(
            run_id,
            experiment,
            {n: {k: v for k, v in config.items() if k != "simulated"} for n, config in nodes.items()},
            settings,
        ),
    )
    experiment = tiny(*HALF, "privacy.dp.sigma=1.0", "federation.rounds=2")
    first, second = (runs.run(experiment, tmp_path / name).summary for name in ("a", "b"))
    assert set(first["privacy"]["claimed_or_guaranteed"].values()) == {"guaranteed"}
    assert first["result_hash"] != second["result_hash"]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ((), DataError, r"client-0: no confidential triples, but privacy\.dp\.mode"),
        ((*HALF, "privacy.dp.delta=0.1"), SettingError, r"0\.1 is not below 1 / \d+ confidential triples"),
        ((*HALF, "privacy.dp.percentile=50"), SettingError, r'percentile: mode "sound" takes no percentile'),
        ((*HALF, "federation.weighting=triples"), SettingError, r"'triples' tells how many triples"),
        ((*HALF, "clients=[{client=3}]"), SettingError, r"there is no client 3; the last of 3 is 2"),
        ((*HALF, "privacy.dp.mode=paper", "model.name=TransH"), SettingError, "not supported for TransH"),
        ((*HALF, "privacy.dp.mode=sond"), UnknownNameError, r"unknown DP mode 'sond'.*Did you mean 'sound'"),
        ((*HALF, "clients=[{client=1, mode='of'}]"), UnknownNameError, r"unknown DP mode 'of'.*'off'"),
        ((*HALF, "privacy.dp.options.mu=1"), SettingError, r"privacy\.dp\.options\.mu: unknown key"),
    ],
)
def test_bad_input_is_refused_before_a_folder_is_made(
    settings: tuple[str, ...], error: type[Exception], message: str, tiny: Make, out: Path
) -> None:
    with pytest.raises(error, match=message):
        runs.run(tiny("privacy.dp.mode=sound", *settings), out)
    assert not out.exists()


def test_guarantees_are_told_by_client() -> None:
    account = {"epsilon": 1.0, "delta": 1e-5}
    sure = {**account, "standing": "guaranteed", "outside": ["test scores"]}
    told = guarantees(
        {4: sure, 2: {**account, "standing": "claimed", "outside": ["test scores", "why a claim"]}}
    )
    assert told["claimed_or_guaranteed"] == {"2": "claimed", "4": "guaranteed"}
    assert told["outside_epsilon"] == ["test scores", "why a claim"]
    assert json.loads(json.dumps(told)) == told


class Loud(Sound):
    """`sound` with as many times the noise as its options say; it pays for that noise."""

    class Options(Settings):
        times: float = 2.0

    summary = "rows are noised several times over"

    def __init__(self, dp: DPSettings) -> None:
        super().__init__(dp)
        self.dp = dp.model_copy(update={"sigma": self.options.times * dp.sigma})


@pytest.mark.parametrize("protected", [False, True])
def test_a_mechanism_from_outside_takes_part_in_a_run_with_options_of_its_own(
    protected: bool, tiny: Make, secret: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Client 1 has another mode, to which those options mean nothing."""
    monkeypatch.setitem(MECHANISMS, "loud", Loud)
    loud = ("privacy.dp.mode=loud", "privacy.dp.options.times=3.0", "clients=[{client=1, mode='sound'}]")
    make = secret if protected else tiny
    experiment = make(*HALF, *loud, "federation.rounds=2")
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    privacy = runs.run(experiment, tmp_path / "loud").summary["privacy"]
    accounts = privacy["differential_privacy"]
    assert [accounts[client]["mode"] for client in "012"] == ["loud", "sound", "loud"]
    assert [accounts[client]["events"][0][0] for client in "012"] == [3.0, 1.0, 3.0]
    assert set(privacy["claimed_or_guaranteed"].values()) == {SIMULATED}
    assert "rows are noised several times over" in (tmp_path / "loud" / "report.html").read_text("utf-8")


def test_a_client_s_own_options_are_kept_in_the_file(tiny: Make) -> None:
    experiment = tiny("clients=[{client=1, mode='loud', options={times=4.0, names=['a', 'b']}}, {client=2}]")
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert experiment.dp_of(1).options == {"times": 4.0, "names": ["a", "b"]}
    assert experiment.dp_of(2).options == {}


def _tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "embeddings").glob("*.safetensors"))}
