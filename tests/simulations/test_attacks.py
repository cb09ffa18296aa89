"""Recorded runs under attack: what was received is what is attacked, and what cannot be attacked is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedkge.attacks import ATTACKS, PROTOCOLS, Attack, Finding, Truth, View
from fedkge.attacks.coalition import views_of
from fedkge.attacks.reconstruction.variants import Reconstruction
from fedkge.attacks.recorded_run import RecordedRun
from fedkge.attacks.view import UNKNOWN, Rows
from fedkge.client import participant
from fedkge.client.privacy import simulated_secret
from fedkge.errors import InputError, SettingError, UnknownNameError
from fedkge.exchange import Upload, decode
from fedkge.experiment import Experiment, Settings
from fedkge.server.transcript import Recording
from fedkge.simulations.cli import attack_command
from fedkge.simulations.report.charts.attack_plots import draw_budgets, draw_findings
from fedkge.simulations.runs import engines
from fedkge.simulations.runs import run as runs
from fedkge.simulations.runs.attacking import attack_run, publish
from fedkge.simulations.runs.comparison import compare
from fedkge.simulations.runs.run_folder import RunFolder
from tests.simulations.conftest import PLAIN, TINY
from tests.simulations.test_data_commands import fedkge

Tiny = Callable[..., Experiment]


def recorded(folder: Path, *changes: str) -> RecordedRun:
    runs.run(Experiment().override([*TINY, *changes]), folder)
    return RecordedRun(folder)


@pytest.fixture(scope="module")
def fede(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    changes = ("federation.strategy=FedE", "adversary.record=every", *PLAIN)
    return recorded(tmp_path_factory.mktemp("fede") / "run", *changes)


@pytest.fixture(scope="module")
def secret_fede(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    changes = (
        "federation.strategy=FedE",
        "adversary.record=every",
        "data.clients=5",
        "privacy.min_holders=2",
        "privacy.colluders=0",
    )
    return recorded(tmp_path_factory.mktemp("secret") / "run", *changes)


@pytest.fixture(scope="module")
def fedr(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    return recorded(
        tmp_path_factory.mktemp("fedr") / "run", "federation.strategy=FedR", "adversary.record=last"
    )


def view_of(run: RecordedRun, name: str, adversary: str = "server + client 0", ratio: float = 1.0) -> View:
    (view,) = [v for v in views_of(run, [0], ratio) if (v.name, v.adversary) == (name, adversary)]
    return view


def metric(findings: list[Finding], name: str, view: str, target: int) -> Finding:
    (found,) = [f for f in findings if (f.metric, f.view, f.target) == (name, view, target)]
    return found


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ("Local", "Local sends no embeddings"),
        ("Central", "Central sends no embeddings"),
        ("FedAvg", "FedAvg sends weights alone"),
    ],
)
def test_a_run_that_sends_no_embeddings_can_stand_beside_attacked_ones(
    strategy: str, why: str, tiny: Tiny, out: Path
) -> None:
    attacked = ("adversary.record=last", 'adversary.attacks=["reconstruction"]', "adversary.colluders=[0]")
    weights = ["model.name=R-GCN"] if strategy == "FedAvg" else []
    result = runs.run(tiny(f"federation.strategy={strategy}", *weights, *attacked), out)
    found = pd.read_csv(out / "findings.csv")
    assert (found["value"] == "not possible").all()
    assert found["note"].str.contains(why).all()
    assert set(result.summary["leakage"]["reconstruction"]) == set(PROTOCOLS)


def test_the_transcript_is_the_bytes_that_came(
    tiny: Tiny, out: Path, carried: list[tuple[engines.Envelope, bytes | None]]
) -> None:
    runs.run(tiny("federation.strategy=FedE", "adversary.record=every"), out)
    kept = Recording(out / "transcript")
    assert kept.rounds == [1, 2, 3, 4]
    sent = {
        (upload.round, upload.client): payload
        for letter, payload in carried
        if letter.kind == "train" and payload
        for upload in [decode(payload, Upload)]
    }
    for round in kept.rounds:
        for client in range(3):
            path = out / "transcript" / f"round-{round:06}" / f"client-{client}.bin"
            assert path.read_bytes() == sent[round, client]


def test_recording_changes_no_result_and_keeps_the_last_round_alone(tiny: Tiny, out: Path) -> None:
    plain = runs.run(tiny("federation.strategy=FedE"), out / "a")
    watched = runs.run(tiny("federation.strategy=FedE", "adversary.record=last"), out / "b")
    assert watched.summary["result_hash"] == plain.summary["result_hash"]
    assert watched.summary["experiment_hash"] == plain.summary["experiment_hash"]
    assert not (out / "a" / "transcript").exists()
    assert Recording(out / "b" / "transcript").rounds == [4]


def test_a_run_can_end_with_attacks(tiny: Tiny, out: Path) -> None:
    changes = ("federation.strategy=FedE", "adversary.record=last", 'adversary.attacks=["reconstruction"]')
    result = runs.run(tiny(*changes, "adversary.colluders=[2]"), out)
    assert set(result.summary["leakage"]["reconstruction"]) == {"paper", "rigorous"}
    assert json.loads((out / "summary.json").read_text()) == result.summary
    table = pd.read_csv(out / "findings.csv")
    assert set(table[table.adversary == "server + client 2"].target) == {0, 1}


def test_the_servers_view_has_every_clients_rows_by_name(fede: RecordedRun) -> None:
    view = view_of(fede, "uploads")
    assert [shot.round for shot in view.rounds] == [1, 2, 3, 4]
    assert {"GEE", "LEE", "EEP", "presence", "union"} == set(view.fields)
    assert not view.granted
    for client, graph in enumerate(fede.truth.clients):
        rows = view.last.lee[client]
        assert [view.entities[name] for name in rows.names] == sorted(graph.entity_labels)


def test_secure_aggregation_alone_does_not_stop_the_published_attack(
    fede: RecordedRun, secret_fede: RecordedRun
) -> None:
    aggregate = view_of(secret_fede, "aggregate")
    gee = aggregate.last.gee
    assert gee is not None
    state = secret_fede.state(0)
    labels = secret_fede.labels(0, "entity")
    own = [labels.index(aggregate.entities[name]) for name in gee.names]
    np.testing.assert_allclose(gee.values, state["entity"][own], atol=1e-6)  # the very rows, despite the sums
    found = attack_run(secret_fede.folder, ["reconstruction"], ["paper"])
    for target in (1, 2, 3, 4):
        assert metric(found, "ERR", "aggregate", target).value > 0.5
        assert metric(found, "TRR", "aggregate", target).value is not None


def test_masked_uploads_are_at_chance(secret_fede: RecordedRun) -> None:
    view = view_of(secret_fede, "masked uploads")
    assert view.sums_only
    assert all(rows.masked for rows in view.last.lee.values())
    graph = secret_fede.truth.clients[1]
    places = [graph.entity_labels.index(e) for e in view.entities if e in graph.entity_labels]
    own = secret_fede.state(1)["entity"][places].tobytes()
    assert view.last.lee[1].values[0].tobytes() not in own
    found = judged(view, secret_fede)
    names = {f.metric for f in found}
    assert {"ERR", "entity recall (overlap)", "recall", "presence AUC (entity)"} <= names
    # Masks are new each time, and findings about the same rows miss together; none may be far from guessing.
    assert np.mean([f.includes_guessing for f in found]) > 0.5
    for f in found:
        assert abs((f.value or 0) - (f.baseline or 0)) < 4 * ((f.high or 1) - (f.low or 0)), f


def test_the_same_rows_without_masks_are_far_from_chance(secret_fede: RecordedRun) -> None:
    """What the test above would see if masking failed."""
    view = view_of(secret_fede, "masked uploads")
    opened = {client: unmasked(view, secret_fede, client) for client in view.last.lee}
    last = replace(view.last, lee=opened)
    found = judged(replace(view, rounds=(*view.rounds[:-1], last)), secret_fede)
    assert np.mean([f.includes_guessing for f in found]) < 0.5
    assert all((f.value or 0) > 0.9 for f in found if f.metric == "ERR")


def judged(view: View, run: RecordedRun) -> list[Finding]:
    """The findings that can be compared with guessing."""
    return [
        f
        for protocol in PROTOCOLS
        for f in Reconstruction().assess(view, run.truth, protocol, np.random.default_rng(0))
        if f.baseline is not None and f.low is not None
    ]


def unmasked(view: View, run: RecordedRun, client: int) -> Rows:
    """A client's own rows where its masked ones stood."""
    rows, own = view.last.lee[client], run.state(client)["entity"]
    place = {label: i for i, label in enumerate(run.labels(client, "entity"))}
    values = np.zeros_like(rows.values)
    for i, name in enumerate(rows.names):
        if name != UNKNOWN and view.entities[name] in place:
            values[i] = own[place[view.entities[name]]]
    return replace(rows, values=values)


