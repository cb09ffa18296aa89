"""A server that tries to make clients forget, and refused steps that must leave no trace; power cuts."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.client.secure import SecureParticipant
from fedkge.errors import FederationError
from fedkge.exchange import Download, Table
from fedkge.metrics import RANKING, TRAINING, MetricSums
from fedkge.server.loop import Federation
from fedkge.server.sums import SecureSums
from fedkge.server.sums.sessions import Sessions, Sum, Total
from fedkge.simulations.runs import run as runs
from tests.adversary.deployment import Deployment, small
from tests.simulations.mishaps import Crash, crash_in, failures
from tests.simulations.secure.conftest import totals

__all__ = ["totals"]

ROOT = Path(__file__).parents[2]
HELLO = {"strategy": "FedR", "shared": ["relation"], "verbs": [], "secure": True, "fresh": True}
JUNK = {"delivery": b"junk", "keys": b"junk", "survivors": b"junk", "union relation": b"junk"}


def interrupted(folder: Path) -> Deployment:
    """Five clients after the first round of a run."""
    deployment = Deployment(folder, small())
    with pytest.raises(Crash):
        deployment.serve(folder / "server", "trial", crash_in(1))
    return deployment


def named(purpose: str, round: int | None, attempt: int = 7) -> dict[str, Any]:
    return {"purpose": purpose, "round": round, "attempt": attempt}


def only(*rows: int) -> dict[str, Table]:
    return {"relation": Table(np.array(rows, np.int32), np.empty((len(rows), 0), np.float32))}


def test_refused_steps_change_nothing(tmp_path: Path, totals: list[Total]) -> None:
    """Findings 9 and 11: a second join emptied what a client knew; a refused step left a union unusable."""
    deployment = interrupted(tmp_path)
    # True, so that a request gets as far as it can.
    said = {"last": ["delta", 1, [0, 1, 2, 3, 4]], "next": named("delta", 3)}
    rounds = {"keep": [], "settled": 0, **said}
    blank = {"relation": Table(np.arange(3, dtype=np.int32), np.zeros((3, 8), np.float32))}
    attempts = {
        "begins a union anew": ("query.join", Download(0, metadata=HELLO, protocol=JUNK)),
        "asks for labels": ("query.join", Download(0, metadata={**HELLO, "secure": False})),
        "is another strategy": ("query.join", Download(0, metadata={**HELLO, "shared": ["entity"]})),
        "shares one row alone": ("query.advertise", Download(1, only(0), {"next": named("delta", 2)})),
        "shares no row there is": ("query.advertise", Download(1, only(9999), {"next": named("delta", 2)})),
        "lists other rows": (
            "query.advertise",
            Download(1, metadata={"next": named("holders", None)}, protocol={"listing relation": b"junk"}),
        ),
        "counts again": ("query.count", Download(1, metadata={"sum": named("holders", None)}, protocol=JUNK)),
        "opens no round": ("query.advertise", Download(1, metadata={"next": named("delta", 9)})),
        "trains on rows that are not shared": (
            "train",
            Download(2, blank, {**rounds, "sum": named("delta", 2)}, JUNK),
        ),
        "trains, and delivers junk": ("train", Download(2, {}, {**rounds, "sum": named("delta", 2)}, JUNK)),
        "sums a round under two numbers": (
            "train",
            Download(1, {}, {**rounds, "sum": named("delta", 2)}, JUNK),
        ),
        "trains more rounds than the run has": (
            "train",
            Download(5, {}, {**rounds, "sum": named("delta", 5)}, JUNK),
        ),
        "trains a round that is over": ("train", Download(0, {}, {**rounds, "sum": named("delta", 0)}, JUNK)),
        "evaluates, and delivers junk": (
            "evaluate",
            Download(2, {}, {**said, "sum": named("valid", 2)}, JUNK),
        ),
        "tests, and delivers junk": (
            "evaluate.test",
            Download(2, {}, {**said, "best": 1, "sum": named("test", 2)}, JUNK),
        ),
        "unmasks what was never masked": (
            "query.unmask",
            Download(1, metadata={"sum": named("delta", 2), "next": named("delta", 2)}, protocol=JUNK),
        ),
        "has no session": ("query.unmask", Download(1, metadata={}, protocol=JUNK)),
        "assigns rows": ("query.assign", Download(1, only(0))),
    }
    before = deployment.files()
    for what, (kind, download) in attempts.items():
        (reason,) = deployment.ask_all([(0, kind, download)], "trial")
        assert isinstance(reason, str), what
        assert "fedkge.errors." in reason.splitlines()[-1], (what, reason)
        assert deployment.files() == before, what
    deployment.serve(tmp_path / "server", "trial", resume=True)
    assert [total.survivors for total in totals] == [(0, 1, 2, 3, 4)] * 5  # round 1 twice: the same sum
    rows = slice(0, -TRAINING.num_words)  # scalars have seconds in them, which never repeat
    assert np.array_equal(totals[1].words[rows], totals[0].words[rows])
    assert failures(tmp_path / "server") == []


def test_a_second_join_forgets_neither_the_union_nor_what_is_shared(
    tmp_path: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 9: united again, clients sent steps of rows that one of them holds: 48 of 48."""
    deployment = interrupted(tmp_path)
    count = SecureSums._count

    def singled_out(self: SecureSums, *arguments: Any) -> Any:
        count(self, *arguments)
        alone = {name: np.flatnonzero(c == 1).astype(np.int32) for name, c in self.counts.items()}
        claims = {name: np.full(len(ids), 5, np.int32) for name, ids in alone.items()}  # nobody checks counts
        monkeypatch.setattr(SecureSums, "_holders", lambda self, name, table: claims[name])
        self.sessions.plan = self.sessions.plan.with_shared(alone, claims)
        width = self.sessions.plan.tables["relation"].width
        return {name: Table(ids, np.zeros((len(ids), width), np.float32)) for name, ids in alone.items()}

    monkeypatch.setattr(SecureSums, "_count", singled_out)
    (tmp_path / "server" / "checkpoint" / "server.json").unlink()
    with pytest.raises(FederationError):
        deployment.serve(tmp_path / "server", "trial", resume=True)
    assert len(totals) == 1
    assert "trained on the union it began with" in str(failures(tmp_path / "server"))


