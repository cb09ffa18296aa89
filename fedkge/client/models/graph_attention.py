"""The encoder of KB-GAT: attention over incoming edges and paths of two, scored as TransE does.

An edge's message is A [x_t ; x_h ; g_r] = A₁ x_t + A₂ x_h + A₃ g_r: rows are mapped once for each entity and
relation, and kernels add them up along edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import elu, leaky_relu, normalize

from fedkge.client.kernels.arrays import Floats
from fedkge.client.kernels.neural.attention import (
    SLOPE,
    Edges,
    Logits,
    Received,
    attend,
    attend_backward,
)
from fedkge.client.kernels.neural.paths import two_hop_paths
from fedkge.client.models.model import Encoded
from fedkge.client.models.translations import TransE
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import ModelSettings, Settings

__all__ = ["GraphAttention"]

_PATHS: dict[str, int | None] = {"all": None, "one": 1, "none": 0}
_GAIN = np.float32(1.414)  # of the first weights, as the authors of KB-GAT draw them


class GraphAttention(TransE):
    """Rows that two layers of attention make of the client's own train edges (Nathani et al., 2019).

    Messages go to tails. An entity without incoming edges is a linear map of its own row.
    """

    class Options(Settings):
        heads: int = Field(default=1, ge=1, description="of attention; they divide `model.dim`")
        dropout: float = Field(
            default=0.3, ge=0, lt=1, description="of attention weights, and between the two layers"
        )
        paths: Literal["all", "one", "none"] = Field(
            default="all",
            description="of two edges, to entities two steps away: all, one for each start (as the "
            "authors do for FB15k-237), or none",
        )

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        del graph
        heads, dim = cls.options_of(settings).heads, settings.dim
        if dim % heads:
            raise SettingError(
                f"model.options.heads: {heads} heads share model.dim = {dim} columns; set one that divides it"
            )
        return {
            "messages": (heads, 3 * dim, dim // heads),
            "attention": (heads, 1, dim // heads),
            "relation_map": (dim, dim),
            "last_messages": (1, 3 * dim, dim),
            "last_attention": (1, 1, dim),
            "entity_map": (dim, dim),
        }

    @classmethod
    def initial_weights(cls, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        return super().initial_weights(name, shape, rng) * _GAIN

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        """The edges of messages by their receiver: train triples, then paths."""
        head, relation, tail = graph.train.T
        paths = two_hop_paths(graph.train, graph.num_entities, _PATHS[self.options.paths]).T
        receivers = np.concatenate([tail, paths[3]])
        order = np.argsort(receivers, kind="stable")
        columns = {
            "senders": np.concatenate([head, paths[0]]),
            "first": np.concatenate([relation, paths[1]]),
            "second": np.concatenate([np.full_like(relation, -1), paths[2]]),
        }
        starts = np.searchsorted(receivers[order], np.arange(graph.num_entities + 1)).astype(np.int64)
        edges = {name: torch.from_numpy(column[order].astype(np.int32)) for name, column in columns.items()}
        return {"starts": torch.from_numpy(starts), **edges}

    def encode(self) -> Encoded:
        x, g = normalize(self["entity"], dim=1), self["relation"]
        messages = elu(self._attend(x, g, self["messages"], self["attention"]))
        messages = self.dropout(messages, self.options.dropout)
        relations = self.mapped_relations()
        received = elu(self._attend(messages, relations, self["last_messages"], self["last_attention"]))
        return Encoded(normalize(x @ self["entity_map"] + received, dim=1), relations)

    def mapped_relations(self) -> Tensor:
        """(m, dim) relations as the second layer and scores take them."""
        mapped: Tensor = self["relation"] @ self["relation_map"]
        return mapped

    def _attend(self, x: Tensor, g: Tensor, messages: Tensor, attention: Tensor) -> Tensor:
        """(n, w) of rows (n, d), relations (m, d), maps (heads, 3 d, w / heads) and what weighs them."""
        maps = messages.transpose(0, 1).flatten(1).chunk(3)  # (d, w) each
        weights = (messages @ attention.transpose(1, 2)).flatten(1).T.chunk(3)  # (d, heads) each
        receiver, sender, relation = (part @ mapped for part, mapped in zip((x, x, g), maps, strict=True))
        logits = [part @ weight for part, weight in zip((x, x, g), weights, strict=True)]
        kept = self.dropout(x.new_ones(len(self["senders"]), len(attention)), self.options.dropout)
        if x.device.type == "cpu" and x.dtype == torch.float32:
            edges = Edges(*(self[name].numpy() for name in Edges._fields))
            sent, shares, total = _Attention.apply(edges, kept.numpy(), sender, *logits)  # type: ignore[no-untyped-call]
        else:
            sent, shares, total = self._attend_by_formula(sender, logits, kept)
        by_head = relation.view(len(relation), len(attention), -1)  # (m, heads, w / heads)
        own = receiver.view(len(x), len(attention), -1) * total[:, :, None]
        received: Tensor = sent + (own + torch.einsum("nkm,mkc->nkc", shares, by_head)).flatten(1)
        return received

    def _attend_by_formula(
        self, sender: Tensor, logits: list[Tensor], kept: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What the kernel gives, in torch, edge by edge."""
        starts, senders, first, second = (self[name].long() for name in Edges._fields)
        heads, num_relations = kept.shape[1], len(logits[2])
        receivers = torch.repeat_interleave(
            torch.arange(len(starts) - 1, device=starts.device), starts.diff()
        )
        last = second.clamp(min=0)
        paths = (second >= 0).to(sender)[:, None]
        along = logits[0][receivers] + logits[1][senders] + logits[2][first] + logits[2][last] * paths
        raised = torch.exp(-leaky_relu(along, SLOPE))  # (e, heads)
        total = raised.new_zeros(len(starts) - 1, heads).index_add(0, receivers, raised)
        shares = raised / total[receivers] * kept
        rows = sender.view(len(sender), heads, -1)[senders] * shares[:, :, None]
        sent = torch.zeros_like(sender).index_add(0, receivers, rows.flatten(1))
        by_relation = sender.new_zeros(len(sender) * num_relations, heads)
        by_relation = by_relation.index_add(0, receivers * num_relations + first, shares)
        by_relation = by_relation.index_add(0, receivers * num_relations + last, shares * paths)
        mixed = by_relation.view(len(sender), num_relations, heads).transpose(1, 2)
        return sent, mixed, sender.new_zeros(len(sender), heads).index_add(0, receivers, shares)


