"""Clients that drop out, lie, or send no numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedkge.client.participant import Participant
from fedkge.client.secure import SecureParticipant
from fedkge.errors import FederationError
from fedkge.exchange import Download, Upload, encode
from fedkge.server.sums.sessions import Total
from fedkge.simulations.runs import run as runs
from fedkge.simulations.runs.worker import Worker
from tests.simulations.mishaps import Crash, crash_in, failing, failures
from tests.simulations.secure.settings import FIVE, PLAIN, Make


@pytest.mark.parametrize(
    ("verb", "survivors"),
    [
        ("train", [5, 4, 5, 5]),
        ("consent", [5, 5, 5, 5]),
        ("unmask", [5, 5, 5, 5]),
        ("evaluate", [5, 5, 5, 5]),
        ("share", [5, 5, 4, 5]),
    ],
)
def test_one_client_may_fail_at_any_step(
    verb: str,
    survivors: list[int],
    secret: Make,
    out: Path,
    totals: list[Total],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing(monkeypatch, verb, {2}, {3 if verb == "share" else 2})
    if verb == "share":  # happens only where somebody was missing before
        failing(monkeypatch, "evaluate", {2}, {2})
    result = runs.run(secret(FIVE, f"privacy.consistency={str(verb == 'consent').lower()}"), out)
    assert [len(total.survivors) for total in totals] == survivors
    assert result.summary["communication"]["rounds"] == 4
    assert all(client == 2 and "coffee" in why for _, _, client, why in failures(out))
    assert failures(out)


def test_too_many_dropouts_leave_the_tables_as_they_were(
    secret: Make, out: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "train", {1, 2}, {2})
    failing(monkeypatch, "unmask", {1, 2}, {3})
    result = runs.run(secret(FIVE), out)
    assert len(totals) == 2  # rounds 1 and 4
    assert result.summary["communication"]["rounds"] == 4
    lost = [(round, phase) for round, phase, client, _ in failures(out) if client == "all"]
    assert lost == [(2, "train"), (3, "train")]


def test_a_run_that_keeps_failing_stops_and_can_go_on(
    secret: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = secret(FIVE, "federation.rounds=6")
    with monkeypatch.context() as patch:
        failing(patch, "train", {1, 2}, {3, 4, 5, 6})
        with pytest.raises(FederationError, match="go on with: fedkge run --resume"):
            runs.run(experiment, tmp_path / "cut")
    assert (
        json.loads((tmp_path / "cut" / "checkpoint" / "server.json").read_text())["round"] == 2
    )  # rows that did not move are not scored again
    assert runs.resume(tmp_path / "cut").summary["communication"]["rounds"] == 6


@pytest.mark.parametrize("verb", ["join", "unite", "advertise", "count", "test"])
def test_what_needs_everybody_stops_cleanly_without_one(
    verb: str, secret: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = secret("federation.rounds=2")
    with monkeypatch.context() as patch:
        failing(patch, verb, {1}, {0, 2})
        with pytest.raises(
            Exception, match=r"fewer than the threshold|joined|did not (reply|answer)|every client"
        ):
            runs.run(experiment, tmp_path / "cut")
    assert not (tmp_path / "cut" / "summary.json").exists()
    whole = runs.run(experiment, tmp_path / "whole")
    assert runs.resume(tmp_path / "cut").summary["result_hash"] == whole.summary["result_hash"]


def tampering(monkeypatch: pytest.MonkeyPatch, verb: str, name: str) -> None:
    """Let client 2 send a protocol message with its last byte changed, in round 3."""
    answer = getattr(SecureParticipant, verb)

    def false(self: SecureParticipant, download: Download) -> Upload:
        upload = answer(self, download)
        if (self.client, download.round) != (2, 3) or name not in upload.protocol:
            return upload
        message = upload.protocol[name]
        changed = message[:-2] + bytes([message[-2] ^ 1]) + message[-1:]
        return replace(upload, protocol={**upload.protocol, name: changed})

    monkeypatch.setattr(SecureParticipant, verb, false)


def test_a_false_share_is_named_and_the_sum_is_made_without_it(
    secret: Make, tmp_path: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = secret(FIVE)
    with monkeypatch.context() as patch:
        tampering(patch, "unmask", "reveal")
        false = runs.run(experiment, tmp_path / "false")
    assert [len(total.survivors) for total in totals] == [5, 5, 5, 5]
    assert {(round, client) for round, _, client, _ in failures(tmp_path / "false")} == {(3, 2)}
    whole = runs.run(experiment, tmp_path / "whole")
    assert false.summary["result_hash"] == whole.summary["result_hash"]


def test_a_false_signature_makes_the_next_sum_start_anew(
    secret: Make, out: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    tampering(monkeypatch, "train", "advert")
    runs.run(secret(FIVE), out)
    assert [len(total.survivors) for total in totals] == [5, 5, 5, 5]  # prepared anew in time
    assert "does not fit the identity" in str(failures(out))


def test_simulated_dropouts_keep_the_roster(secret: Make, tmp_path: Path, totals: list[Total]) -> None:
    experiment = secret("data.clients=6", "federation.dropout=0.2", "federation.rounds=6")
    whole = runs.run(experiment, tmp_path / "whole")
    sizes = [len(total.survivors) for total in totals]
    assert min(sizes) in (4, 5)
    with pytest.raises(Crash):
        runs.run(experiment, tmp_path / "cut", crash_in(4))
    assert runs.resume(tmp_path / "cut").summary["result_hash"] == whole.summary["result_hash"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_no_numbers_never_leave_a_client(
    value: float, secret: Make, out: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = Participant._train

    def spoiling(self: SecureParticipant, round: int) -> None:
        trained(self, round)
        if (self.client, round) == (3, 2):
            self.model.tables["relation"][self.holdings["relation"].local[0], 0] = value

    monkeypatch.setattr(Participant, "_train", spoiling)
    runs.run(secret(FIVE), out)
    assert [len(total.survivors) for total in totals] == [5, 4, 5, 5]
    assert "NaN or infinite" in str(failures(out))


def test_a_client_refuses_to_share_in_the_clear(secret: Make, out: Path, tmp_path: Path) -> None:
    experiment = secret()
    with pytest.raises(Crash):
        runs.run(experiment, out, crash_in(1))
    config = {"partition-id": 1, "data": str(out / "data" / "client-1"), "state": str(tmp_path / "state")}
    worker = Worker(71, experiment.to_json(), {2: config})
    asked = {"strategy": "FedR", "shared": ["relation"], "verbs": []}
    hello = encode(Download(0, metadata=asked))
    answer, reason = worker.handle(2, "query.join", "0", hello)
    assert answer is None
    assert "labels in the clear" in reason
    secure = encode(Download(0, metadata={**asked, "secure": True, "fresh": True}))
    assert "identity.key" in worker.handle(2, "query.join", "0", secure)[1]
    worker.close()
    keys = {"keys": str(out / "clients" / "keys-1")}
    plain = Worker(72, experiment.override(PLAIN).to_json(), {2: {**config, **keys}})
    assert "take 'keys' out" in plain.handle(2, "query.join", "0", hello)[1]
    plain.close()
