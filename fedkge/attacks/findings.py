"""What an attack was found to achieve: one number with its interval, or the reason why there is none."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypedDict, Unpack

from scipy.special import betaincinv

from fedkge.attacks.view import View
from fedkge.storage import staged

__all__ = ["Details", "Finding", "leakage_of", "proportion", "write_findings"]

_CONFIDENCE = 0.95


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
    def at_chance(self) -> bool:
        """Whether the interval includes what guessing reaches."""
        known = self.low is not None and self.high is not None and self.baseline is not None
        return known and self.low <= self.baseline <= self.high  # type: ignore[operator]


def proportion(hits: float, count: float, design: float = 1.0) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper and Pearson, 1934).

    A design effect above one means that hits come in clusters, so that fewer of them count as independent.
    """
    hits, count = hits / design, count / design
    if count == 0:
        return 0.0, 1.0
    tail = (1 - _CONFIDENCE) / 2
    low = float(betaincinv(hits, count - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, count - hits, 1 - tail)) if hits < count else 1.0
    return low, high


def write_findings(path: Path, findings: Iterable[Finding]) -> None:
    """A tidy CSV; what is not possible reads so."""
    with staged(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Finding))
        for finding in findings:
            cells = asdict(finding)
            cells["value"] = "not possible" if finding.value is None else finding.value
            writer.writerow("" if cell is None else cell for cell in cells.values())


def leakage_of(findings: Sequence[Finding]) -> dict[str, Any]:
    """The section `leakage` of a summary: attack, protocol, then one entry per finding."""
    section: dict[str, Any] = {}
    for finding in findings:
        entry = {name: cell for name, cell in asdict(finding).items() if name not in ("attack", "protocol")}
        entry["possible"] = finding.possible
        section.setdefault(finding.attack, {}).setdefault(finding.protocol, []).append(entry)
    return section
