"""NoGE: one graph convolution over entities and relations by how often they stand in a triple together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtri
from torch import Tensor
from torch.nn.functional import batch_norm

from fedkge.client.kernels.arrays import Floats
from fedkge.client.models.bilinear import QuatE
from fedkge.client.models.model import Encoded, TableSpec
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import ModelSettings, Settings

__all__ = ["Edges", "NoGE", "cooccurrence"]

_EPSILON, _MOMENTUM = 1e-5, 0.1  # as torch.nn.BatchNorm1d has them


class NoGE(QuatE):
    """QuatE over rows that a layer tanh(BatchNorm(Â E W)) mixes, Â: co-occurrence (Nguyen et al., 2022).

    Relations are nodes too. As FedR's authors have it: no inverse relations, and a row is `dim` wide, four
    parts of a quaternion together. They train it as KvsAll. With inverse relations a relation row is the
    relation's, then that of its inverse, and who is the head of (?, r, t) is asked as who is the tail of
    (t, r⁻¹, ?).
    """

    entity_width = relation_width = 1

    class Options(Settings):
        dropout: float = Field(default=0.5, ge=0, lt=1, description="of the product h ⊗ r")
        product_norm: bool = Field(
            default=False,
            description="BatchNorm on the product before its dropout, without scale and shift; NoGE's own "
            "code has one, the FedR authors' copies make it and do not use it",
        )
        inverse_relations: bool = Field(
            default=False,
            description="a second row and node for each relation, which questions for heads go through, as "
            'NoGE\'s own code has them; with `training.corrupt = "both"` and `evaluation.sides = "both"`',
        )
        deviation: float = Field(
            default=0.02,
            gt=0,
            allow_inf_nan=False,
            description="of initial rows, which are normal; Xavier's √(2 / (nodes + dim)) is that of about "
            "5,000 nodes, and rows that are shared cannot depend on how many a client has",
        )

    @classmethod
    def table_specs(cls, settings: ModelSettings) -> dict[str, TableSpec]:
        if settings.dim % 4:
            raise SettingError(
                f"model.dim: {settings.dim} for {cls.__name__}, whose rows are four parts of quaternions; "
                f"set it to {settings.dim + -settings.dim % 4}"
            )
        tables = super().table_specs(settings)
        if cls.options_of(settings).inverse_relations:
            tables[cls.relation_table] = TableSpec("relation", 2 * settings.dim)
        return tables

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        del graph
        return {
            "layer": (settings.dim, settings.dim),
            "norm_scale": (settings.dim,),
            "norm_shift": (settings.dim,),
        }

    @classmethod
    def initial_weights(cls, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        if name == "norm_scale":
            return np.ones(shape, dtype=np.float32)
        if name == "layer":
            bound = 1 / np.sqrt(shape[-1])
            return rng.uniform(-bound, bound, shape).astype(np.float32)
        return super().initial_weights(name, shape, rng)

    @classmethod
    def spread(cls, uniform: Floats, settings: ModelSettings) -> Floats:
        """Numbers in (0, 1) to normal ones."""
        normal: Floats = ndtri(uniform.astype(np.float64)) * cls.options_of(settings).deviation
        return normal.astype(np.float32)

    @classmethod
    def initial_buffers(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, Floats]:
        del graph
        parts = ["node", "product"] if cls.options_of(settings).product_norm else ["node"]
        zeros, ones = np.zeros(settings.dim, np.float32), np.ones(settings.dim, np.float32)
        return {
            f"{part}_{name}": rows for part in parts for name, rows in (("mean", zeros), ("variance", ones))
        }

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        return {"adjacency": cooccurrence(graph, self.options.inverse_relations).tensor()}

    def encode(self) -> Encoded:
        relations = self["relation"].chunk(2 if self.options.inverse_relations else 1, dim=1)
        nodes = torch.cat([self["entity"], *relations])  # (n, dim)
        mixed = torch.sparse.mm(self["adjacency"], nodes @ self["layer"])
        rows = torch.tanh(self._normalised("node", mixed, self["norm_scale"], self["norm_shift"]))
        count = len(self["entity"])
        encoded = rows[count:].chunk(len(relations))
        return Encoded(rows[:count], torch.cat(encoded, dim=1) if len(encoded) > 1 else encoded[0])

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return (self.query_tail(h, r) * t).sum(-1)

    def score_head(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return (self.query_head(t, r) * h).sum(-1)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        return self._regularised(super().query_tail(h, r[..., : self.settings.dim]))

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        if not self.options.inverse_relations:
            return self._regularised(super().query_head(t, r))
        return self._regularised(super().query_tail(t, r[..., self.settings.dim :]))

    def ask(self, rows: Tensor, r: Tensor, num_tails: int) -> Tensor:
        if not self.options.inverse_relations:
            return super().ask(rows, r, num_tails)
        own, inverse = r.chunk(2, dim=1)
        asked = torch.cat([own[:num_tails], inverse[num_tails:]])
        return self.query_tail(rows, asked)  # all at once: the product's statistics are those of a batch

    def _regularised(self, product: Tensor) -> Tensor:
        rows = product.flatten(end_dim=-2)
        if self.options.product_norm:
            rows = self._normalised("product", rows)
        return self.dropout(rows, self.options.dropout).view_as(product)

    def _normalised(
        self, part: str, rows: Tensor, scale: Tensor | None = None, shift: Tensor | None = None
    ) -> Tensor:
        statistics = self[f"{part}_mean"], self[f"{part}_variance"]
        training = self.in_training and len(rows) > 1
        return batch_norm(rows, *statistics, scale, shift, training, _MOMENTUM, _EPSILON)


class Edges(NamedTuple):
    """A square sparse matrix; rows ascending, columns ascending in each."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    weights: Floats
    size: int

    def tensor(self) -> Tensor:
        places = torch.from_numpy(np.stack([self.rows, self.columns]))
        weights, shape = torch.from_numpy(self.weights), (self.size, self.size)
        return torch.sparse_coo_tensor(places, weights, shape, check_invariants=True, is_coalesced=True)


