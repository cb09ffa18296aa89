"""The numbers that a paper prints: one numbers.csv a paper, tidy, one number a line.

Columns are `table` (as the paper counts them), whatever tells its cells apart, `metric` and `value`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["Published"]

Key = str | int | float | None


@dataclass(frozen=True)
class Published:
    """A paper's numbers, read when one is first asked for."""

    path: Path

    @classmethod
    def beside(cls, module: str) -> Published:
        """The numbers.csv in the folder of a module, which gives its `__file__`."""
        return cls(Path(module).with_name("numbers.csv"))

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """Every line by its columns; a key that a table does not have is left out."""
        with self.path.open(newline="", encoding="utf-8") as file:
            return [{name: cell for name, cell in row.items() if cell} for row in csv.DictReader(file)]

    def get(self, table: str, metric: str, **keys: Key) -> float | None:
        """One number, or None where the paper prints none; the keys are all those of the cell."""
        return self._numbers.get(_cell({"table": table, "metric": metric, **keys}))

    def values(self, table: str, column: str) -> list[str]:
        """What a column of a table has, in the order in which it comes."""
        return list(dict.fromkeys(row[column] for row in self.rows if row["table"] == table))

    @cached_property
    def _numbers(self) -> dict[frozenset[tuple[str, str]], float]:
        return {
            _cell({name: text for name, text in row.items() if name != "value"}): float(row["value"])
            for row in self.rows
        }


def _cell(keys: Mapping[str, Key]) -> frozenset[tuple[str, str]]:
    """Keys as the file writes them: 1.0 is 1, and None is an empty cell."""
    return frozenset(
        (name, f"{key:g}" if isinstance(key, float) else str(key))
        for name, key in keys.items()
        if key is not None
    )