def test_a_hidden_union_shows_nobody_who_holds_what(tmp_path: Path) -> None:
    changes = ("federation.strategy=FedE", "adversary.record=last", "privacy.union=oprf")
    run = recorded(tmp_path / "run", *changes, "privacy.query_budget=256", "federation.rounds=2")
    assert not any(view.presence for view in views_of(run, [0], 1.0))


def test_a_curious_client_has_its_own_pairs_and_what_it_was_sent(secret_fede: RecordedRun) -> None:
    view = view_of(secret_fede, "broadcasts", "client 0")
    assert set(view.entities) == set(secret_fede.labels(0, "entity"))
    assert not view.last.lee
    assert not view.presence
    assert not view.holders
    assert len(view.rounds) == 4


def test_fedr_sends_nothing_that_could_name_an_entity(fedr: RecordedRun) -> None:
    found = attack_run(fedr.folder, ["reconstruction"], ["paper"])
    for view in ("masked uploads", "aggregate", "broadcasts"):
        for f in found:
            if f.view == view:
                assert f.value is None
                assert "entity rows" in f.note or "no client colludes" in f.note
    granted = view_of(fedr, "granted entity rows")
    assert granted.granted == ("LEE",)
    assert (granted.last.lee[1].names == UNKNOWN).all()
    assert metric(found, "ERR", "granted entity rows", 1).granted == "LEE"


