"""A server that has sums made twice, with and without a client, to subtract one from the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.client.journal_file import JOURNAL, JournalFile
from fedkge.client.keyring import allow_run, create_identity
from fedkge.client.policy import Policy
from fedkge.client.secrets import Secrets
from fedkge.client.secure import SecureParticipant
from fedkge.errors import DataError, FederationError
from fedkge.metrics import TRAINING
from fedkge.server.loop import Federation
from fedkge.server.sums.sessions import Total
from tests.adversary.deployment import Deployment, small
from tests.simulations.mishaps import Crash, crash_in, failures
from tests.simulations.secure.conftest import totals

__all__ = ["totals"]

VICTIM = 4


def drop_the_victim(patch: pytest.MonkeyPatch) -> None:
    """The server leaves one client out of every round."""

    def others(self: Federation, round: int) -> Sequence[int]:
        return [client for client in self.sums.messenger.clients if client != VICTIM]

    patch.setattr(Federation, "_participants", others)


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What the victim puts under its masks."""
    seen: list[np.ndarray] = []
    write = SecureParticipant._write_delta

    def writing(self: SecureParticipant, words: Any) -> None:
        write(self, words)
        if self.client == VICTIM:
            seen.append(words.copy())

    monkeypatch.setattr(SecureParticipant, "_write_delta", writing)
    return seen


def found(difference: np.ndarray, upload: np.ndarray) -> float:
    """The share of an upload's numbers that two sums differ by.

    Rows that dropouts could lay bare are veiled, so that without a journal it is not all of them.
    """
    rows = slice(0, -TRAINING.num_words)  # scalars have seconds in them, which never repeat
    sent = upload[rows] != 0
    return float((difference[rows] == upload[rows])[sent].mean())


def test_a_run_that_is_started_twice_reveals_no_client(
    tmp_path: Path,
    totals: list[Total],
    uploads: list[np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finding 4: the experiment started twice, the victim dropped once, gave 134 of 134 of its rows.

    Flower numbered the second run anew, and the journal was that of the run.
    """
    deployment = Deployment(tmp_path, small())
    with pytest.raises(Crash):
        deployment.serve(tmp_path / "server", "trial", crash_in(1))
    drop_the_victim(monkeypatch)
    with pytest.raises(Crash):
        deployment.serve(tmp_path / "server", "trial", crash_in(2), resume=True)
    with_all, *without = totals
    assert {total.survivors for total in without} == {(0, 1, 2, 3)}
    assert [found(with_all.words - total.words, uploads[0]) < 0.01 for total in without] == [True]  # round 2
    assert "would reveal single clients" in str(failures(tmp_path / "server"))


def test_a_server_that_forgot_a_run_cannot_begin_it_anew(tmp_path: Path, totals: list[Total]) -> None:
    """Finding 4 with a server that claims to know nothing: a new union under the name of the old run."""
    deployment = Deployment(tmp_path, small())
    with pytest.raises(Crash):
        deployment.serve(tmp_path / "server", "trial", crash_in(1))
    with pytest.raises(FederationError, match=r"0 of 5 clients (answered|joined)"):
        deployment.serve(tmp_path / "again", "trial")
    assert "trained on the union it began with" in str(failures(tmp_path / "again"))
    assert len(totals) == 1


def test_another_run_over_the_same_identity_needs_consent(tmp_path: Path, totals: list[Total]) -> None:
    """Finding 4 under another name: before, every run had a journal of its own, and none knew the others."""
    deployment = Deployment(tmp_path, small("federation.rounds=1"))
    deployment.serve(tmp_path / "first", "first")
    with pytest.raises(FederationError, match=r"0 of 5 clients (answered|joined)"):
        deployment.serve(tmp_path / "second", "second")
    assert "fedkge keys allow FOLDER second" in str(failures(tmp_path / "second"))
    assert len(totals) == 1
    for client in range(5):
        allow_run(deployment.keys(client), "second")
    deployment.serve(tmp_path / "second", "second")
    assert len(totals) == 2


@pytest.mark.parametrize("run", ["../../elsewhere", "a/b", ".hidden", "x" * 101, "two words"])
def test_a_run_s_name_is_no_path(run: str, tmp_path: Path) -> None:
    """A run's name becomes the name of a folder; nobody chose it before, so nobody checked it."""
    deployment = Deployment(tmp_path, small())
    with pytest.raises(FederationError):
        deployment.serve(tmp_path / "server", run)
    assert "the run is called" in str(failures(tmp_path / "server"))
    assert not list(tmp_path.glob("state-*"))


def test_a_lost_or_old_journal_is_noticed(tmp_path: Path) -> None:
    """Finding 4 with the operator's help: a restored backup of the disk forgets what was revealed."""
    create_identity(tmp_path)
    journal = JournalFile(tmp_path)
    journal.write({"note": b"one"})
    old = (tmp_path / JOURNAL).read_bytes()
    journal.write({"note": b"two"})
    journal.close()
    assert JournalFile(tmp_path).entries == {"note": b"two"}
    (tmp_path / JOURNAL).write_bytes(old)
    with pytest.raises(DataError, match=r"an old copy, after 1 answers where 2 were given"):
        JournalFile(tmp_path)
    (tmp_path / JOURNAL).unlink()
    with pytest.raises(DataError, match=r"journal is missing; .*new identity"):
        JournalFile(tmp_path)
    (tmp_path / JOURNAL).write_bytes(b"torn")
    (tmp_path / JOURNAL).chmod(0o600)
    with pytest.raises(DataError, match="cannot be read"):
        JournalFile(tmp_path)


def test_a_journal_of_another_version_is_not_guessed_at(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, small())
    journal = JournalFile(deployment.keys(0))
    journal.write({"trial sums": b'{"unheard of": {}}'})
    journal.close()
    with pytest.raises(DataError, match="use the version of fedkge that wrote it"):
        Secrets(deployment.keys(0), 0, "trial", Policy(), durable=True)


def test_one_process_at_a_time_uses_a_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedkge.client.journal_file._PATIENCE", 0.1)
    create_identity(tmp_path)
    first = JournalFile(tmp_path)
    with pytest.raises(DataError, match="another process uses this identity"):
        JournalFile(tmp_path)
    first.close()
    JournalFile(tmp_path).close()


@pytest.mark.parametrize("name", ["identity.key", "journal"])
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_secrets_that_others_can_read_are_refused(name: str, mode: int, tmp_path: Path) -> None:
    """Finding 11: a world-readable identity.key was loaded without a word."""
    deployment = Deployment(tmp_path, small())
    path = deployment.keys(0) / name
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(mode)
    with pytest.raises(FederationError, match="4 of 5 clients joined"):
        deployment.serve(tmp_path / "server")
    assert f"run: chmod 600 {path}" in str(failures(tmp_path / "server"))
