"""Attacks that subtract sums, and settings that would let them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.client.secure import SecureParticipant
from fedkge.crypto import SecureAggregationServer
from fedkge.crypto.keys import SIGNATURE_SIZE
from fedkge.crypto.wire import HEADER_SIZE, SERVER, Kind, Writer
from fedkge.datasets import load_graph
from fedkge.errors import FederationError, SettingError
from fedkge.experiment import Experiment
from fedkge.metrics import TRAINING
from fedkge.server.messenger import Messenger
from fedkge.server.privacy import check_privacy
from fedkge.server.sums import SecureSums
from fedkge.server.sums.sessions import Total
from fedkge.simulations.runs import run as runs
from tests.simulations.mishaps import Crash, crash_in, failing, failures
from tests.simulations.secure.settings import FIVE, PLAIN, Make, forget_journals


def test_a_round_is_not_unmasked_again_for_others_after_a_resume(
    secret: Make, tmp_path: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads: list[np.ndarray] = []
    write = SecureParticipant._write_delta

    def sending(self: SecureParticipant, words: Any) -> None:
        write(self, words)
        if (self.client, self.round) == (4, 3):
            uploads.append(words.copy())

    monkeypatch.setattr(SecureParticipant, "_write_delta", sending)

    def attack(folder: Path, *, forget: bool) -> None:
        """Sum round 3, crash, resume, and let client 4 seem to drop out of the same round."""
        totals.clear()
        uploads.clear()
        with pytest.raises(Crash):
            runs.run(secret(FIVE, "privacy.colluders=0"), folder, crash_in(3))  # then no row is thin
        if forget:
            forget_journals(folder)
        with monkeypatch.context() as patch:
            failing(patch, "train", {4}, {3})
            runs.resume(folder)

    attack(tmp_path / "careless", forget=True)
    with_all, without = totals[2:4]
    assert (with_all.survivors, without.survivors) == ((0, 1, 2, 3, 4), (0, 1, 2, 3))
    rows = slice(0, -TRAINING.num_words)  # scalars have seconds in them, which never repeat
    assert np.array_equal((with_all.words - without.words)[rows], uploads[0][rows])

    attack(tmp_path / "guarded", forget=False)
    assert [len(total.survivors) for total in totals] == [5, 5, 5, 5]  # 1, 2, 3, and 4 after the resume
    text = str(failures(tmp_path / "guarded"))
    assert "would reveal single clients" in text
    assert "nothing summed" in text


def two_faced(patch: pytest.MonkeyPatch) -> None:
    """A server that tells clients 0 and 1 in round 3 that client 4 dropped out, and takes any signature."""
    ask, victims, told = Messenger.ask, (0, 1), [0, 1, 2, 3]

    def falsified(letter: bytes) -> bytes:
        kind, session = Kind(letter[5]), letter[8:HEADER_SIZE]
        writer = Writer(kind, session, SERVER).numbers(told, 2)
        if kind == Kind.QUORUM:
            writer.numbers(told, 2)
        return writer.raw(letter[-5 * SIGNATURE_SIZE : -SIGNATURE_SIZE]).finish()

    def lying(
        self: Messenger, downloads: Any, kind: str, phase: str, round: int, *more: Any, **rest: Any
    ) -> Any:
        if (
            round == 3
            and kind in ("query.consent", "query.unmask")
            and downloads[0].metadata["sum"]["round"] == 3
        ):
            for client in victims:
                messages = dict(downloads[client].protocol)
                messages["survivors"] = falsified(messages["survivors"])
                downloads = {**downloads, client: replace(downloads[client], protocol=messages)}
        return ask(self, downloads, kind, phase, round, *more, **rest)

    def credulous(self: SecureAggregationServer, client: int, message: bytes) -> None:
        self._consents[client] = message[HEADER_SIZE:]

    patch.setattr(Messenger, "ask", lying)
    patch.setattr(SecureAggregationServer, "_collect_consent", credulous)


def test_signed_survivors_catch_a_server_that_shows_clients_different_ones(
    secret: Make, tmp_path: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        two_faced(patch)
        runs.run(secret(FIVE), tmp_path / "unsigned")
        mixed = [why for *_, client, why in failures(tmp_path / "unsigned") if client == "all"]
        assert len(totals) == 3
        assert len(mixed) == 1
        assert "seed rebuilt for client 4" in mixed[0]
        totals.clear()
        runs.run(secret(FIVE, "privacy.consistency=true"), tmp_path / "signed")
    assert len(totals) == 3  # rounds 1, 2 and 4
    refused = {(client, why) for round, _, client, why in failures(tmp_path / "signed") if client != "all"}
    assert {client for client, _ in refused} == {"0", "1", "2", "3", "4"}
    assert all("does not fit the identity" in why for _, why in refused)


def test_a_leaver_cannot_be_subtracted(secret: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    count = SecureSums._count

    def counting(self: SecureSums, *arguments: Any) -> Any:
        tables = count(self, *arguments)
        counted.append(int(self.counts["relation"].sum()))
        if len(counted) == 1:
            raise Crash
        return tables

    monkeypatch.setattr(SecureSums, "_count", counting)

    def attack(folder: Path, *, forget: bool) -> None:
        """Count over five clients, then tell four of them that the fifth has left."""
        with pytest.raises(Crash):
            runs.run(secret(FIVE), folder)
        four = "".join((folder / "roster.txt").read_text().splitlines(keepends=True)[:4])
        for path in (folder / "roster.txt", *folder.glob("clients/keys-*/roster.txt")):
            path.write_text(four)
        changed = Experiment.load(folder / "experiment.toml").override(["data.clients=4"])
        (folder / "experiment.toml").write_text(changed.to_toml())
        if forget:
            forget_journals(folder)
        runs.resume(folder)

    attack(tmp_path / "careless", forget=True)
    leaver = load_graph(tmp_path / "careless" / "data" / "client-4").num_relations
    assert counted[0] - counted[1] == leaver
    counted.clear()
    with pytest.raises(FederationError, match=r"0 of 4 clients (answered|joined)"):
        attack(tmp_path / "guarded", forget=False)
    assert len(counted) == 1
    assert "began with another roster" in str(failures(tmp_path / "guarded"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["privacy.consistency=true", *PLAIN], r"privacy\.consistency: .*\.secure_aggregation = true, or"),
        (["privacy.union=oprf", "privacy.helpers=6"], r"privacy\.helpers: 6 of 5 clients; choose 1 to 5"),
        (["federation.fraction=0.5"], r"federation\.fraction: 0\.5 .* linear system .*\.fraction = 1\.0, or"),
        (["data.clients=2"], r"data\.clients: .* at least 3 clients, not 2"),
        (["data.clients=101"], r"data\.clients: .* more than 100"),
        (["privacy.threshold=6"], r"privacy\.threshold: 6 of 5 clients; choose 4 to 5"),
        (["data.clients=9", "privacy.threshold=5"], r"privacy\.threshold: 5 of 9 clients; choose 6 to 9"),
        (
            ["data.clients=9", "privacy.threshold=6", "privacy.colluders=3"],
            r"privacy\.threshold: 6 of 9 clients; choose 7 to 9: .* if 3 may not be",
        ),
        (["privacy.colluders=4"], r"privacy\.colluders: 4 of 5 clients; choose 0 to 3"),
        (["federation.weighting=triples"], r"weighting: 'triples' would need .*\.weighting = .holders"),
        (["privacy.secure_aggregation=false"], r"union: 'private' hides nothing .*\.union = .plain"),
        (["privacy.clip=1e9"], "lower the clip"),
    ],
)
def test_settings_that_would_not_protect_are_refused_in_one_line(
    changes: list[str], message: str, out: Path
) -> None:
    experiment = Experiment().override(changes)
    with pytest.raises(SettingError, match=message) as caught:
        check_privacy(experiment, ("relation",))
    assert "\n" not in str(caught.value)
    check_privacy(experiment, ())
    with pytest.raises(SettingError):
        runs.run(experiment, out)
    assert not out.exists()


@pytest.mark.parametrize("clients", [3, 5, 10, 20, 100])
def test_defaults_hold_for_any_number_of_clients(clients: int) -> None:
    experiment = Experiment().override([f"data.clients={clients}"])
    check_privacy(experiment, ("relation",))
    assert 2 * experiment.privacy.quorum(clients) > clients + experiment.privacy.colluders
