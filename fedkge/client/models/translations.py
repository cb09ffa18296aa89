"""Models that move a head by its relation: TransE, TransM, TransH, TransR."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedkge.client.kernels.arrays import Floats
from fedkge.client.kernels.comparisons import length
from fedkge.client.kernels.operators import Operator
from fedkge.client.models.initial import uniform_rows
from fedkge.client.models.model import Model
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import ModelSettings

__all__ = ["TransE", "TransH", "TransM", "TransR"]


class TransE(Model):
    """−‖h + r − t‖ (Bordes et al., 2013)."""

    operator = Operator.MOVE

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return -length(h + r - t, self.settings.norm)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        return h + r

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        return t - r

    def relation_between(self, h: Tensor, t: Tensor) -> Tensor:
        """The relation row that fits a pair best."""
        return t - h


class TransM(TransE):
    """−w_r ‖h + r − t‖, where w_r is small for a relation with many answers (Fan et al., 2014)."""

    @classmethod
    def relation_scale(cls, graph: KnowledgeGraph) -> Floats:
        """w_r = 1 / log(tails per head + heads per tail), over the client's own train triples."""
        head, relation, tail = graph.train.T.astype(np.int64)
        size, kinds = graph.num_entities, graph.num_relations
        count = np.bincount(relation, minlength=kinds)
        heads = np.bincount(np.unique(relation * size + head) // size, minlength=kinds)
        tails = np.bincount(np.unique(relation * size + tail) // size, minlength=kinds)
        spread = np.where(count > 0, count / np.maximum(heads, 1) + count / np.maximum(tails, 1), 2.0)
        return (1 / np.log(spread)).astype(np.float32)


class TransH(Model):
    """−‖h⊥ + d − t⊥‖ on the plane of the relation; its row is d, then the normal w (Wang et al., 2014)."""

    relation_width = 2
    projects = True

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        d, w = r.chunk(2, dim=-1)
        w = normalize(w, dim=-1)
        flat_h = h - (w * h).sum(-1, keepdim=True) * w
        flat_t = t - (w * t).sum(-1, keepdim=True) * w
        return -length(flat_h + d - flat_t, self.settings.norm)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        return self._flat(h, r) + r.chunk(2, dim=-1)[0]

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        return self._flat(t, r) - r.chunk(2, dim=-1)[0]

    def project(self, rows: Tensor, r: Tensor) -> Tensor:
        w = normalize(r.chunk(2, dim=-1)[1], dim=-1)  # (b, d)
        along = torch.bmm(rows, w[:, :, None])  # (b, n, 1)
        return torch.baddbmm(rows, along, w[:, None, :], alpha=-1)

    def _flat(self, rows: Tensor, r: Tensor) -> Tensor:
        return self.project(rows[:, None], r)[:, 0]


class TransR(Model):
    """−‖M h + r − M t‖ in the space of the relation; its row is r, then M by rows (Lin et al., 2015)."""

    projects = True

    @classmethod
    def relation_columns(cls, dim: int) -> int:
        return dim + dim * dim

    @classmethod
    def initial_table(cls, name: str, labels: Sequence[str], settings: ModelSettings, key: bytes) -> Floats:
        """M starts as the identity, as its authors start it."""
        if name != cls.relation_table:
            return super().initial_table(name, labels, settings, key)
        translation = cls.spread(uniform_rows(key, labels, settings.dim), settings)
        identity = np.eye(settings.dim, dtype=np.float32).reshape(1, -1).repeat(len(labels), axis=0)
        return np.concatenate([translation, identity], axis=1)

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        translation, m = self._parts(r)  # (..., d), (..., d, d)
        moved = (m @ (h - t)[..., None])[..., 0] + translation
        return -length(moved, self.settings.norm)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        return self.project(h[:, None], r)[:, 0] + self._parts(r)[0]

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        return self.project(t[:, None], r)[:, 0] - self._parts(r)[0]

    def project(self, rows: Tensor, r: Tensor) -> Tensor:
        return torch.bmm(rows, self._parts(r)[1].transpose(1, 2))  # (b, n, d)

    def _parts(self, r: Tensor) -> tuple[Tensor, Tensor]:
        dim = self.settings.dim
        return r[..., :dim], r[..., dim:].reshape(*r.shape[:-1], dim, dim)