def cooccurrence(graph: KnowledgeGraph, inverse: bool = False) -> Edges:
    """Which nodes stand in a train triple together, each row with its sum 1; relations come after entities.

    With c(v, u) the ordered pairs of places in a triple that v and u take, between entities the weight is
    c(v, u) / Σ c(v, ·), with a relation c(v, u) / Σ c; each node is its own neighbour with weight 1. (In
    NoGE's own code and the FedR authors' FedE the first relation counts as an entity, by a mistake of one.)

    Args:
        inverse: count each triple turned round too, its relation then being the inverse, which comes last.
    """
    head, relation, tail = graph.train.astype(np.int64).T
    size = graph.num_entities + graph.num_relations
    if inverse:
        size += graph.num_relations
        head, tail = np.concatenate([head, tail]), np.concatenate([tail, head])
        relation = np.concatenate([relation, relation + graph.num_relations])
    words = np.stack([head, relation + graph.num_entities, tail])  # (3, n)
    first, second = ([0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1])
    pairs, counts = np.unique((words[first] * size + words[second]).ravel(), return_counts=True)
    rows, columns = np.divmod(pairs, size)
    own = np.bincount(rows, counts, minlength=size)  # pairs of each node
    between_entities = (rows < graph.num_entities) & (columns < graph.num_entities)
    shares = counts / np.where(between_entities, own[rows], 6 * len(head))
    itself = np.arange(size) * (size + 1)
    pairs, places = np.unique(np.concatenate([pairs, itself]), return_inverse=True)
    weights = np.bincount(places, np.concatenate([shares, np.ones(size)]))
    rows, columns = pairs // size, pairs % size
    share = weights / np.bincount(rows, weights, minlength=size)[rows]
    return Edges(rows, columns, share.astype(np.float32), size)
