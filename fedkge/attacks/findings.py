"""What an attack was found to achieve: one number with its interval, or the reason why there is none.

Reports read findings long after the attack, so this module imports nothing that is slow.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from fedkge.storage import staged

if TYPE_CHECKING:
    from fedkge.attacks.view import View

__all__ = [
    "COLUMNS",
    "Details",
    "Finding",
    "leakage_of",
    "most_recovered",
    "summarised",
    "worst",
    "write_findings",
]

_IMPOSSIBLE = "not possible"


class Details(TypedDict, total=False):
    """What a finding may say besides its value."""

    regime: str
    interval: tuple[float, float] | None
    baseline: float | None
    count: int | None
    note: str


@dataclass(frozen=True)
class Finding:
    """One line of findings.csv; a value of None means "not possible", and the note says why."""

    attack: str
    protocol: str  # "paper" or "rigorous"
    view: str
    adversary: str
    granted: str  # what the adversary was given that the protocol does not send
    leak_ratio: float
    target: int | None  # the client attacked; None: all others together
    regime: str  # which candidates the attack had; empty where there are none
    metric: str
    value: float | None
    low: float | None = None  # the 95 % interval
    high: float | None = None
    baseline: float | None = None  # what guessing reaches
    count: int | None = None  # over how many elements
    note: str = ""

    @classmethod
    def of(
        cls,
        attack: str,
        protocol: str,
        view: View,
        target: int | None,
        metric: str,
        value: float | None,
        **details: Unpack[Details],
    ) -> Finding:
        """A finding about a view.

        Args:
            attack: its name in the registry.
            protocol: "paper" or "rigorous".
            view: what was attacked; who the adversary is and what it was granted is read from it.
            target: the client attacked, or None for all others together.
            metric: what the value measures.
            value: the measurement, or None if the attack is not possible: then give a `note`.
            details: `regime`, `interval` (95 %), `baseline` (what guessing reaches), `count`, `note`.
        """
        low, high = details.get("interval") or (None, None)
        return cls(
            attack,
            protocol,
            view.name,
            view.adversary,
            " ".join(view.granted),
            view.leak_ratio,
            target,
            details.get("regime", ""),
            metric,
            value,
            low,
            high,
            details.get("baseline"),
            details.get("count"),
            details.get("note", ""),
        )

    @property
    def possible(self) -> bool:
        return self.value is not None

    @property
    def includes_guessing(self) -> bool:
        """Whether the interval includes what guessing reaches: neither better nor worse."""
        known = self.low is not None and self.high is not None and self.baseline is not None
        return known and self.low <= self.baseline <= self.high  # type: ignore[operator]

    @property
    def is_at_chance(self) -> bool:
        """Whether guessing does as well, as far as the interval tells."""
        return self.low is not None and self.low <= (self.baseline or 0.0)

    @property
    def excess(self) -> float:
        """How much more than guessing, as far as the interval is sure."""
        return (self.low or 0.0) - (self.baseline or 0.0)

    @property
    def is_success(self) -> bool:
        """Whether it says how much was found out: a share, not a control or how sure a few claims are."""
        measured = None not in (self.value, self.low, self.high)
        return measured and "precision" not in self.metric.lower() and not self.regime.startswith("control")

    @property
    def where(self) -> str:
        """Who attacked what, and how much was handed to them."""
        parts = [self.adversary, self.view and f"on {self.view}", self.regime and f"({self.regime})"]
        return " ".join(part for part in parts if part)


def worst(findings: Sequence[Finding]) -> Finding | None:
    """The greatest success; a rigorous protocol counts before a paper's, which may not use what it saw."""
    successes = [finding for finding in findings if finding.is_success]
    rigorous = [finding for finding in successes if finding.protocol == "rigorous"]
    return max(rigorous or successes, key=lambda finding: finding.excess, default=None)


def most_recovered(findings: Sequence[Finding]) -> Finding | None:
    """The reconstruction of triples furthest above guessing, from what the protocol really sends."""
    measured = [
        finding
        for finding in findings
        if finding.metric in ("TRR", "recall")
        and not finding.granted
        and None not in (finding.low, finding.baseline)
    ]
    return max(measured, key=lambda finding: finding.excess, default=None)


# On disk: findings.csv, and the section `leakage` of a summary.


def _number(cell: object) -> float | None:
    value = float("nan" if cell in ("", None, _IMPOSSIBLE) else str(cell))
    return value if isfinite(value) else None


def _whole(cell: object) -> int | None:
    return None if cell in ("", None) else int(str(cell))


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)


COLUMNS: Mapping[str, Callable[[object], Any]] = {  # of findings.csv, and how a cell is read
    **{field.name: _text for field in fields(Finding)},
    **dict.fromkeys(("value", "low", "high", "baseline"), _number),
    **dict.fromkeys(("target", "count"), _whole),
    "leak_ratio": lambda cell: _number(cell) or 0.0,
}


def write_findings(path: Path, findings: Iterable[Finding]) -> None:
    """A tidy CSV; what is not possible reads so."""
    with staged(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Finding))
        for finding in findings:
            cells = asdict(finding)
            cells["value"] = _IMPOSSIBLE if finding.value is None else finding.value
            writer.writerow("" if cell is None else cell for cell in cells.values())


def leakage_of(findings: Sequence[Finding]) -> dict[str, Any]:
    """The section `leakage` of a summary: attack, protocol, then one entry per finding."""
    section: dict[str, Any] = {}
    for finding in findings:
        entry = {name: cell for name, cell in asdict(finding).items() if name not in ("attack", "protocol")}
        entry["possible"] = finding.possible
        section.setdefault(finding.attack, {}).setdefault(finding.protocol, []).append(entry)
    return section


def summarised(leakage: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings of a section `leakage`; other versions wrote other keys, and what is missing is empty."""
    for attack, protocols in leakage.items():
        for protocol, entries in (protocols if isinstance(protocols, Mapping) else {}).items():
            for entry in entries if isinstance(entries, Sequence) else ():
                if isinstance(entry, Mapping):
                    cells = {**entry, "attack": attack, "protocol": protocol}
                    yield Finding(**{name: read(cells.get(name)) for name, read in COLUMNS.items()})
