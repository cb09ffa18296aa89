"""Models whose entity rows come from descriptions: BLP, BOW, DKRL, some with rows of structure.

A row depends on its own text alone, so that a batch encodes the entities that it names and no others, and an
entity that training never met has a row as good as its text.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import embedding, normalize

from fedkge.client.kernels.arrays import Floats
from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.models.bilinear import ComplEx, DistMult
from fedkge.client.models.model import Encoded, LinearRows, Model
from fedkge.client.models.translations import TransE
from fedkge.client.texts import TEXT_ENCODERS, Words, encoded, encoded_words, kind_of, text_encoder
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, SettingError
from fedkge.experiment import ModelSettings, Settings, TrainingSettings

__all__ = [
    "BLP",
    "BOW",
    "DKRL",
    "BLPComplEx",
    "BLPDistMult",
    "DKRLMixed",
    "Described",
    "Fusion",
    "FusionComplEx",
    "FusionDistMult",
]

_LAYER = ("hidden", "hidden_bias", "hidden_out")  # beside the projection
_BLOCK = 4096  # rows that are encoded at once where all are wanted
_WINDOW = 4  # tokens of which DKRL's first layer keeps the strongest


class TextOptions(Settings):
    """What every text model takes."""

    text: str = Field(
        default="hash",
        min_length=1,
        description="what reads texts: `hash`, `glove`, `glove:PATH`, `minilm`, `transformers:NAME`, "
        "`flair:FILE,FILE`, or with any of them `aec:NAME`, `aec:NAME@FILE`",
    )


class VectorOptions(TextOptions):
    """What models of vectors of whole texts take."""

    hidden: int = Field(
        default=0, ge=0, description="width of a layer of ReLU beside the projection; 0: there is none"
    )
    hidden_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="of that layer; not under differential privacy"
    )


class WordOptions(TextOptions):
    """What models of single words take."""

    length: int = Field(default=32, ge=1, description="words of a text; those beyond are left out")
    trainable: bool = Field(default=True, description="whether word vectors are trained along")


class Described(Model):
    """Entity rows are what `read` makes of texts; relations have a table. Put it before a decoder.

    Distances compare rows of length 1, as BLP has it (Daza et al., 2021).
    """

    Options = TextOptions
    entity_width = 0  # no table of entities

    @abstractmethod
    def read(self, entities: Tensor) -> Tensor:
        """(k,) entities to (k, w) rows."""

    def encode_rows(self, entities: Tensor) -> Encoded:
        rows = self.read(entities)
        if self.comparison is not Comparison.DOT:
            rows = normalize(rows, dim=1)
        return Encoded(rows, self[self.relation_table])

    def encode(self) -> Encoded:
        every = torch.arange(self.num_rows, device=self[self.relation_table].device)
        blocks = [self.encode_rows(block) for block in torch.split(every, _BLOCK)]
        return Encoded(torch.cat([block.entities for block in blocks]), blocks[0].relations)

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """How many entities there are."""

    @classmethod
    def row_columns(cls, settings: ModelSettings) -> int:
        """How wide the rows are that the decoder scores."""
        return cls.decoder().entity_columns(settings.dim)

    @classmethod
    def decoder(cls) -> type[Model]:
        """The model that scores the rows: the first parent that reads no texts."""
        return next(
            kind for kind in cls.__mro__ if issubclass(kind, Model) and not issubclass(kind, Described)
        )


class LinearReader(Described):
    """W f of a frozen encoder's vector f of the text, W trained; with a layer, V relu(U f + b) is added."""

    Options = VectorOptions

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        width, columns = _feature_width(cls, settings, graph), cls.row_columns(settings)
        shapes = {**super().weight_shapes(settings, graph), "projection": (width, columns)}
        if hidden := cls.options_of(settings).hidden:
            shapes |= {"hidden": (width, hidden), "hidden_bias": (hidden,), "hidden_out": (hidden, columns)}
        return shapes

    @classmethod
    def own_weights(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, str]:
        """What reads codes of an encoder that each client fits to its own texts."""
        own, options = super().own_weights(settings, graph), cls.options_of(settings)
        kind, argument = kind_of(options.text)
        if "entity" in graph.features or not kind.is_of_its_texts(argument):
            return own
        why = (
            f"it reads codes of '{options.text}', which each client fits to its own texts, and a mean over "
            "clients means nothing; fit it to public ones, as aec:NAME@FILE, or leave it out of "
            "federation.share"
        )
        return {**own, **dict.fromkeys(("projection", *(_LAYER if options.hidden else ())), why)}

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        return {**super().prepare(graph), "texts": torch.from_numpy(_features(self, graph))}

    @property
    def num_rows(self) -> int:
        return len(self["texts"])

    def read(self, entities: Tensor) -> Tensor:
        texts = self["texts"][entities]
        rows = texts @ self["projection"]
        if not self.options.hidden:
            return rows
        states = torch.relu(texts @ self["hidden"] + self["hidden_bias"])
        return rows + self.dropout(states, self.options.hidden_dropout) @ self["hidden_out"]

    @property
    def linear_rows(self) -> LinearRows | None:
        if self.options.hidden:
            return None
        if type(self).read is not LinearReader.read or type(self).encode_rows is not Described.encode_rows:
            return None
        return LinearRows("projection", self["texts"], self.comparison is not Comparison.DOT)


