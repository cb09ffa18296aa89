"""A client's identity and roster on its own disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fedkge.client.journal_file import JournalFile
from fedkge.client.keyring import Keyring, create_identity
from fedkge.crypto import Roster
from fedkge.errors import DataError, SettingError
from fedkge.storage import staged


def test_an_identity_is_its_owner_s_alone_and_fits_its_place_in_the_roster(tmp_path: Path) -> None:
    publics = [create_identity(tmp_path / str(number)) for number in range(3)]
    roster = Roster.of(publics)
    for number in range(3):
        (tmp_path / str(number) / "roster.txt").write_text(roster.to_text())
    assert stat.S_IMODE((tmp_path / "0" / "identity.key").stat().st_mode) == 0o600
    assert Keyring.load(tmp_path / "1", 1).roster == roster
    with pytest.raises(DataError, match="line 1 is not this client's public key"):
        Keyring.load(tmp_path / "1", 0)
    with pytest.raises(DataError, match="exists"):
        create_identity(tmp_path / "0")
    with pytest.raises(DataError, match="fedkge keys new FOLDER"):
        Keyring.load(tmp_path / "nowhere", 0)


def test_what_is_durable_is_on_the_disk_before_it_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file first, then its name, then the folder that has the name: a power cut leaves old or new."""
    steps: list[str] = []
    replace, sync = Path.replace, os.fsync

    def replacing(self: Path, target: Path) -> Path:
        steps.append("name")
        return replace(self, target)

    def syncing(descriptor: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    monkeypatch.setattr(Path, "replace", replacing)
    monkeypatch.setattr(os, "fsync", syncing)
    with staged(tmp_path / "a", durable=True) as path:
        path.write_text("whole")
    assert steps == ["file", "name", "folder"]
    steps.clear()
    create_identity(tmp_path / "keys")
    assert steps == ["file", "name", "folder", "name", "file", "name", "folder"]  # journal, policy, key
    journal = JournalFile(tmp_path / "keys")
    steps.clear()
    journal.write({"entry": b"value"})
    journal.close()
    assert steps == ["file", "name", "folder", "name"]  # and its mark


def test_a_roster_with_a_broken_or_repeated_line_is_refused(tmp_path: Path) -> None:
    public = create_identity(tmp_path).hex()
    with pytest.raises(SettingError, match="one public key per line"):
        Roster.from_text("not hexadecimal\n")
    with pytest.raises(SettingError, match="same identity"):
        Roster.from_text(f"{public}\n{public}\n{public}\n")
