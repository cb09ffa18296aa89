"""Graph convolutions that know relations: R-GCN and CompGCN, each with a shallow model as decoder.

Messages go both ways along an edge of the client's own train triples. The whole graph is encoded in each
step, so that large batches are what makes training fast.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import batch_norm

from fedkge.client.kernels.arrays import Floats
from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.kernels.operators import Backward
from fedkge.client.models.bilinear import DistMult
from fedkge.client.models.initial import uniform_rows
from fedkge.client.models.message_passing import CORRELATE, MIX, MULTIPLY, SUBTRACT, Edges
from fedkge.client.models.model import Encoded, Model, TableSpec
from fedkge.client.models.translations import TransE
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import ModelSettings, Settings

__all__ = ["COMPOSITIONS", "DECODERS", "RGCN", "CompGCN"]

DECODERS: dict[str, type[Model]] = {"DistMult": DistMult, "TransE": TransE}
COMPOSITIONS = {"subtract": SUBTRACT, "multiply": MULTIPLY, "circular": CORRELATE}


class _Options(Settings):
    layers: int = Field(default=1, ge=1, le=8, description="how many edges a message may travel")
    decoder: Literal["DistMult", "TransE"] = Field(
        default="DistMult", description="the shallow model that scores encoded rows"
    )


class _Convolution(Model):
    """Layers over the client's graph, and a decoder."""

    Options = _Options

    def __init__(self, settings: ModelSettings, parameters: Mapping[str, Floats], scale: Floats) -> None:
        super().__init__(settings, parameters, scale)
        self.decoder = DECODERS[self.options.decoder](self.decoder_of(settings), {}, scale)

    @classmethod
    def decoder_of(cls, settings: ModelSettings) -> ModelSettings:
        decoder = cls.options_of(settings).decoder
        return settings.model_copy(update={"name": decoder, "options": {}})

    @abstractmethod
    def encode(self) -> Encoded: ...

    @property
    def comparison(self) -> Comparison:
        return self.decoder.comparison

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return self.decoder.score(h, r, t)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        return self.decoder.query_tail(h, r)

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        return self.decoder.query_head(t, r)

    def queries(self, h: Floats, r: Floats, num_tails: int) -> tuple[Floats, Backward]:
        return self.decoder.queries(h, r, num_tails)


class RGCN(_Convolution):
    """Σ over relations of the mean of W_r x over neighbours, plus W_0 x (Schlichtkrull et al., 2018).

    W_r is a sum of basis matrices, by numbers that are the relation's own: a row of the table `coefficient`
    has them layer by layer, for edges along the relation and then against it. ReLU stands between layers.
    """

    class Options(_Options):
        bases: int = Field(default=2, ge=1, le=64, description="matrices that relations mix")
        edge_dropout: float = Field(
            default=0.4, ge=0, lt=1, description="share of messages that a step of training leaves out"
        )
        self_dropout: float = Field(default=0.2, ge=0, lt=1, description="the same of self loops")

    @classmethod
    def table_specs(cls, settings: ModelSettings) -> dict[str, TableSpec]:
        options = cls.options_of(settings)
        width = options.layers * 2 * options.bases
        return {**super().table_specs(settings), "coefficient": TableSpec("relation", width)}

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        del graph
        layers, bases = (getattr(cls.options_of(settings), name) for name in ("layers", "bases"))
        square = (settings.dim, settings.dim)
        return {"basis": (layers, bases, *square), "self_loop": (layers, *square)}

    @classmethod
    def initial_table(cls, name: str, labels: Sequence[str], settings: ModelSettings, key: bytes) -> Floats:
        """Coefficients such that W_r is as large as a basis matrix."""
        if name != "coefficient":
            return super().initial_table(name, labels, settings, key)
        bound = np.float32(sqrt(3 / cls.options_of(settings).bases))
        uniform = uniform_rows(key, labels, cls.table_specs(settings)[name].width)
        return (uniform * 2 - 1) * bound

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        head, relation, tail = graph.train.T
        receivers, senders = np.concatenate([tail, head]), np.concatenate([head, tail])
        relations = np.concatenate([relation, relation + np.int32(graph.num_relations)])
        return Edges.of(receivers, relations, senders, graph.num_entities).averaged().buffers("edges")

    def encode(self) -> Encoded:
        options, x = self.options, self["entity"]
        edges = Edges.named("edges", self.buffers)
        coefficients = self["coefficient"].view(-1, options.layers, 2, options.bases)
        for layer in range(options.layers):
            x = torch.relu(x) if layer > 0 else x
            kept = edges._replace(shares=self.dropout(edges.shares, options.edge_dropout))
            along, against = coefficients[:, layer].unbind(1)
            mixed = kept.passed(MIX, x, torch.cat([along, against]))  # (n, bases · d)
            own = self.dropout(x @ self["self_loop"][layer], options.self_dropout)
            x = mixed @ self["basis"][layer].flatten(0, 1) + own
        return Encoded(x, self["relation"])


