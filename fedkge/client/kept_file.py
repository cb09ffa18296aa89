"""What a file that must not be forgotten needs: one writer at a time, and a mark that outlives copies."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedkge.errors import DataError, StorageError
from fedkge.storage import staged

__all__ = ["Mark", "lock"]


def lock(descriptor: int, busy: str, patience: float = 10.0) -> int:
    """The open file, locked for this process; closing it unlocks it.

    Args:
        busy: what to say if another process keeps it.
        patience: seconds for one that is about to end.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise DataError(busy) from None
            time.sleep(0.05)


@dataclass(frozen=True)
class Mark:
    """How often a file was written, in a second file: it tells when an older copy is put in its place."""

    path: Path

    def check(self, counter: int, old: str) -> None:
        """Refuse a file that was written `counter` times, if it was written more often."""
        newest = self.newest()
        if newest > counter:
            raise DataError(old.format(counter=counter, newest=newest))

    def newest(self) -> int:
        """Without a mark, nothing is known."""
        with suppress(OSError, ValueError):
            return int(self.path.read_text(encoding="utf-8"))
        return 0

    def set(self, counter: int) -> None:
        """The file itself is what counts: a mark that cannot be written is no reason to stop."""
        with suppress(StorageError), staged(self.path, private=True) as partial:
            partial.write_text(f"{counter}\n", encoding="utf-8")
