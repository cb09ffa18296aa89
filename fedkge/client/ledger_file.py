"""All charges to one client's confidential triples, in one file, which one process writes at a time.

In a deployment it outlives the runs: whoever starts another run on the same triples goes on with what is
left of the budget. Its name is a digest of those triples.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedkge.client.kept_file import Mark, lock
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError
from fedkge.storage import staged, storage_errors

__all__ = ["LedgerFile", "ledger_name"]

_REMEDY = (
    "what was spent is unknown, so that these confidential triples must not be trained on again: restore "
    "the file; in a simulation, start the run anew"
)

Charges = list[dict[str, Any]]


def ledger_name(graph: KnowledgeGraph) -> str:
    """One name for the confidential train triples, in whatever order and with whatever row numbers."""
    digest = hashlib.blake2b(digest_size=16)
    for line in sorted(_lines(graph)):
        digest.update(len(line).to_bytes(8, "little") + line)
    return f"ledger-{digest.hexdigest()}.json"


def _lines(graph: KnowledgeGraph) -> Iterator[bytes]:
    entities, relations = graph.entity_labels, graph.relation_labels
    for head, relation, tail in graph.train[graph.marks("train")]:
        yield json.dumps([entities[head], relations[relation], entities[tail]]).encode()


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