def test_own_starts_hide_what_common_starts_give_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entity rows of FedR start from each client's own secret; a common one is what would give them away."""
    changes = ("federation.strategy=FedR", "adversary.record=last", *PLAIN, "federation.rounds=2")
    rates = {}
    for start in ("own", "common"):
        with monkeypatch.context() as patch:
            if start == "common":
                patch.setattr(participant, "simulated_secret", lambda seed, client: simulated_secret(seed, 0))
            run = recorded(tmp_path / start, *changes)
        findings = attack_run(run.folder, ["reconstruction"], ["paper"])
        rates[start] = metric(findings, "ERR", "granted entity rows", 1).value
    assert rates["common"] > 0.5 > 0.2 > rates["own"]


def test_leak_ratios_are_swept_and_drawn(fede: RecordedRun) -> None:
    found = attack_run(fede.folder, ["reconstruction"], ["paper"], leak_ratios=[0.3, 1.0])
    rates = {f.leak_ratio: f.value for f in found if (f.metric, f.view, f.target) == ("ERR", "uploads", 1)}
    assert rates[0.3] < 0.5 < rates[1.0]
    publish(fede.folder, found)
    for path in draw_findings(fede.folder, found, [fede.folder]):
        assert path.read_bytes()[:4] == b"\x89PNG"


def test_the_command_prints_findings(fede: RecordedRun) -> None:
    done = fedkge(
        "attack",
        fede.folder,
        "--protocol",
        "paper",
        "--leak-ratio",
        "0.5",
        "--colluders",
        "1",
        "-q",
        "--no-plots",
    )
    assert done.returncode == 0, done.stderr
    for word in ("server + client 1", "ERR", "TRR", "not possible", "findings.csv"):
        assert word in done.stdout
    listed = fedkge("list", "attacks")
    assert "reconstruction" in listed.stdout
    assert "procrustes" in listed.stdout


def test_what_is_read_is_printed_as_read(capsys: pytest.CaptureFixture[str]) -> None:
    about = ("holdings", "rigorous", "uploads", "server", "", 0.0, 1, "relation rows", "holding AUC")
    note = "read: rows travel by name"
    for finding, last in (
        (Finding(*about, 1.0, note=note), "read"),
        (Finding(*about, 0.7, 0.6, 0.8, baseline=0.5, note="guessed"), "0.5000"),
    ):
        attack_command._show([finding])
        assert capsys.readouterr().out.split()[-1] == last


def test_a_report_side_by_side_knows_of_an_attack_on_one_of_its_runs(tiny: Tiny, tmp_path: Path) -> None:
    out = tmp_path / "c"
    compare(tiny("adversary.record=last", "federation.rounds=1"), ["FedE"], out)
    assert "not attacked" in (out / "report.html").read_text(encoding="utf-8")
    done = fedkge("attack", out / "FedE-seed0", "--protocol", "paper", "--colluders", "0", "-q", "--no-plots")
    assert done.returncode == 0, done.stderr
    assert "not attacked" not in (out / "report.html").read_text(encoding="utf-8")


