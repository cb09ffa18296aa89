"""How the gradient of one triple at entity rows reaches the parameters that made them.

Every triple is differentiated by itself, from arrays of its own: a batch decides nothing, not even how a
number is rounded, because the shape of a matrix product and where its operands lie may.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedkge.client.kernels.arrays import Floats, Ids, ScoredRows
from fedkge.client.kernels.lengths import unnormalised
from fedkge.client.models.model import LinearRows, Model

__all__ = ["ByAutograd", "Linear", "Part", "RowEncoder", "row_encoder_of"]


class Part(NamedTuple):
    """What one triple asks of some rows of a parameter; no row is named twice."""

    name: str
    gradient: Floats  # (r, w); valid until the next triple
    rows: Ids  # (r,)


class RowEncoder(ABC):
    """Entity rows of a model as its parameters stand, and the way back.

    Attributes:
        scored: the rows of the whole vocabulary. Were it those of a batch, the batch would round them.
    """

    scored: ScoredRows

    @abstractmethod
    def parts(self, entities: Ids, slopes: Floats, relation: int, relation_slope: Floats) -> list[Part]:
        """The gradient of a triple at every parameter that it reaches.

        Args:
            entities: (p,) that it names, possibly several times.
            slopes: (p, w) its gradient at their rows.
            relation: that it names.
            relation_slope: (v,) its gradient there.
        """


class ByAutograd(RowEncoder):
    """Any model with `encode_rows`, through torch."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.scored = model.scored
        self.leaves = {name: model[name].detach().requires_grad_() for name in model.parameters}
        self.bound = model.bind(self.leaves, sparse=True)

    def parts(self, entities: Ids, slopes: Floats, relation: int, relation_slope: Floats) -> list[Part]:
        rows, relations = self.bound.encode_rows(torch.from_numpy(entities.astype(np.int64)))
        at_relations = torch.zeros_like(relations)
        at_relations[relation] = torch.from_numpy(relation_slope)
        outputs = [(rows, torch.from_numpy(slopes)), (relations, at_relations)]
        trained = [(output, slope) for output, slope in outputs if output.requires_grad]
        made, at_made = zip(*trained, strict=True)
        gradients = torch.autograd.grad(made, list(self.leaves.values()), at_made, allow_unused=True)
        named = zip(self.leaves, gradients, strict=True)
        return [_part(name, gradient) for name, gradient in named if gradient is not None]


class Linear(RowEncoder):
    """Rows F W, or such of length 1: the gradient at W is a product of features and slopes."""

    def __init__(self, model: Model, linear: LinearRows) -> None:
        self.name, self.features = linear.weight, linear.features
        self.relation_table = model.relation_table
        raw = linear.features @ model[linear.weight].detach()
        self.raw = raw.numpy()
        self.normalised = linear.normalised
        rows = normalize(raw, dim=1) if linear.normalised else raw
        self.scored = ScoredRows(rows.numpy(), model.tables[model.relation_table])
        self.every = np.arange(linear.features.shape[1], dtype=np.int32)
        self._gradient = torch.empty(linear.features.shape[1], raw.shape[1])

    def parts(self, entities: Ids, slopes: Floats, relation: int, relation_slope: Floats) -> list[Part]:
        at_raw = unnormalised(self.raw, entities, slopes) if self.normalised else slopes
        features = self.features[torch.from_numpy(entities.astype(np.int64))]  # (p, d)
        torch.mm(features.T, torch.from_numpy(at_raw).clone(), out=self._gradient)
        return [
            _row(self.relation_table, relation, relation_slope),
            Part(self.name, self._gradient.numpy(), self.every),
        ]


def row_encoder_of(model: Model) -> RowEncoder:
    """The faster one where there is one."""
    linear = model.linear_rows
    if linear is None or model.relation_table not in model.tables:
        return ByAutograd(model)
    return Linear(model, linear)


def _row(name: str, row: int, gradient: Floats) -> Part:
    return Part(name, gradient[None], np.array([row], dtype=np.int32))


def _part(name: str, gradient: Tensor) -> Part:
    """Of a dense or a sparse gradient, as rows of what optimisers move."""
    if gradient.is_sparse:
        gradient = gradient.coalesce()
        rows = gradient.indices()[0].numpy().astype(np.int32)
        return Part(name, gradient.values().reshape(len(rows), -1).contiguous().numpy(), rows)
    whole = gradient.reshape(len(gradient), -1) if gradient.dim() > 1 else gradient.reshape(1, -1)
    return Part(name, whole.contiguous().numpy(), np.arange(len(whole), dtype=np.int32))
