"""Models that rotate a head by its relation: RotatE."""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor

from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.kernels.operators import Operator
from fedkge.client.models.model import Model, initial_range

__all__ = ["RotatE"]


class RotatE(Model):
    """−Σ |h ∘ r − t| with |r| = 1; an entity row is real then imaginary parts (Sun et al., 2019).

    A relation row holds phases in units of the initial range, as its authors store them, so that one
    learning rate suits both tables.
    """

    entity_width = 2
    operator = Operator.ROTATE

    @property
    def comparison(self) -> Comparison:
        return Comparison.MODULUS

    @property
    def unit(self) -> float:
        return pi / initial_range(self.settings)

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        a, b = h.chunk(2, dim=-1)
        rotated = torch.complex(a, b) * torch.polar(torch.ones_like(r), r * self.unit)
        return -(rotated - torch.complex(*t.chunk(2, dim=-1))).abs().sum(-1)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        return _rotated(h, r * self.unit)

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        return _rotated(t, -r * self.unit)

    def relation_between(self, h: Tensor, t: Tensor) -> Tensor:
        """The relation row that fits a pair best: the phase of t / h."""
        phase = torch.complex(*t.chunk(2, dim=-1)).angle() - torch.complex(*h.chunk(2, dim=-1)).angle()
        return torch.remainder(phase + pi, 2 * pi).sub(pi) / self.unit


def _rotated(rows: Tensor, phase: Tensor) -> Tensor:
    a, b = rows.chunk(2, dim=-1)
    cosine, sine = phase.cos(), phase.sin()
    return torch.cat([a * cosine - b * sine, a * sine + b * cosine], dim=-1)
