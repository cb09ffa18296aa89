"""What a run tells whoever watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Observer", "Progress"]


@dataclass(frozen=True)
class Progress:
    """The state of a run after something happened."""

    round: int
    rounds: int
    loss: float | None  # of this round's training
    mrr: float | None  # of an evaluation, if there just was one
    best_mrr: float
    bytes: int


Observer = Callable[[Progress], None]