class CompGCN(_Convolution):
    """Neighbours composed with their relations, each way with a matrix of its own (Vashishth et al., 2020).

    A relation row is the relation's, then that of its inverse. Columns are normalised over all entities, of
    the present rows in evaluation too: the whole graph is encoded each time, so nothing runs along.
    """

    relation_width = 2

    class Options(_Options):
        composition: Literal["subtract", "multiply", "circular"] = Field(
            default="multiply", description="of a neighbour's row with the relation's"
        )
        dropout: float = Field(
            default=0.1,
            ge=0,
            lt=1,
            description="share of received numbers that a step of training leaves out",
        )

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        del graph
        layers, dim = cls.options_of(settings).layers, settings.dim
        return {
            "convolution": (layers, 3, dim, dim),  # along an edge, against it, and of the entity itself
            "relation_map": (layers, dim, dim),
            "self_relation": (layers, dim),
            "gain": (layers, 1, dim),
            "bias": (layers, 1, dim),
        }

    @classmethod
    def initial_weights(cls, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        match name:
            case "gain":
                return np.ones(shape, dtype=np.float32)
            case "bias":
                return np.zeros(shape, dtype=np.float32)
        return super().initial_weights(name, shape, rng)

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        head, relation, tail = graph.train.T
        along = Edges.of(tail, relation, head, graph.num_entities)
        against = Edges.of(head, relation, tail, graph.num_entities)
        return {**along.balanced().buffers("along"), **against.balanced().buffers("against")}

    def encode(self) -> Encoded:
        x, z = self["entity"], torch.stack(self["relation"].chunk(2, dim=-1))  # (n, d), (2, m, d)
        for layer in range(self.options.layers):
            x = self._received(layer, x, z)
            x = torch.tanh(_normalised(x, self["gain"][layer, 0], self["bias"][layer, 0]))
            z = z @ self["relation_map"][layer]
        return Encoded(x, z[0])

    def _received(self, layer: int, x: Tensor, z: Tensor) -> Tensor:
        """(n, d) what each entity hears from both sides and from itself, a third each."""
        composition, dropout = COMPOSITIONS[self.options.composition], self.options.dropout
        along, against, own = self["convolution"][layer]
        received: Tensor = composition.of(x, self["self_relation"][layer, None]) @ own
        for way, rows, matrix in (("along", z[0], along), ("against", z[1], against)):
            passed = Edges.named(way, self.buffers).passed(composition, x, rows)
            received = received + self.dropout(passed @ matrix, dropout)
        return received / 3


def _normalised(rows: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Columns with mean 0 and variance 1, then gain and bias; a single row is its own mean."""
    if len(rows) == 1:
        return (rows - rows) * gain + bias
    return batch_norm(rows, None, None, gain, bias, training=True)
