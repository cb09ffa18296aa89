"""Federations whose server acts: what it may alter, what it sees, and what that tells."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedkge.attacks import Finding
from fedkge.attacks.behaviours.acting_server import ActingServer
from fedkge.attacks.membership.federated.games import Game
from fedkge.attacks.membership.guesses import DECISIONS
from fedkge.client.participant import Participant
from fedkge.errors import FederationError, InputError, SettingError, UnknownNameError
from fedkge.exchange import Download, Upload, decode
from fedkge.experiment import Experiment
from fedkge.simulations.runs import engines, tampered
from fedkge.simulations.runs.run import divide, result_of, resume, run
from fedkge.simulations.runs.tampered import act, serve_actively
from tests.simulations.conftest import PLAIN, TINY
from tests.simulations.mishaps import Crash
from tests.simulations.test_data_commands import fedkge

Make = Callable[..., Experiment]
Carried = list[tuple[engines.Envelope, bytes | None]]

SPARSE = (
    "federation.strategy=FedE",
    "model.name=TransE",
    "data.dataset=synthetic:entities=200,relations=3,triples=500,jitter=3.0",
)
HARD = (  # few triples, trained on for many epochs
    *SPARSE,
    "data.clients=2",
    "federation.evaluate_every=4",
    "training.local_epochs=20",
    "training.learning_rate=0.02",
    "training.batch_size=64",
)
FEW_HELD = (  # a label must be held by all three, and hardly any is
    "data.dataset=synthetic:entities=60,relations=3,triples=60",
    "data.partition=relation",
    "privacy.min_holders=3",
    "privacy.colluders=0",
)
SEEDS = range(3)


def areas(findings: Sequence[Finding], signal: str) -> list[float]:
    regime = f"{signal}, all"
    return [f.value for f in findings if (f.metric, f.regime) == ("auc", regime) and f.value is not None]


def pooled(make: Make, folder: Path, signal: str, seeds: Sequence[int] = SEEDS) -> list[float]:
    """The area about every client, for each seed."""
    return [
        area
        for seed in seeds
        for area in areas(
            serve_actively(make(*HARD, f"seed={seed}"), folder / f"{seed}", [], first=2), signal
        )
    ]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Game], Game]], None]:
    """Changes the questions that are put to the server."""

    def change(questions: Callable[[Game], Game]) -> None:
        nameable = tampered._nameable
        monkeypatch.setattr(tampered, "_nameable", lambda *arguments: questions(nameable(*arguments)))

    return change


# What it tells.


def test_hard_training_repairs_what_the_server_pushed_apart(tiny: Make, out: Path) -> None:
    """One area is of some 50 triples, with a standard error of about .08: six are taken together."""
    values = pooled(tiny, out, "repair")
    assert len(values) == 6
    assert np.mean(values) > 0.65


def test_triples_that_nobody_trains_on_are_not_repaired(
    tiny: Make, out: Path, asked: Callable[[Callable[[Game], Game]], None]
) -> None:
    """Of triples that are all held out, half are called members: standard error of the mean about .05."""

    def held_out(game: Game) -> Game:
        others = game.among(~game.answers.member)
        called = np.random.default_rng(len(others)).permutation(len(others)) % 2 == 0
        return replace(others, answers=replace(others.answers, member=called))

    asked(held_out)
    values = pooled(tiny, out, "repair")
    assert len(values) == 6
    assert abs(np.mean(values) - 0.5) < 0.15


def test_answers_score_guesses_and_nothing_else(
    tiny: Make, out: Path, asked: Callable[[Callable[[Game], Game]], None]
) -> None:
    """With members and others exchanged the areas are mirrored: the same guesses were scored."""
    experiment = tiny(*HARD)
    first = serve_actively(experiment, out / "true", [], first=2)
    asked(lambda game: replace(game, answers=replace(game.answers, member=~game.answers.member)))
    second = serve_actively(experiment, out / "false", [], first=2)
    for signal in ("score (passive)", "gain (passive)", "repair", "repair above the gain"):
        mirrored = [1 - area for area in areas(second, signal)]
        assert areas(first, signal) == pytest.approx(mirrored)


def test_same_seed_same_findings(tiny: Make, out: Path) -> None:
    first, second = (serve_actively(tiny(*HARD), out / name, [0], first=2) for name in ("a", "b"))
    assert first == second
    assert {finding.target for finding in first} == {1}
    assert first != serve_actively(tiny(*HARD, "seed=1"), out / "c", [0], first=2)


@pytest.mark.parametrize("attack", ["active", "tampering"])
def test_degrees_are_a_control_of_every_rigorous_guess(attack: str, tiny: Make, out: Path) -> None:
    """As of `membership`: what the frequency of entities tells is no success of acting."""
    findings = act(attack, tiny(*HARD), out, [1])
    asked = {(f.metric, f.regime.split(", ")[1]) for f in findings if f.regime.startswith("repair, ")}
    controls = [f for f in findings if f.regime.startswith("control: degrees, ")]
    assert {f.protocol for f in controls} == {"rigorous"}
    assert {(f.metric, f.regime.split(", ")[1]) for f in controls} == {
        (metric, subset) for metric, subset in asked if metric != "accuracy" and metric not in DECISIONS
    }


# What it alters, and what it sees.


@pytest.mark.parametrize("privacy", ["tiny", "secret"])
def test_a_push_of_no_length_leaves_the_run_as_it_is(
    privacy: str, request: pytest.FixtureRequest, out: Path
) -> None:
    """Watching changes nothing; and what is pushed changes the run, or this test would see nothing."""
    experiment = request.getfixturevalue(privacy)(*SPARSE)
    honest = run(experiment, out / "honest").summary["result_hash"]
    for strength, unchanged in ((0.0, True), (0.3, False)):
        folder = out / f"{strength}"
        serve_actively(experiment, folder, [0], strength, first=2)
        summary = json.loads((folder / "summary.json").read_text())
        assert (summary["result_hash"] == honest) is unchanged


def sent(carried: Carried) -> dict[tuple[int, int], Download]:
    """What each client was sent to train on, by round."""
    trained = [
        (letter.node, decode(letter.payload, Download)) for letter, _ in carried if letter.kind == "train"
    ]
    carried.clear()
    return {(download.round, node): download for node, download in trained}


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[ActingServer]:
    """The malicious servers that were made."""
    made: list[ActingServer] = []

    class Kept(ActingServer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(tampered, "ActingServer", Kept)
    return made


def test_it_alters_the_rows_of_the_rounds_triples_and_no_others(
    tiny: Make, out: Path, carried: Carried, servers: list[ActingServer]
) -> None:
    """It acts in the last round alone, so that the honest run is the same until then."""
    experiment = tiny(*SPARSE, "federation.rounds=3", "federation.evaluate_every=3")
    run(experiment, out / "honest")
    honest = sent(carried)
    serve_actively(experiment, out / "acting", [0], first=3)
    acting = sent(carried)
    assert honest.keys() == acting.keys()
    nodes = sorted({node for _, node in honest})
    (server,) = servers
    row_of = {label: row for row, label in enumerate(sorted(union_of(experiment)))}
    for (round, node), download in acting.items():
        client = nodes.index(node)
        moved = moved_rows(honest[round, node], download)
        if round < 3 or client == 0:
            assert moved == set()
            continue
        questions = server.asked[client]
        ends = questions.triples[questions.during(3)][:, [0, 2]].ravel()
        assert moved == {row_of[server.entities[end]] for end in ends.tolist()} != set()


def union_of(experiment: Experiment) -> set[str]:
    return {label for graph in divide(experiment).clients for label in graph.entity_labels}


def moved_rows(before: Download, after: Download) -> set[int]:
    """The entity rows that differ; all else must be the same."""
    assert (before.round, before.metadata, set(before.tables)) == (
        after.round,
        after.metadata,
        set(after.tables),
    )
    if "entity" not in before.tables:
        return set()
    first, second = before.tables["entity"], after.tables["entity"]
    assert (first.ids == second.ids).all()
    return set(first.ids[(first.rows != second.rows).any(axis=1)].tolist())


def test_questions_do_not_say_who_is_a_member(servers: list[ActingServer], tiny: Make, out: Path) -> None:
    """The server is handed triples and rounds; nothing of its size says which are members."""
    serve_actively(tiny(*SPARSE), out, [0], first=2)
    (server,) = servers
    for questions in server.asked.values():
        assert set(vars(questions)) - {"numbered"} == {"triples", "rounds"}
    assert not any(isinstance(value, Game) for value in vars(server).values())


# Under secure sums.


def test_a_sum_is_asked_about_all_others_and_needs_a_colluder(secret: Make, out: Path) -> None:
    with pytest.raises(SettingError, match=r"does not know which to push; name a colluder, such as --coll"):
        serve_actively(secret(*SPARSE), out, [])
    assert not out.exists()
    findings = serve_actively(secret(*SPARSE), out, [0], first=2)
    assert {(finding.view, finding.target) for finding in findings} == {("sums after acting", None)}
    for finding in findings:
        assert finding.possible or finding.note
    (area,) = areas(findings, "repair")
    assert 0 <= area <= 1


def test_rows_that_do_not_travel_are_not_possible(secret: Make, out: Path) -> None:
    """Too few labels have as many holders as the union asks for: the colluder numbers rows nobody sends."""
    (finding,) = serve_actively(secret(*SPARSE, *FEW_HELD), out, [0], first=2)
    assert not finding.possible
    assert "run more rounds" in finding.note


# What cannot be resumed.


@pytest.mark.parametrize("attack", ["active", "tampering"])
def test_a_run_in_which_somebody_acts_is_run_again_and_not_resumed(
    attack: str, tiny: Make, out: Path
) -> None:
    """Whatever stops it: an honest continuation would be published as the run of an adversary."""

    def crash(progress: Any) -> None:
        if progress.round == 3:
            raise Crash

    with pytest.raises(Crash):
        act(attack, tiny(*SPARSE), out, [1], observer=crash)
    assert (out / "checkpoint" / "server.json").exists()
    again = f"run it again: fedkge attack {out / 'experiment.toml'} --attack {attack}"
    for read in (resume, result_of):
        with pytest.raises(InputError, match=re.escape(again)):
            read(out)
    assert not (out / "summary.json").exists()
    assert Experiment.load(out / "experiment.toml").adversary.colluders == (1,)
    with pytest.raises(InputError, match=r"choose another --out$"):
        run(tiny(*SPARSE), out)


def test_the_message_of_a_run_that_stops_says_why_and_offers_nothing_in_vain(
    tiny: Make, tmp_path: Path
) -> None:
    """Who drops out is drawn from the seed: going on would stop at the same place, whoever acts."""
    experiment = tiny(*SPARSE, "federation.dropout=0.9")
    with pytest.raises(FederationError) as honest:
        run(experiment, tmp_path / "honest")
    with pytest.raises(FederationError) as acting:
        act("active", experiment, tmp_path / "acting", [])
    assert str(honest.value) == str(acting.value)
    assert "0 of 3 clients take part" in str(acting.value)
    assert "federation.dropout = 0.9" in str(acting.value)
    assert "resume" not in str(acting.value)


def test_a_client_that_fails_is_named_and_no_resume_is_offered(
    tiny: Make, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Participant.train

    def sometimes(self: Participant, download: Download) -> Upload:
        if (self.client, download.round) == (0, 3):
            raise RuntimeError("out of coffee")
        return train(self, download)

    monkeypatch.setattr(Participant, "train", sometimes)
    with pytest.raises(
        FederationError, match=r"2 of 3 clients answered.*out of coffee.*run it again"
    ) as error:
        act("active", tiny(*SPARSE, "federation.min_clients=3"), out, [])
    assert "--resume" not in str(error.value)


# What is refused, or not possible.


@pytest.mark.parametrize("attack", ["active", "tampering"])
@pytest.mark.parametrize("strategy", ["FedR", "Local", "Central"])
@pytest.mark.parametrize("privacy", ["tiny", "secret"])
def test_strategies_without_entity_rows_are_refused_before_anything_runs(
    attack: str, strategy: str, privacy: str, request: pytest.FixtureRequest, out: Path
) -> None:
    experiment = request.getfixturevalue(privacy)(*SPARSE, f"federation.strategy={strategy}")
    with pytest.raises(SettingError, match=f"{strategy} shares no entity rows .*'{attack}' is not possible"):
        act(attack, experiment, out, [0])
    assert not out.exists()


def test_what_cannot_be_asked_is_refused_before_anything_runs(tiny: Make, out: Path) -> None:
    with pytest.raises(SettingError, match="nobody is left to attack"):
        serve_actively(tiny(*SPARSE), out, [0, 1, 2])
    with pytest.raises(SettingError, match="not in the roster"):
        serve_actively(tiny(*SPARSE), out, [3])
    for first in (1, 5):
        with pytest.raises(SettingError, match="2 to 4 were expected, since the round before is the control"):
            serve_actively(tiny(*SPARSE), out, [], first=first)
    with pytest.raises(SettingError, match=r"adversary\.options\.active\.strength"):
        act("active", tiny(*SPARSE, "adversary.options.active.strength=-1.0"), out)
    with pytest.raises(SettingError, match="name the client that does: --colluders 0"):
        act("tampering", tiny(*SPARSE), out, [])
    with pytest.raises(InputError, match="fedkge attack RUN_DIR --attack membership"):
        act("membership", tiny(*SPARSE), out)
    with pytest.raises(UnknownNameError, match=r"known: active, .*reconstruction, tampering"):
        act("nothing", tiny(*SPARSE), out)
    assert not out.exists()


# The command.


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("acting") / "acting.toml"
    path.write_text(Experiment().override([*TINY, *PLAIN, *SPARSE, "name=acting"]).to_toml())
    return path


@pytest.mark.parametrize(("attack", "view"), [("active", "uploads"), ("tampering", "broadcasts")])
def test_the_command_runs_the_experiment_and_prints_findings(
    attack: str, view: str, file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = fedkge("attack", file, "--attack", attack, "--colluders", "0", "--out", out)
    assert done.returncode == 0, done.stderr
    for word in (f"{view} after", "auc (repair, entity-seen without it)", f"written to {out}"):
        assert word in done.stdout
    assert f"{attack} in FedE" in done.stderr  # in a pipe too
    assert "round 4/4" in done.stderr
    table = pd.read_csv(out / "findings.csv")
    assert set(table.attack) == {attack}
    assert set(table.protocol) == {"paper", "rigorous"}
    assert set(json.loads((out / "summary.json").read_text())["leakage"]) == {attack}
    assert (out / "report.html").is_file()


def test_the_command_prints_json_alone_and_names_a_free_folder(file: Path, tmp_path: Path) -> None:
    command = ("attack", file, "--attack", "active", "--protocol", "rigorous", "--json", "--quiet")
    done = fedkge(*command, "--set", "federation.rounds=2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert {finding["attack"] for finding in json.loads(done.stdout)} == {"active"}
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("acting-active")


def test_bad_calls_are_one_line_that_names_the_remedy(file: Path, tmp_path: Path) -> None:
    folder = run(Experiment.load(file).override(["federation.rounds=1"]), tmp_path / "run").folder
    calls = {
        (
            "attack",
            folder,
            "--attack",
            "active",
        ): f"fedkge attack {folder / 'experiment.toml'} --attack active",
        ("attack", file, "--attack", "membership"): "fedkge attack RUN_DIR --attack membership",
        ("attack", file, "--attack", "nonsense"): "known: active, holdings, membership",
        ("attack", tmp_path / "nothere.toml", "--attack", "active"): "no such experiment file",
        ("attack", tmp_path / "nothere"): "no such folder",
        (
            "attack",
            file,
            "--attack",
            "active",
            "--out",
            folder,
        ): f"{folder} is not empty; choose another --out\n",
        (
            "attack",
            file,
            "--attack",
            "active",
            "--leak-ratio",
            "0.5",
        ): "--leak-ratio: for attacks on a recorded",
        ("attack", file, "--attack", "active", "--beside", folder): "--beside: for attacks on a recorded run",
        ("attack", file, "--attack", "active", "--no-plots"): "--plots/--no-plots: for attacks on a recorded",
    }
    for call, remedy in calls.items():
        done = fedkge(*call)
        assert done.returncode == 2, call
        assert remedy in done.stderr, call
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
    assert not (folder / "findings.csv").exists()
