"""ConvKB: a convolution over head, relation and tail, which no query writes down."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedkge.client.kernels.arrays import Floats
from fedkge.client.kernels.neural.convolution import Filters, convolve, convolve_backward, padded_filters
from fedkge.client.models.model import Model
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import ModelSettings, Settings

__all__ = ["ConvKB"]


class ConvKB(Model):
    """w · relu([h, r, t] ∗ filters), each filter 1 × 3 (Nguyen et al., 2018)."""

    class Options(Settings):
        filters: int = Field(default=50, ge=1, description="of the convolution")
        filter_dropout: float = Field(default=0.0, ge=0, lt=1, description="of what filters give")

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        del graph
        filters: int = cls.options_of(settings).filters
        return {
            "filters": (3, filters),
            "filter_bias": (filters,),
            "dense": (settings.dim, filters),
            "offset": (1,),
        }

    @classmethod
    def of_rows(cls, settings: ModelSettings, entities: Floats, relations: Floats) -> Self:
        del settings, entities, relations
        raise SettingError(f"{cls.__name__} scores rows with weights of its own, which were never sent")

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        dropout = self.options.filter_dropout if self.in_training else 0
        if h.device.type != "cpu" or h.dtype != torch.float32 or dropout > 0 or 0 in (*h.shape, *t.shape):
            return self._by_formula(h, r, t)
        filters, bias, dense = self["filters"], self["filter_bias"], self["dense"]
        if h.dim() > 1 and h.shape[-2] > 1 and t.shape[-2] == 1:  # many heads for each tail
            return _scores(filters.flip(0), bias, dense, t, r, h) + self["offset"]
        return _scores(filters, bias, dense, h, r, t) + self["offset"]

    def _by_formula(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        outputs: Tensor = self["filter_bias"]
        for row, part in zip(self["filters"], (h, r, t), strict=True):
            outputs = outputs + part[..., None] * row  # (..., dim, filters)
        outputs = self.dropout(torch.relu(outputs), self.options.filter_dropout)
        return (outputs * self["dense"]).sum((-1, -2)) + self["offset"]


def _scores(filters: Tensor, bias: Tensor, dense: Tensor, anchor: Tensor, r: Tensor, rows: Tensor) -> Tensor:
    """Scores of the shape that rows broadcast to; each anchor meets many rows where there are three axes."""
    shape = np.broadcast_shapes(anchor.shape[:-1], r.shape[:-1], rows.shape[:-1])
    count = shape[-1] if len(shape) > 1 and anchor.shape[-2] == r.shape[-2] == 1 else 1
    queries = (*shape[:-1], 1) if count > 1 else shape
    fixed = (part.expand(*queries, part.shape[-1]).reshape(-1, part.shape[-1]) for part in (anchor, r))
    if count == 1 or rows[..., 0, 0].numel() > 1:
        rows = rows.expand(*shape, rows.shape[-1])
    made: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
        *filters, bias, dense, *fixed, rows.reshape(-1, count, rows.shape[-1])
    )
    return made.reshape(shape)


class _Convolution(torch.autograd.Function):
    """(b, n) scores by the kernel: of filters, three (f,), bias, dense (d, f), two (b, d), (b or 1, n, d)."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        *parts, anchors, relations, candidates = (tensor.detach().contiguous().numpy() for tensor in tensors)
        scores = np.empty((len(anchors), candidates.shape[1]), dtype=np.float32)
        convolve(padded_filters(*parts), anchors, relations, candidates, scores)
        return torch.from_numpy(scores)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, at_scores: Tensor) -> tuple[Tensor, ...]:
        *parts, anchors, relations, candidates = (
            tensor.detach().contiguous().numpy() for tensor in ctx.saved_tensors
        )
        filters = padded_filters(*parts)
        at_filters = Filters(*(np.zeros_like(part) for part in filters))
        at = (at_filters, *map(np.zeros_like, (anchors, relations, candidates)))
        slopes = at_scores.contiguous().numpy()
        convolve_backward(filters, anchors, relations, candidates, slopes, *at)
        count = len(parts[3])
        vectors = (part[0, :count] for part in at_filters[:4])
        at_dense = np.ascontiguousarray(at_filters.dense[:, :count])
        return tuple(torch.from_numpy(array) for array in (*vectors, at_dense, *at[1:]))
