"""A run as it lies on disk, finished or not."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedkge.attacks.findings import COLUMNS, Finding, summarised
from fedkge.errors import DataError, InputError
from fedkge.server.ledger import Entry, Ledger
from fedkge.simulations.report.facts import Facts
from fedkge.simulations.runs.csv_tables import read_rows, read_text

__all__ = ["ALL", "RunFolder", "runs_in"]

ALL = "all"  # in the place of a client: all of them together

_METRICS = {"round": int, "client": str, "split": str, "metric": str, "value": float}
_MESSAGES = {"round": int, "phase": str, "client": int, "direction": str, "bytes": int}
_FAILURES = {"round": int, "phase": str, "client": str, "reason": str}


@dataclass(frozen=True)
class RunFolder:
    """Everything a report says about one run."""

    name: str
    experiment: Facts
    environment: Facts
    summary: Facts
    metrics: Sequence[Mapping[str, Any]]
    ledger: Ledger
    failures: Sequence[Mapping[str, Any]]
    findings: Sequence[Finding]

    @classmethod
    def read(cls, folder: Path) -> RunFolder:
        summary = _json(folder / "summary.json")
        finished = bool(summary.content)
        ledger = Ledger()
        for row in read_rows(folder / "messages.csv", _MESSAGES, finished):
            ledger.add(Entry(**row))
        return cls(
            folder.resolve().name,
            _toml(folder / "experiment.toml"),
            _json(folder / "environment.json"),
            summary,
            read_rows(folder / "metrics.csv", _METRICS, finished),
            ledger,
            read_rows(folder / "failures.csv", _FAILURES, finished),
            [Finding(**row) for row in read_rows(folder / "findings.csv", COLUMNS)]
            or list(summarised(summary.part("leakage").content)),
        )

    @property
    def is_finished(self) -> bool:
        return bool(self.summary.content)

    @property
    def strategy(self) -> str:
        return self.experiment.text("federation", "strategy") or "?"

    @property
    def num_clients(self) -> int:
        return int(self.experiment.number("data", "clients") or 0)

    @property
    def bytes_total(self) -> int:
        return self.ledger.total()

    @cached_property
    def last_round(self) -> int:
        """How many rounds were trained."""
        rounds = [row["round"] for row in self.metrics] + [entry.round for entry in self.ledger.entries]
        return int(self.summary.number("communication", "rounds") or max(rounds, default=0))

    def curve(self, split: str, metric: str) -> dict[str, list[tuple[float, float]]]:
        """A metric over rounds, for each client and for all; of a round measured twice, the last counts."""
        curves: dict[str, dict[int, float]] = {}
        for row in self.metrics:
            if row["split"] == split and row["metric"] == metric:
                curves.setdefault(row["client"], {})[row["round"]] = row["value"]
        return {client: sorted(values.items()) for client, values in sorted(curves.items(), key=_by_number)}

    def bytes_by_round(self, direction: str | None = None) -> list[tuple[float, float]]:
        """Bytes up to and including each round; what comes before the first is round 0."""
        sums: dict[int, int] = {}
        for entry in self.ledger.entries:
            if direction in (None, entry.direction):
                sums[entry.round] = sums.get(entry.round, 0) + entry.bytes
        total, found = 0, []
        for round in sorted(sums):
            total += sums[round]
            found.append((float(round), float(total)))
        return found


def runs_in(folder: Path) -> list[Path]:
    """The folder itself if it is a run, else the runs directly in it."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the folder of a run or a comparison")
    if _is_run(folder):
        return [folder]
    found = sorted(each for each in folder.iterdir() if _is_run(each))
    if not found:
        raise InputError(
            f"{folder}: no run in it (no experiment.toml); give the folder of a run or a comparison"
        )
    return found


def _is_run(folder: Path) -> bool:
    return (folder / "experiment.toml").is_file()


def _by_number(item: tuple[str, Any]) -> tuple[int, str]:
    return (int(item[0]), "") if item[0].isdecimal() else (-1, item[0])


def _json(path: Path) -> Facts:
    if not path.exists():
        return Facts({})
    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not JSON ({error}); restore it, or run the experiment again") from None
    if not isinstance(content, Mapping) or not content:
        raise DataError(f"{path}: expected an object with content; restore it, or run the experiment again")
    return Facts(content)


def _toml(path: Path) -> Facts:
    try:
        return Facts(tomllib.loads(read_text(path)))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path}: not TOML ({error}); mend that line") from None
