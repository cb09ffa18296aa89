"""How a query is compared with a candidate: dot product, L1, L2, complex modulus."""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

__all__ = ["Comparison", "compare", "length"]


class Comparison(IntEnum):
    """What relates a query to a candidate; all but DOT are distances."""

    DOT = 0
    L1 = 1
    L2 = 2
    MODULUS = 3

    @property
    def sign(self) -> float:
        """A score grows with a dot product and shrinks with a distance."""
        return 1.0 if self is Comparison.DOT else -1.0


def compare(kind: Comparison, query: Tensor, candidate: Tensor) -> Tensor:
    """The comparison in torch, over the last dimension."""
    if kind is Comparison.DOT:
        return (query * candidate).sum(-1)
    difference = query - candidate
    if kind is Comparison.L1:
        return difference.abs().sum(-1)
    if kind is Comparison.L2:
        return length(difference, 2)
    parts = torch.stack(difference.chunk(2, dim=-1), dim=-1)  # (..., d, 2) real, imaginary
    return length(parts, 2).sum(-1)


def length(x: Tensor, norm: int) -> Tensor:
    """The L1 or L2 norm over the last dimension."""
    lengths: Tensor = torch.linalg.vector_norm(x, ord=norm, dim=-1)
    return lengths