def test_bad_input_is_one_line_that_names_the_remedy(fede: RecordedRun, tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"recorded no view; run it again with .*adversary\.record=last"):
        attack_run(
            runs.run(tiny("federation.strategy=FedE", "federation.rounds=1"), tmp_path / "bare").folder
        )
    with pytest.raises(InputError, match="not a run folder"):
        attack_run(tmp_path)
    with pytest.raises(SettingError, match="client 7 is not in the roster; choose from 0 to 2"):
        attack_run(fede.folder, colluders=[7])
    with pytest.raises(SettingError, match="names a client twice"):
        attack_run(fede.folder, colluders=[1, 1])
    with pytest.raises(SettingError, match="nobody is left to attack"):
        attack_run(fede.folder, colluders=[0, 1, 2])
    for ratio in (0.0, -1.0, 1.5):
        with pytest.raises(SettingError, match="above 0 and at most 1"):
            attack_run(fede.folder, leak_ratios=[ratio])
    with pytest.raises(UnknownNameError, match="Did you mean 'reconstruction'"):
        attack_run(fede.folder, ["reconstrution"])
    with pytest.raises(UnknownNameError, match="unknown attack"):
        runs.run(tiny('adversary.attacks=["nothing"]', "adversary.record=last"), tmp_path / "x")
    with pytest.raises(SettingError, match=r"adversary\.record = \"last\""):
        runs.run(tiny('adversary.attacks=["reconstruction"]'), tmp_path / "x")
    with pytest.raises(SettingError, match="not in the roster"):
        runs.run(tiny("adversary.colluders=[3]"), tmp_path / "x")
    with pytest.raises(SettingError, match=r"adversary\.leak_ratio: expected a number above 0"):
        tiny("adversary.leak_ratio=0.0")
    local = recorded(tmp_path / "local", "federation.strategy=Local", "adversary.record=last", *PLAIN)
    with pytest.raises(InputError, match="sends no rows"):
        attack_run(local.folder)


class BusyOptions(Settings):
    least: int = 1


class Busy(Attack):
    """How many named entities does each client show?"""

    Options = BusyOptions

    def assess(self, view: View, truth: Truth, protocol: str, rng: np.random.Generator) -> list[Finding]:
        shown = {client: int((rows.names != UNKNOWN).sum()) for client, rows in view.last.lee.items()}
        return [
            Finding.of("busy", protocol, view, target, "entities", float(shown[target]))
            for target in view.targets
            if shown.get(target, 0) >= self.options.least
        ]


def test_an_attack_of_a_plug_in_runs_with_options_of_its_own(
    tiny: Tiny, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ATTACKS, "busy", Busy)
    short = tiny("federation.strategy=FedE", "federation.rounds=1", "adversary.record=last", *PLAIN)
    with pytest.raises(SettingError, match=r"adversary\.options\.busy\.most: unknown key; known keys: least"):
        runs.run(short.override(['adversary.attacks=["busy"]', "adversary.options.busy.most=2"]), out)
    with pytest.raises(SettingError, match=r"adversary\.options\.busy\.least: expected a whole number"):
        runs.run(short.override(['adversary.attacks=["busy"]', "adversary.options.busy.least=many"]), out)
    with pytest.raises(UnknownNameError, match="Did you mean 'busy'"):
        runs.run(short.override(["adversary.options.bussy.least=2"]), out)
    runs.run(short, out)
    sizes = [graph.num_entities for graph in RecordedRun(out).truth.clients]
    every = attack_run(out, ["busy"], ["paper"])
    assert {f.target: f.value for f in every if f.adversary == "server"} == dict(enumerate(sizes))
    bar = max(sizes)
    changed = short.override([f"adversary.options.busy.least={bar}", "data.clients=3"])
    (out / "experiment.toml").write_text(changed.to_toml())
    few = [f for f in attack_run(out, ["busy"], ["paper"]) if f.adversary == "server"]
    assert [f.target for f in few] == [client for client, size in enumerate(sizes) if size >= bar]
    publish(out, every)
    assert RunFolder.read(out).findings == every


def test_leakage_and_utility_are_drawn_over_epsilon(fede: RecordedRun, tiny: Tiny, tmp_path: Path) -> None:
    private = tmp_path / "private"
    changes = ("federation.strategy=FedE", "adversary.record=last", "data.confidential=0.5")
    runs.run(tiny(*changes, "privacy.dp.sigma=2.0", 'adversary.attacks=["reconstruction"]'), private)
    publish(fede.folder, attack_run(fede.folder, ["reconstruction"], ["paper"], [0]))
    path = draw_budgets(tmp_path / "budgets.png", [private, fede.folder])
    assert path.stat().st_size > 1000


def test_findings_of_other_attacks_stay_in_the_folder(tmp_path: Path) -> None:
    """Attacking again renews the findings of the same attack alone."""
    folder = recorded(tmp_path / "run", "federation.strategy=FedE", "adversary.record=last", *PLAIN).folder
    publish(folder, attack_run(folder, ["membership"], ["rigorous"]))
    publish(folder, attack_run(folder, ["reconstruction"], ["paper"]))
    first = RunFolder(folder).findings
    assert {finding.attack for finding in first} == {"membership", "reconstruction"}
    publish(folder, attack_run(folder, ["reconstruction"], ["paper"]))
    assert sorted(map(str, RunFolder(folder).findings)) == sorted(map(str, first))
