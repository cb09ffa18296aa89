"""Models whose score is bilinear in the entities: RESCAL, DistMult, ComplEx, QuatE."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.kernels.operators import Operator
from fedkge.client.models.model import Model

__all__ = ["RESCAL", "ComplEx", "DistMult", "QuatE"]


class Similarity(Model):
    """A model whose comparison is the dot product."""

    @property
    def comparison(self) -> Comparison:
        return Comparison.DOT


class RESCAL(Similarity):
    """hᵀ M t, with one matrix per relation, stored by rows (Nickel et al., 2011)."""

    @classmethod
    def relation_columns(cls, dim: int) -> int:
        return dim * dim

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return (h * (self._matrix(r) @ t[..., None])[..., 0]).sum(-1)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        return torch.bmm(h[:, None, :], self._matrix(r))[:, 0]

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        return torch.bmm(self._matrix(r), t[:, :, None])[:, :, 0]

    def _matrix(self, r: Tensor) -> Tensor:
        return r.reshape(*r.shape[:-1], self.settings.dim, self.settings.dim)


class DistMult(Similarity):
    """⟨h, r, t⟩ (Yang et al., 2015)."""

    operator = Operator.SCALE

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return (h * r * t).sum(-1)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        return h * r

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        return t * r


class ComplEx(Similarity):
    """Re⟨h, r, t̄⟩; a row is the real parts, then the imaginary ones (Trouillon et al., 2016)."""

    entity_width = 2
    relation_width = 2
    operator = Operator.MULTIPLY

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        (a, b), (c, d), (e, f) = (x.chunk(2, dim=-1) for x in (h, r, t))
        return (a * c * e + b * c * f + a * d * f - b * d * e).sum(-1)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        (a, b), (c, d) = h.chunk(2, dim=-1), r.chunk(2, dim=-1)
        return torch.cat([a * c - b * d, a * d + b * c], dim=-1)

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        (e, f), (c, d) = t.chunk(2, dim=-1), r.chunk(2, dim=-1)
        return torch.cat([c * e + d * f, c * f - d * e], dim=-1)


class QuatE(Similarity):
    """(h ⊗ r / |r|) · t over quaternions; a row is four parts, the real one first (Zhang et al., 2019)."""

    entity_width = 4
    relation_width = 4

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return (_hamilton(h, _unit(r)) * t).sum(-1)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        return _hamilton(h, _unit(r))

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        a, b, c, d = _unit(r).chunk(4, dim=-1)
        return _hamilton(t, torch.cat([a, -b, -c, -d], dim=-1))


def _unit(r: Tensor) -> Tensor:
    return normalize(r.reshape(*r.shape[:-1], 4, r.shape[-1] // 4), dim=-2).flatten(-2)


def _hamilton(p: Tensor, q: Tensor) -> Tensor:
    a, b, c, d = p.chunk(4, dim=-1)
    e, f, g, h = q.chunk(4, dim=-1)
    return torch.cat(
        [
            a * e - b * f - c * g - d * h,
            a * f + b * e + c * h - d * g,
            a * g - b * h + c * e + d * f,
            a * h + b * g - c * f + d * e,
        ],
        dim=-1,
    )
