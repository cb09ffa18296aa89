"""The contract of an embedding model: two tables, a query, a comparison."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.comparisons import Comparison, compare
from fedkge.client.kernels.operators import Turn, asked
from fedkge.client.models.initial import uniform_rows
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import ModelSettings

__all__ = ["Model", "Pull"]

Pull = Callable[
    [Floats], tuple[Floats, Floats]
]  # gradients at queries to gradients at h and r, each its own memory


class Model(ABC):
    """A query built from one entity and a relation, compared with every candidate for the other place.

    Both tables are float32 torch tensors; kernels see the same memory as numpy arrays.
    """

    entity_width: ClassVar[int] = 1  # entity rows are this many times dim wide
    relation_width: ClassVar[int] = 1
    projects: ClassVar[bool] = False  # whether candidates are mapped by the relation before comparing
    turn: ClassVar[Turn | None] = None  # what its two queries do, if kernels know it

    def __init_subclass__(cls) -> None:
        """A model that asks another way than the one whose turn it has does not turn so."""
        super().__init_subclass__()
        turning = next(each for each in cls.__mro__ if "turn" in vars(each))
        asking = ("query_tail", "query_head", "queries")
        if any(getattr(cls, name) is not getattr(turning, name) for name in asking):
            cls.turn = None

    def __init__(self, settings: ModelSettings, entity: Floats, relation: Floats, scale: Floats) -> None:
        self.settings = settings
        self.entity, self.relation = _as_kernels_read(entity), _as_kernels_read(relation)
        self.scale = _as_kernels_read(scale)  # (relations,) a positive factor on every score

    @classmethod
    def build(cls, settings: ModelSettings, graph: KnowledgeGraph, seed: int) -> Self:
        """A model for a graph; rows come from the seed and the labels."""
        entity = cls.initial_entities(settings, graph.entity_labels, seed)
        relation = cls.initial_relations(settings, graph.relation_labels, seed)
        return cls(settings, entity, relation, cls.relation_scale(graph))

    @property
    def comparison(self) -> Comparison:
        """The norm of the settings; similarity models override it."""
        return Comparison.L1 if self.settings.norm == 1 else Comparison.L2

    @property
    def shift(self) -> float:
        """What losses add to a score: distances are compared with the margin, similarities with zero."""
        return 0.0 if self.comparison is Comparison.DOT else self.settings.margin

    @property
    def unit(self) -> float:
        """The angle that a relation row's 1 stands for, where it holds phases."""
        return 1.0

    @property
    def tables(self) -> dict[str, Floats]:
        """The trained tables as numpy views."""
        return {"entity": self.entity.numpy(), "relation": self.relation.numpy()}

    @abstractmethod
    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """How true a triple of rows is, as its paper writes it; higher is truer."""

    @abstractmethod
    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        """What a fitting tail looks like: (b, width), (b, width) to (b, width)."""

    @abstractmethod
    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        """What a fitting head looks like."""

    def queries(self, h: Floats, r: Floats, num_tails: int) -> tuple[Floats, Pull]:
        """Queries of a batch, for tails first, then for heads; and what takes gradients at them back.

        Torch finds the way back where kernels do not know it.
        """
        if self.turn is not None:
            return asked(self.turn, self.unit, h, r, num_tails)
        rows = [torch.from_numpy(side).requires_grad_() for side in (h, r)]
        parts = []
        if num_tails > 0:
            parts.append(self.query_tail(*(side[:num_tails] for side in rows)))
        if num_tails < len(h):
            parts.append(self.query_head(*(side[num_tails:] for side in rows)))
        query = torch.cat(parts)

        def pull(slopes: Floats) -> tuple[Floats, Floats]:
            at_h, at_r = torch.autograd.grad(query, rows, torch.from_numpy(slopes))
            return _owned(at_h), _owned(at_r)

        return query.detach().numpy(), pull

    def project(self, rows: Tensor, r: Tensor) -> Tensor:
        """Candidates as the relation sees them: (b, n, width), (b, width) to (b, n, query width)."""
        del r
        return rows

    def scores_of(self, h: Ids, r: Ids, t: Ids) -> Floats:
        """The scores of triples given by row numbers, in plain torch."""
        triple = (self.entity[_index(h)], self.relation[_index(r)], self.entity[_index(t)])
        scores: Floats = (self.score(*triple) * self.scale[_index(r)]).numpy()
        return scores

    def distance(self, query: Tensor, candidate: Tensor) -> Tensor:
        return compare(self.comparison, query, candidate)

    @classmethod
    def initial_entities(cls, settings: ModelSettings, labels: Sequence[str], seed: int) -> Floats:
        uniform = uniform_rows(seed, "entity", labels, cls.entity_columns(settings.dim))
        return cls.spread(uniform, settings)

    @classmethod
    def initial_relations(cls, settings: ModelSettings, labels: Sequence[str], seed: int) -> Floats:
        uniform = uniform_rows(seed, "relation", labels, cls.relation_columns(settings.dim))
        return cls.spread(uniform, settings)

    @classmethod
    def entity_columns(cls, dim: int) -> int:
        return cls.entity_width * dim

    @classmethod
    def relation_columns(cls, dim: int) -> int:
        return cls.relation_width * dim

    @staticmethod
    def spread(uniform: Floats, settings: ModelSettings) -> Floats:
        """Numbers in (0, 1) to ±(γ + 2) / dim, as RotatE, FedE and FedR start."""
        return (uniform * 2 - 1) * np.float32(initial_range(settings))

    @classmethod
    def relation_scale(cls, graph: KnowledgeGraph) -> Floats:
        return np.ones(graph.num_relations, dtype=np.float32)


def initial_range(settings: ModelSettings) -> float:
    return (settings.margin + 2) / settings.dim


def _as_kernels_read(rows: Floats) -> Tensor:
    """The same memory where it is float32, row after row."""
    return torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))


def _owned(rows: Tensor) -> Floats:
    """A writable, contiguous array; autograd may hand out a gradient that shares memory."""
    return np.array(rows.numpy(), dtype=np.float32, order="C")


def _index(ids: Ids) -> Tensor:
    return torch.from_numpy(np.asarray(ids, dtype=np.int64))
