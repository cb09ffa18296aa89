"""Ranking metrics of many clients from sums alone: no rank of a single triple leaves its client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt

from fedkge.figures import SCORES

__all__ = ["Moments"]

_NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Moments:
    """Counts, sums and sums of squares of what each ranked triple scored."""

    count: int
    unseen: int
    sums: Mapping[str, float]
    squares: Mapping[str, float]

    @classmethod
    def from_facts(cls, facts: Mapping[str, object]) -> Moments:
        return cls(**facts)  # type: ignore[arg-type]

    @classmethod
    def from_figures(cls, figures: Mapping[str, float]) -> Moments:
        """From figures that were summed over clients."""
        return cls(
            int(figures["count"]),
            int(figures["unseen"]),
            {name: figures[f"sum {name}"] for name in SCORES},
            {name: figures[f"square {name}"] for name in SCORES},
        )

    @classmethod
    def total(cls, parts: Iterable[Moments]) -> Moments:
        """All parts together, added in the order given."""
        parts = list(parts)
        names = parts[0].sums if parts else ()
        return cls(
            sum(part.count for part in parts),
            sum(part.unseen for part in parts),
            {name: sum(part.sums[name] for part in parts) for name in names},
            {name: sum(part.squares[name] for part in parts) for name in names},
        )

    def means(self) -> dict[str, float]:
        return {name: value / self.count for name, value in self.sums.items()} if self.count else {}

    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % intervals of the means by the normal approximation."""
        found = {}
        for name, mean in self.means().items():
            variance = max(self.squares[name] / self.count - mean**2, 0.0)
            half = _NORMAL_95 * sqrt(variance / self.count)
            found[name] = (mean - half, mean + half)
        return found
