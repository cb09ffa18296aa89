"""What attacks on a run found, read from findings.csv or else from the summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from fedkge.simulations.runs.metadata import Metadata

__all__ = ["COLUMNS", "Finding", "summarised", "worst"]

_IMPOSSIBLE = "not possible"


@dataclass(frozen=True)
class Finding:
    """One number with its interval; without a value the attack was not possible, and the note says why."""

    attack: str
    protocol: str
    view: str
    adversary: str
    granted: str  # what the adversary was given that the protocol does not send
    leak_ratio: str
    target: str
    regime: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    baseline: float | None  # what guessing reaches
    count: str
    note: str

    @property
    def excess(self) -> float:
        """How much more than guessing, as far as the interval is sure."""
        return (self.low or 0.0) - (self.baseline or 0.0)

    @property
    def is_success(self) -> bool:
        """Whether it says how much was found out: a measured share, not how sure a few claims are."""
        measured = None not in (self.value, self.low, self.high)
        return measured and "precision" not in self.metric.lower()

    @property
    def is_at_chance(self) -> bool:
        """Whether guessing does as well, as far as the interval tells."""
        bar = 0.0 if self.baseline is None else self.baseline
        return self.low is not None and self.low <= bar

    @property
    def where(self) -> str:
        """Who attacked what, and how much was handed to them."""
        parts = [self.adversary, self.view and f"on {self.view}", self.regime and f"({self.regime})"]
        return " ".join(part for part in parts if part)


_NUMBERS = ("value", "low", "high", "baseline")


def _number(cell: str) -> float | None:
    value = float("nan" if cell in ("", _IMPOSSIBLE) else cell)
    return value if isfinite(value) else None


COLUMNS = {field.name: _number if field.name in _NUMBERS else str for field in fields(Finding)}


def summarised(leakage: Mapping[str, Any]) -> Iterable[Finding]:
    """The findings of a section `leakage`: by attack, then by protocol."""
    for attack, protocols in leakage.items():
        for protocol, entries in (protocols if isinstance(protocols, Mapping) else {}).items():
            for entry in Metadata({"entries": entries}).listed("entries"):
                if isinstance(entry, Mapping):
                    yield _entry(attack, protocol, Metadata(entry))


def _entry(attack: str, protocol: str, entry: Metadata) -> Finding:
    cells: dict[str, Any] = {
        name: entry.number(name) if name in _NUMBERS else entry.text(name) for name in COLUMNS
    }
    return Finding(**{**cells, "attack": attack, "protocol": protocol})


def worst(findings: Sequence[Finding]) -> Finding | None:
    """The greatest success; a rigorous protocol counts before a paper's, which may not use what it saw."""
    successes = [finding for finding in findings if finding.is_success]
    rigorous = [finding for finding in successes if finding.protocol == "rigorous"]
    return max(rigorous or successes, key=lambda finding: finding.excess, default=None)
