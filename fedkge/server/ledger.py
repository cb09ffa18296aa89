"""Every byte that crossed between the server and a client: who, when, which way, for what."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Entry", "Ledger"]


@dataclass(frozen=True)
class Entry:
    """One message's payload."""

    round: int
    phase: str  # setup, union, train, unmask, evaluate, test
    client: int
    direction: str  # up, down
    bytes: int


class Ledger:
    """An append-only account of messages."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """The account that an earlier part of a run wrote."""
        ledger = cls()
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                ledger.add(
                    Entry(
                        int(row["round"]),
                        row["phase"],
                        int(row["client"]),
                        row["direction"],
                        int(row["bytes"]),
                    )
                )
        return ledger

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)

    def total(self, direction: str | None = None, until: int | None = None) -> int:
        """Bytes one way or both; `until` counts whole rounds up to and including that one."""
        return sum(
            entry.bytes
            for entry in self.entries
            if direction in (None, entry.direction) and (until is None or entry.round <= until)
        )

    def by_phase(self) -> dict[str, int]:
        sums: dict[str, int] = defaultdict(int)
        for entry in self.entries:
            sums[f"{entry.phase} {entry.direction}"] += entry.bytes
        return dict(sorted(sums.items()))
