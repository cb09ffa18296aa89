"""Nested settings or results of which any part may be missing: other versions wrote other keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

__all__ = ["Facts"]


@dataclass(frozen=True)
class Facts:
    """A tree of names and values, as JSON and TOML have it."""

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

    def part(self, *path: str) -> Facts:
        value = self.at(*path)
        return Facts(value if isinstance(value, Mapping) else {})

    def listed(self, *path: str) -> list[Any]:
        value = self.at(*path)
        return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []

    def flat(self, before: str = "") -> dict[str, Any]:
        """Every value by its dotted name."""
        found: dict[str, Any] = {}
        for name, value in self.content.items():
            if isinstance(value, Mapping):
                found |= Facts(value).flat(f"{before}{name}.")
            else:
                found[f"{before}{name}"] = value
        return found
