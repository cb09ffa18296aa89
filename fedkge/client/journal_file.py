"""All that an identity must remember, in one file beside its key, which one process uses at a time.

Two sums that differ by one client reveal it, whether they are of one run or of two: so the journal belongs to
the identity and outlives its runs. A counter in a second file tells when an older copy is put in its place.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from fedkge.client.kept_file import Mark, lock
from fedkge.errors import DataError
from fedkge.storage import staged

__all__ = ["IDENTITY", "JOURNAL", "JournalFile", "require_private"]

IDENTITY = "identity.key"
JOURNAL = "journal"
MARK = "journal.mark"
_COUNTER = "counter"
_PATIENCE = 10.0  # seconds for a process that is about to end

Entries = dict[str, bytes]


class JournalFile:
    """The journal of the identity in a folder, held until `close`; a simulation's need not be `durable`."""

    def __init__(self, folder: Path, durable: bool = True) -> None:
        self.folder = folder
        self.durable = durable
        self._unlock = weakref.finalize(self, os.close, _lock(folder / IDENTITY))
        try:
            self.entries, self._counter = self._read()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, folder: Path) -> None:
        """An empty journal for a new identity; from then on, none is a journal that was lost."""
        _write(folder / JOURNAL, {_COUNTER: _number(0)}, durable=True)

    def write(self, entries: Mapping[str, bytes]) -> None:
        """Take the place of all entries; only then may an answer leave."""
        _write(self.folder / JOURNAL, {**entries, _COUNTER: _number(self._counter + 1)}, self.durable)
        self.entries = dict(entries)
        self._counter += 1
        Mark(self.folder / MARK).set(self._counter)

    def close(self) -> None:
        """Let another process have it."""
        self._unlock()

    def _read(self) -> tuple[Entries, int]:
        path = self.folder / JOURNAL
        remedy = (
            "without it nobody knows which sums this identity took part in: restore it, or make a new "
            "identity with 'fedkge keys new FOLDER' and a new roster"
        )
        if not path.exists():
            raise DataError(f"{path}: this identity's journal is missing; {remedy}")
        require_private(path)
        try:
            entries = {name: array.tobytes() for name, array in load_file(path).items()}
            counter = int.from_bytes(entries.pop(_COUNTER), "little")
        except (OSError, SafetensorError, KeyError) as error:
            raise DataError(f"{path}: this identity's journal cannot be read ({error}); {remedy}") from error
        old = f"{path}: an old copy, after {{counter}} answers where {{newest}} were given; {remedy}"
        Mark(self.folder / MARK).check(counter, old)
        return entries, counter


def require_private(path: Path) -> None:
    """Refuse a secret that other users of the machine can read."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise DataError(f"{path}: others may read it (mode {mode:o}); run: chmod 600 {path}")


def _lock(path: Path) -> int:
    """The identity's file, locked; it is never replaced, as the journal is."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); make it with 'fedkge keys new'"
        ) from None
    return lock(
        descriptor,
        f"{path.parent}: another process uses this identity and its journal; wait until it has ended, and "
        "give each client an identity of its own",
        _PATIENCE,
    )


def _write(path: Path, entries: Mapping[str, bytes], durable: bool) -> None:
    arrays = {name: np.frombuffer(value, dtype=np.uint8) for name, value in entries.items()}
    with staged(path, private=True, durable=durable) as partial:
        save_file(arrays, partial)


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")