def test_a_round_has_one_step(tmp_path: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch) -> None:
    """Set back to an earlier round, clients gave a step from whatever rows the server sent then."""
    deployment = interrupted(tmp_path)
    resumed = Federation._resume

    def from_other_rows(self: Federation) -> Any:
        arrays = resumed(self)
        self.tables = {name: replace(t, rows=t.rows + np.float32(0.5)) for name, t in self.tables.items()}
        return arrays

    monkeypatch.setattr(Federation, "_resume", from_other_rows)
    with pytest.raises(FederationError, match="0 of 5 clients answered"):
        deployment.serve(tmp_path / "server", "trial", resume=True)
    reasons = [why for _, _, _, why in failures(tmp_path / "server")]
    assert len(reasons) == 5
    assert all("round 1 was summed with another step" in why for why in reasons)
    assert len(totals) == 1


@pytest.mark.parametrize("guarded", [False, True])
def test_rows_are_scored_in_one_sum(guarded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding 3 for scores: those of one model, under two round numbers, with and without a client."""
    victim, rounds = 4, [1, 2]
    sums, own, give = {}, [], Sessions.sum

    def without_the_victim(self: Sessions, wanted: Sum, clients: Any, *arguments: Any) -> Total:
        if wanted == Sum("valid", 2):
            clients = [client for client in clients if client != victim]
        total = give(self, wanted, clients, *arguments)
        if wanted.purpose == "valid":
            sums[wanted.round] = MetricSums.from_scalars(RANKING.decode(total.words))
        return total

    def untrained(self: Federation, round: int) -> None:
        self.state.round = round

    measure = SecureParticipant.measure

    def measuring(self: SecureParticipant, split: str) -> dict[str, Any]:
        scores = measure(self, split)
        if self.client == victim:
            own.append(MetricSums.from_json(scores[split]))
        return scores

    monkeypatch.setattr(Sessions, "sum", without_the_victim)
    monkeypatch.setattr(Federation, "train", untrained)
    monkeypatch.setattr(SecureParticipant, "measure", measuring)
    if not guarded:
        monkeypatch.setattr("fedkge.client.secrets.PastSums.score", lambda *_: None)
    experiment = small("federation.rounds=2", "federation.evaluate_every=1")
    with pytest.raises(FederationError, match="0 of 4 clients") if guarded else nullcontext():
        Deployment(tmp_path, experiment).serve(tmp_path / "server", "trial")
    assert list(sums) == (rounds[:1] if guarded else rounds)
    reasons = str(failures(tmp_path / "server"))
    assert ("trained nothing since it gave those of round 1" in reasons) == guarded
    if not guarded:
        assert sums[1].count - sums[2].count == own[0].count
        assert sums[1].sums["mrr"] - sums[2].sums["mrr"] == pytest.approx(own[0].sums["mrr"], abs=1e-3)


# Power cuts.

CUT = """
import os, sys
from pathlib import Path
from fedkge import storage
from fedkge.crypto import SecureAggregationClient
from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs
from fedkge.simulations.runs.worker import Worker
from tests.adversary.test_state import record_masks

folder, experiment, point = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
events = 0
begun = False

def cut():
    global events
    events += begun
    if events == point:
        os._exit(9)

def around(place, name):
    wrapped = getattr(place, name)
    def cutting(*arguments, **options):
        global begun
        begun = begun or place is Worker
        cut()
        try:
            return wrapped(*arguments, **options)
        finally:
            cut()
    setattr(place, name, cutting)

around(storage, "_swap")
around(Worker, "handle")
record_masks(folder.with_suffix(".masks"))
runs.run(Experiment.load(experiment), folder)
print(events)
"""


def record_masks(path: Path) -> None:
    """Note every vector that is masked: by whom, in which session, and what came out."""
    import hashlib

    from fedkge.crypto import SecureAggregationClient

    mask = SecureAggregationClient.mask_in_place

    def noting(self: SecureAggregationClient, *arguments: Any, **options: Any) -> bytes:
        masked = mask(self, *arguments, **options)
        line = [self.index, self.session.id.hex(), hashlib.sha256(masked).hexdigest()]
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return masked

    SecureAggregationClient.mask_in_place = noting  # type: ignore[method-assign]


def run_cut(folder: Path, settings: Path, point: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CUT, str(folder), str(settings), str(point)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("points", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_power_cut_at_any_point_costs_nothing(
    points: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 11: nothing was synced. Killed within a message, or within the write of a journal, and resumed:
    the same result, and no session's masks are used for two vectors."""
    from fedkge.crypto import SecureAggregationClient

    experiment = small("data.clients=3", "federation.strategy=FedR", "engine.name=inline", "engine.workers=1")
    settings = tmp_path / "experiment.toml"
    settings.write_text(experiment.to_toml())
    whole = run_cut(tmp_path / "whole", settings, -1)
    assert whole.returncode == 0, whole.stderr
    expected = runs.result_of(tmp_path / "whole").summary["result_hash"]
    last = int(whole.stdout.split()[-1])
    chosen = random.Random(points).sample(range(1, last), points)
    for point in chosen:
        folder = tmp_path / f"cut-{point}"
        assert run_cut(folder, settings, point).returncode == 9
        with monkeypatch.context() as patch:
            patch.setattr(SecureAggregationClient, "mask_in_place", SecureAggregationClient.mask_in_place)
            record_masks(folder.with_suffix(".masks"))
            moved = folder.rename(tmp_path / f"moved-{point}")  # the name of the run stays
            assert runs.resume(moved).summary["result_hash"] == expected, point
        lines = [json.loads(line) for line in folder.with_suffix(".masks").read_text().splitlines()]
        used = [(client, session) for client, session, _ in lines]
        assert len(used) == len(set(used)), point
