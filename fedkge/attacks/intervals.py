"""How far a measured share may be from the true one."""

from __future__ import annotations

from scipy.special import betaincinv

__all__ = ["proportion"]

_CONFIDENCE = 0.95


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
