"""KB-GAT: a graph attention encoder, and ConvKB trained on what it gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field
from torch import Tensor

from fedkge.client.kernels.arrays import Floats
from fedkge.client.models.convolution import ConvKB
from fedkge.client.models.graph_attention import GraphAttention
from fedkge.client.models.model import Encoded, Model, TableSpec
from fedkge.client.models.stage import Stage
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import ModelSettings, TrainingSettings

__all__ = ["KBGAT"]

_SCORED = {"entity": "scored_entity", "relation": "scored_relation"}  # the decoder's names, the model's


class KBGAT(ConvKB):
    """Graph attention in each round, ConvKB whenever rows are to be scored (Nathani et al., 2019).

    `entity` and `relation` are what the encoder takes, and what strategies share: in a round they are trained
    through it, and then entity rows are replaced by what it gives. Relation rows are not: the encoder maps
    them linearly, and what is mapped again in every round grows without end. Before the rows of a round are
    scored, ConvKB starts anew from entity rows and mapped relation rows, and trains copies of both.
    """

    class Options(GraphAttention.Options, ConvKB.Options):
        decoder_epochs: int = Field(default=150, ge=1, description="of ConvKB, before each ranking")
        decoder_batch_size: int = Field(default=128, ge=1, description="triples in a step of ConvKB")
        decoder_negatives: int = Field(default=40, ge=1, description="of ConvKB, for each triple")
        decoder_learning_rate: float = Field(
            default=1e-3, gt=0, allow_inf_nan=False, description="of ConvKB's optimiser"
        )
        decoder_weight_decay: float = Field(
            default=0.0, ge=0, allow_inf_nan=False, description="of ConvKB, as `training.weight_decay`"
        )
        decoder_decay_every: int | None = Field(
            default=None,
            ge=1,
            description="after each so many epochs of ConvKB its learning rate is `training.decay_by` times "
            "smaller",
        )

    @classmethod
    def table_specs(cls, settings: ModelSettings) -> dict[str, TableSpec]:
        tables = super().table_specs(settings)
        return {**tables, **{scored: tables[name] for name, scored in _SCORED.items()}}

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        return {
            **GraphAttention.weight_shapes(_settings_of(GraphAttention, settings), graph),
            **ConvKB.weight_shapes(_settings_of(ConvKB, settings), graph),
        }

    @classmethod
    def initial_weights(cls, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        owner = ConvKB if name in _DECODER_WEIGHTS else GraphAttention
        return owner.initial_weights(name, shape, rng)

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        return self.encoder.prepare(graph)

    def encode(self) -> Encoded:
        return Encoded(*(self[name] for name in _SCORED.values()))

    @property
    def encoder(self) -> GraphAttention:
        """What rounds train."""
        names = (*_SCORED, *(name for name in self.weights if name not in _DECODER_WEIGHTS))
        encoder: GraphAttention = self._view(GraphAttention, {name: name for name in names})
        return encoder

    @property
    def decoder(self) -> ConvKB:
        """What scores."""
        decoder: ConvKB = self._view(ConvKB, {**_SCORED, **{name: name for name in _DECODER_WEIGHTS}})
        return decoder

    def stages(self, training: TrainingSettings) -> tuple[Stage, ...]:
        options = self.options
        decoding = {
            "type": "negatives",
            "local_epochs": options.decoder_epochs,
            "batch_size": options.decoder_batch_size,
            "negatives": options.decoder_negatives,
            "learning_rate": options.decoder_learning_rate,
            "weight_decay": options.decoder_weight_decay,
            "decay_every": options.decoder_decay_every,
            "loss": "binary-cross-entropy",
            "corrupt": "both",
        }
        decoder = Stage(
            self.decoder, training.model_copy(update=decoding), before_scoring=True, begin=self._restart
        )
        return Stage(self.encoder, training, end=self._advance), decoder

    def _advance(self, rng: np.random.Generator) -> None:
        """What the encoder gives for an entity is what it takes next."""
        del rng
        self.tables["entity"][:] = self.encoder.scored.entities

    def _restart(self, rng: np.random.Generator) -> None:
        """Of the decoder, which depends on the rows as they are now, and on nothing before."""
        rows = self["entity"], self.encoder.mapped_relations()
        for scored, start in zip(_SCORED.values(), rows, strict=True):
            self.tables[scored][:] = start.numpy()
        for name in _DECODER_WEIGHTS:
            array = self.weights[name]
            array[:] = self.initial_weights(name, array.shape, rng)

    def _view(self, kind: type[Any], names: Mapping[str, str]) -> Any:
        """A model of some of the same memory, under its own names."""
        view: Model = kind(
            _settings_of(kind, self.settings),
            {own: self.parameters[name] for own, name in names.items()},
            self.scale.numpy(),
        )
        view._buffers = self._buffers
        return view


_DECODER_WEIGHTS = ("filters", "filter_bias", "dense", "offset")


def _settings_of(kind: type[Model], settings: ModelSettings) -> ModelSettings:
    """Those of a part, which knows only its own options."""
    known = {key: value for key, value in settings.options.items() if key in kind.Options.model_fields}
    return settings.model_copy(update={"name": kind.__name__, "options": known})