class WordReader(Described):
    """What models of single words have in common: a table of words, frozen or moved by what is learnt."""

    Options = WordOptions

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        shapes = super().weight_shapes(settings, graph)
        words = _words(cls, settings, graph)
        if cls.options_of(settings).trainable:
            _require_types(cls.options_of(settings).text)
            shapes["words"] = words.vectors.shape  # what is learnt, on top of the given vectors
        return shapes

    @classmethod
    def own_weights(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, str]:
        own = super().own_weights(settings, graph)
        if not cls.options_of(settings).trainable:
            return own
        return {
            **own,
            "words": "each client numbers those of its own texts; leave it out of federation.share",
        }

    @classmethod
    def initial_weights(cls, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        if name == "words":
            return np.zeros(shape, dtype=np.float32)
        return super().initial_weights(name, shape, rng)

    def given(self, graph: KnowledgeGraph) -> Words:
        """The words of the graph's texts."""
        return _words(type(self), self.settings, graph)

    def vectors(self, words: Tensor) -> Tensor:
        """(n,) words to (n, w); −1 is no word, and zero."""
        present = words.clamp(min=0)
        rows = self["given"][present]
        if self.options.trainable:
            rows = rows + self.looked_up("words", present)
        return rows * (words >= 0)[:, None]


class BOW(WordReader, TransE):
    """The mean of a text's word vectors (the baseline of Daza et al., 2021), which are trained.

    Vectors of another width than `dim` are projected.
    """

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        shapes = super().weight_shapes(settings, graph)
        width, columns = _words(cls, settings, graph).vectors.shape[1], cls.row_columns(settings)
        return shapes if width == columns else {**shapes, "projection": (width, columns)}

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        words = self.given(graph)
        return {
            "given": torch.from_numpy(words.vectors),
            "ids": torch.from_numpy(words.ids),
            "starts": torch.from_numpy(words.starts),
        }

    @property
    def num_rows(self) -> int:
        return len(self["starts"]) - 1

    def read(self, entities: Tensor) -> Tensor:
        places, owners = _stretches(self["starts"], entities)
        rows = _mean(self.vectors(self["ids"][places]), owners, len(entities))
        return rows @ self["projection"] if "projection" in self.tensors else rows


class DKRL(WordReader, TransE):
    """A convolution over words, the strongest of four, another convolution, the mean (Xie et al., 2016).

    As in BLP's code, which trains it alone. Words are kept in windows of four with the word after, so that
    padding costs nothing.
    """

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        shapes = super().weight_shapes(settings, graph)
        width, columns = _words(cls, settings, graph).vectors.shape[1], cls.row_columns(settings)
        first = {"near": (width, columns), "next": (width, columns), "bias": (columns,)}
        second = {
            "near_window": (columns, columns),
            "next_window": (columns, columns),
            "bias_window": (columns,),
        }
        return {**shapes, **first, **second}

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        words = self.given(graph)
        windows, starts = words.windows(_WINDOW)
        return {
            "given": torch.from_numpy(words.vectors),
            "windows": torch.from_numpy(windows),
            "starts": torch.from_numpy(starts),
        }

    @property
    def num_rows(self) -> int:
        return len(self["starts"]) - 1

    def read(self, entities: Tensor) -> Tensor:
        places, owners = _stretches(self["starts"], entities)
        windows = self["windows"][places]  # (g, 5) words, −1 for none
        words, number = torch.unique(windows, return_inverse=True)  # a word is multiplied once a batch
        x = self.vectors(words)  # (words, w)
        near, following = x @ self["near"] + self["bias"], x @ self["next"]
        sums = embedding(number[:, :-1], near) + embedding(number[:, 1:], following)  # (g, 4, columns)
        strongest = (sums * (windows[:, :-1] >= 0)[..., None]).amax(1)
        states = torch.tanh(strongest)  # (g, columns)
        follows = torch.zeros_like(states)
        same = owners[1:] == owners[:-1]
        follows[:-1] = states[1:] * same[:, None]
        states = states @ self["near_window"] + follows @ self["next_window"] + self["bias_window"]
        return torch.tanh(_mean(states, owners, len(entities)))


class DKRLMixed(DKRL):
    """−‖h_s + r − t_s‖ − ‖h_d + r − t_d‖ − ‖h_d + r − t_s‖ − ‖h_s + r − t_d‖, all L1 (Xie et al., 2016).

    Rows of structure s have a table, rows d are DKRL's; all have length 1. Where an entity has no train
    triple, or no text, terms with what is missing are left out and the others count for them: d stands in for
    s, or s for d. Rows that are scored have s and d twice, so that the sum is one L1 distance.
    """

    entity_width = 1

    class Options(WordOptions):
        mixed: float = Field(
            default=1.0, ge=0, allow_inf_nan=False, description="weight of the two terms that mix s and d"
        )

    @classmethod
    def check(cls, settings: ModelSettings, training: TrainingSettings) -> None:
        super().check(settings, training)
        _require_l1(settings)

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        _require_l1(self.settings)
        buffers = super().prepare(graph)
        return {**buffers, "seen": _seen(graph), "told": buffers["starts"].diff().gt(0).float()[:, None]}

    def encode_rows(self, entities: Tensor) -> Encoded:
        seen, told = self["seen"][entities], self["told"][entities]  # (k, 1)
        s = normalize(self[self.entity_table][entities], dim=1) * seen
        d = normalize(self.read(entities), dim=1) * told
        s, d, r = torch.where(seen > 0, s, d), torch.where(told > 0, d, s), self[self.relation_table]
        mixed = self.options.mixed
        return Encoded(
            torch.cat([s, d, mixed * s, mixed * d], dim=1), torch.cat([r, r, mixed * r, mixed * r], dim=1)
        )

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return -self.distance(self.query_tail(h, r), t)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        return self._crossed(h) + r

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        return self._crossed(t) - r

    def relation_between(self, h: Tensor, t: Tensor) -> Tensor:
        return t - self._crossed(h)

    def _crossed(self, rows: Tensor) -> Tensor:
        """What stands opposite the parts of the other entity."""
        s, d, mixed_s, mixed_d = rows.chunk(4, dim=-1)
        return torch.cat([s, d, mixed_d, mixed_s], dim=-1)


class FusedReader(LinearReader):
    """w₁ · structure + w₂ · text, with two weights for all, or a gate for each entity.

    An entity without a train triple has no structure to speak of, and one without a text no text: the part
    that is missing is left out, and a gate is open for the other.
    """

    class Options(VectorOptions):
        weights: Literal["global", "gate"] = Field(
            default="global", description="two weights for all entities, or a gate computed for each"
        )
        untrained: Literal["left-out", "as-drawn"] = Field(
            default="left-out",
            description="structure of entities without a train triple; `as-drawn`: it counts as it started, "
            "at random, as it did where this was published",
        )

    @classmethod
    def entity_columns(cls, dim: int) -> int:
        return cls.decoder().entity_columns(dim)

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        shapes = super().weight_shapes(settings, graph)
        if cls.options_of(settings).weights == "global":
            return {**shapes, "weights": (2,)}
        return {**shapes, "gate": (2 * cls.row_columns(settings), 1), "gate_bias": (1,)}

    @classmethod
    def initial_weights(cls, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        if name == "weights":
            return np.ones(shape, dtype=np.float32)
        return super().initial_weights(name, shape, rng)

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        buffers = super().prepare(graph)
        told = buffers["texts"].ne(0).any(dim=1, keepdim=True).float()
        seen = _seen(graph) if self.options.untrained == "left-out" else torch.ones_like(told)
        return {**buffers, "seen": seen, "told": told}

    def read(self, entities: Tensor) -> Tensor:
        seen, told = self["seen"][entities], self["told"][entities]  # (k, 1)
        structure, text = self.looked_up(self.entity_table, entities), super().read(entities)
        if self.options.weights == "global":
            first, second = self["weights"]
            weighted: Tensor = first * seen * structure + second * told * text
            return weighted
        both = torch.cat([structure, text], dim=1)
        gate = torch.sigmoid(both @ self["gate"] + self["gate_bias"])
        gate = torch.where(told == 0, 1.0, torch.where(seen == 0, 0.0, gate))
        fused: Tensor = gate * seen * structure + (1 - gate) * text
        return fused


class BLP(LinearReader, TransE):
    """A text's vector, projected, under TransE (Daza et al., 2021); the encoder is frozen here."""


class BLPDistMult(LinearReader, DistMult):
    """A text's vector, projected, under DistMult (Daza et al., 2021)."""


class BLPComplEx(LinearReader, ComplEx):
    """A text's vector, projected, under ComplEx (Daza et al., 2021)."""


class Fusion(FusedReader, TransE):
    """Rows of structure and of text, weighted, under TransE."""


class FusionDistMult(FusedReader, DistMult):
    """Rows of structure and of text, weighted, under DistMult."""


class FusionComplEx(FusedReader, ComplEx):
    """Rows of structure and of text, weighted, under ComplEx."""


def _require_l1(settings: ModelSettings) -> None:
    if settings.norm != 1:
        raise SettingError("model.norm: the terms of DKRL-Mixed are L1 distances; set model.norm = 1")


def _feature_width(kind: type[Described], settings: ModelSettings, graph: KnowledgeGraph) -> int:
    if "entity" in graph.features:
        return int(graph.features["entity"].shape[1])
    _texts(kind, graph)
    return text_encoder(kind.options_of(settings).text).width


def _features(model: Described, graph: KnowledgeGraph) -> Floats:
    """(entities, w) vectors as they are given, or of texts."""
    if "entity" in graph.features:
        return np.array(graph.features["entity"])
    return encoded(text_encoder(model.options.text), _texts(type(model), graph))


def _words(kind: type[Described], settings: ModelSettings, graph: KnowledgeGraph) -> Words:
    options = kind.options_of(settings)
    return encoded_words(text_encoder(options.text), _texts(kind, graph), options.length)


def _require_types(text: str) -> None:
    """Vectors that are trained belong to words, not to places in texts."""
    kind, _, argument = text.partition(":")
    if kind in TEXT_ENCODERS and TEXT_ENCODERS[kind].reads_in_context(argument):
        raise SettingError(
            f"model.options.trainable: with '{text}' a word has another vector in each text, and none that "
            "could be trained; set model.options.trainable = false"
        )


def _seen(graph: KnowledgeGraph) -> Tensor:
    """(entities, 1): 1 for those that stand in a train triple."""
    seen = torch.zeros(graph.num_entities, 1)
    seen[torch.from_numpy(np.unique(graph.train[:, [0, 2]]).astype(np.int64))] = 1
    return seen


def _texts(kind: type[Described], graph: KnowledgeGraph) -> tuple[str, ...]:
    texts = graph.texts.get("entity", ())
    if not any(texts):
        raise DataError(
            f"{graph.name}: {kind.__name__} reads texts of entities, and there are none; name a file of them "
            "in data.features, or put entity2text.txt beside the triples"
        )
    return texts


def _stretches(starts: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The places of the chosen texts, one text after the other; which of the chosen each belongs to."""
    counts = starts[chosen + 1] - starts[chosen]  # (k,)
    owners = torch.repeat_interleave(torch.arange(len(chosen), device=chosen.device), counts)
    before = counts.cumsum(0) - counts
    places = torch.arange(len(owners), device=chosen.device) - before[owners] + starts[chosen][owners]
    return places, owners


def _mean(rows: Tensor, owners: Tensor, count: int) -> Tensor:
    """(count, w) the mean of each owner's rows; zero for one that has none."""
    sums = rows.new_zeros(count, rows.shape[1]).index_add(0, owners, rows)
    counts: Tensor = torch.bincount(owners, minlength=count).clamp(min=1)[:, None]
    return sums / counts
