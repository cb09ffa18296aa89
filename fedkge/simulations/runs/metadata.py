"""Settings and results as JSON and TOML nest them; other versions wrote other keys, so any may be missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

__all__ = ["Metadata"]


@dataclass(frozen=True)
class Metadata:
    """A tree of names and values."""

    content: Mapping[str, Any]

    def at(self, *path: str) -> Any:
        """The value at a path, or None."""
        value: Any = self.content
        for name in path:
            if not isinstance(value, Mapping):
                return None
            value = value.get(name)
        return value

    def number(self, *path: str) -> float | None:
        value = self.at(*path)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if is_number and not isnan(value) else None

    def text(self, *path: str) -> str:
        """The value as words; empty where there is none."""
        value = self.at(*path)
        return "" if value is None else str(value)

    def part(self, *path: str) -> Metadata:
        value = self.at(*path)
        return Metadata(value if isinstance(value, Mapping) else {})

    def listed(self, *path: str) -> list[Any]:
        value = self.at(*path)
        return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []

    def flat(self, before: str = "") -> dict[str, Any]:
        """Every value by its dotted name."""
        values: dict[str, Any] = {}
        for name, value in self.content.items():
            if isinstance(value, Mapping):
                values |= Metadata(value).flat(f"{before}{name}.")
            else:
                values[f"{before}{name}"] = value
        return values