class _Attention(torch.autograd.Function):
    """What entities receive, of edges, what dropout keeps, the senders' rows and three logits."""

    @staticmethod
    def forward(ctx: Any, edges: Edges, kept: Floats, *tensors: Tensor) -> tuple[Tensor, ...]:
        sender, *parts = (tensor.detach().contiguous().numpy() for tensor in tensors)
        logits = Logits(*parts)
        (n, heads), m = logits.receiver.shape, len(logits.relation)
        shares = np.empty((len(edges.senders), heads), dtype=np.float32)
        shapes = (sender.shape, (n, heads, m), (n, heads))
        received = Received(*(np.zeros(shape, dtype=np.float32) for shape in shapes))
        attend(edges, logits, sender, kept, shares, received)
        ctx.inputs = edges, logits, sender, kept, shares
        return tuple(torch.from_numpy(array) for array in received)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *at_received: Tensor) -> tuple[Tensor | None, ...]:
        edges, logits, sender, kept, shares = ctx.inputs
        at_logits, at_sender = Logits(*(np.zeros_like(part) for part in logits)), np.zeros_like(sender)
        slopes = Received(*(slope.contiguous().numpy() for slope in at_received))
        attend_backward(edges, logits, sender, kept, shares, slopes, at_logits, at_sender)
        return (None, None, torch.from_numpy(at_sender), *(torch.from_numpy(part) for part in at_logits))
