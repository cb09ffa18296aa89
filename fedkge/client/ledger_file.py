"""All charges to one client's confidential triples, in one file, which one process writes at a time.

In a deployment it outlives the runs, and the data: whoever starts another run, on the same triples or on one
more, goes on with what is left of the budget.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedkge.client.kept_file import Mark, lock
from fedkge.errors import DataError
from fedkge.storage import staged, storage_errors

__all__ = ["LEDGER", "LedgerFile"]

LEDGER = "ledger.json"

_REMEDY = (
    "what was spent is unknown, so that these confidential triples must not be trained on again: restore "
    "the file; in a simulation, start the run anew"
)

Charges = list[dict[str, Any]]


class LedgerFile:
    """Charges as JSON says them, oldest first; a durable one is synced, and an older copy is noticed."""

    def __init__(self, path: Path, durable: bool) -> None:
        self.path = path
        self.durable = durable
        self._mark = Mark(path.with_name(f"{path.name}.mark"))

    @contextmanager
    def held(self) -> Iterator[None]:
        """No other process reads or writes it meanwhile."""
        place = self.path.with_name(f"{self.path.name}.lock")  # never replaced, as the ledger is
        with storage_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
        lock(descriptor, f"{self.path}: another process uses this privacy ledger; wait until it has ended")
        try:
            yield
        finally:
            os.close(descriptor)

    def read(self) -> Charges:
        return self._read()[1]

    def write(self, charges: Sequence[dict[str, Any]]) -> None:
        """Take the place of all charges; only then may a release be made."""
        counter = self._read()[0] + 1
        with staged(self.path, private=True, durable=self.durable) as path:
            path.write_text(json.dumps({"counter": counter, "charges": charges}), encoding="utf-8")
        if self.durable:
            self._mark.set(counter)

    def _read(self) -> tuple[int, Charges]:
        counter, charges = 0, []
        try:
            if self.path.exists():
                content = json.loads(self.path.read_text(encoding="utf-8"))
                counter, charges = int(content["counter"]), list(content["charges"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DataError(f"{self.path}: the privacy ledger cannot be read ({error}); {_REMEDY}") from error
        if self.durable:
            self._mark.check(
                counter,
                f"{self.path}: an old copy, or none, of a privacy ledger: {{counter}} entries where "
                f"{{newest}} were made; {_REMEDY}",
            )
        return counter, charges
