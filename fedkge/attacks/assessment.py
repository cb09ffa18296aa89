"""The findings about one client, as they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from fedkge.attacks.findings import Details, Finding
from fedkge.attacks.intervals import proportion
from fedkge.attacks.reconstruction.scoring import ClaimScore
from fedkge.attacks.view import View

__all__ = ["Assessment"]


@dataclass(frozen=True, eq=False)
class Assessment:
    """Where findings go, and what they have in common."""

    attack: str
    protocol: str
    view: View
    target: int
    findings: list[Finding]
    source: str = ""  # which rows were attacked
    method: str = ""  # how relations were inferred

    def add(self, metric: str, value: float | None, **details: Unpack[Details]) -> None:
        circumstances = (self.source, details.get("regime", ""), self.method)
        details["regime"] = ", ".join(part for part in circumstances if part)
        self.findings.append(
            Finding.of(self.attack, self.protocol, self.view, self.target, metric, value, **details)
        )

    def share(
        self,
        metric: str,
        hits: int,
        count: int,
        *,
        regime: str = "",
        baseline: float | None = None,
        note: str = "",
    ) -> None:
        """A proportion with its exact interval."""
        if count == 0:
            self.impossible(metric, "there is nothing to count", regime=regime)
            return
        self.add(
            metric,
            hits / count,
            regime=regime,
            interval=proportion(hits, count),
            baseline=baseline,
            count=count,
            note=note,
        )

    def scored(
        self,
        regime: str,
        result: ClaimScore,
        *,
        interval: tuple[float, float] | None = None,
        baseline: float | None = None,
    ) -> None:
        """Claims against the truth."""
        self.add(
            "recall",
            result.recall,
            regime=regime,
            interval=interval or proportion(result.hits, result.positives),
            baseline=baseline,
            count=result.positives,
        )
        self.add("precision", result.precision, regime=regime, count=result.claims)
        self.add("F1", result.f1, regime=regime)
        self.add("AUPRC", result.average_precision, regime=regime, count=result.positives)

    def above(self, metric: str, value: float, reached: float, *, regime: str) -> None:
        """How much more than a baseline."""
        self.add(metric, value - reached, regime=regime, baseline=reached)

    def impossible(self, metric: str, reason: str, *, regime: str = "") -> None:
        self.add(metric, None, regime=regime, note=reason)
