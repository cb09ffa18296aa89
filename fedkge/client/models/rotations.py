"""Models that turn a head by its relation: RotatE."""

from __future__ import annotations

from math import pi

import numpy as np
import torch
from torch import Tensor

from fedkge.client.arrays import Floats
from fedkge.client.comparisons import Comparison
from fedkge.client.models.base import Model, Pull, initial_range
from fedkge.client.models.complex import multiply

__all__ = ["RotatE"]


class RotatE(Model):
    """−Σ |h ∘ r − t| with |r| = 1; an entity row is real then imaginary parts (Sun et al., 2019).

    A relation row holds phases in units of the initial range, as its authors store them, so that one
    learning rate suits both tables.
    """

    entity_width = 2

    @property
    def comparison(self) -> Comparison:
        return Comparison.MODULUS

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        a, b = h.chunk(2, dim=-1)
        turned = torch.complex(a, b) * torch.polar(torch.ones_like(r), self._phase(r))
        return -(turned - torch.complex(*t.chunk(2, dim=-1))).abs().sum(-1)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        return _turn(h, self._phase(r))

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        return _turn(t, -self._phase(r))

    def queries(self, h: Floats, r: Floats, num_tails: int) -> tuple[Floats, Pull]:
        """A head is asked for by turning back."""
        turn = np.float32(pi / initial_range(self.settings))
        phase = r * turn
        phase[num_tails:] *= -1
        cosine, sine = np.cos(phase), np.sin(phase)
        queries, back = multiply(h, np.concatenate([cosine, sine], axis=1))

        def pull(slopes: Floats) -> tuple[Floats, Floats]:
            at_h, at_factors = back(slopes)
            dim = r.shape[1]
            at_r: Floats = (at_factors[:, dim:] * cosine - at_factors[:, :dim] * sine) * turn
            at_r[num_tails:] *= -1
            return at_h, at_r

        return queries, pull

    def relation_between(self, h: Tensor, t: Tensor) -> Tensor:
        """The relation row that fits a pair best: the phase of t / h."""
        phase = torch.complex(*t.chunk(2, dim=-1)).angle() - torch.complex(*h.chunk(2, dim=-1)).angle()
        return torch.remainder(phase + pi, 2 * pi).sub(pi) * (initial_range(self.settings) / pi)

    def _phase(self, r: Tensor) -> Tensor:
        return r * (pi / initial_range(self.settings))


def _turn(rows: Tensor, phase: Tensor) -> Tensor:
    a, b = rows.chunk(2, dim=-1)
    cosine, sine = phase.cos(), phase.sin()
    return torch.cat([a * cosine - b * sine, a * sine + b * cosine], dim=-1)
