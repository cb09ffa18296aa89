"""What an edge list had before it became a graph."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EdgeCounts"]


@dataclass(frozen=True)
class EdgeCounts:
    """How many rows an edge list has, and what of them is no edge of the graph."""

    directed: bool  # whether (u, v) and (v, u) are two edges
    rows: int
    self_loops: int  # rows that join a vertex with itself
    repeated: int  # other rows that say again what an earlier one says

    @property
    def edges(self) -> int:
        return self.rows - self.self_loops - self.repeated

    def part(self, edges: int) -> EdgeCounts:
        """Of so many of its edges, which somebody was given."""
        return EdgeCounts(self.directed, edges, 0, 0)
