"""Models whose entity rows come from descriptions: BLP, BOW, DKRL, and Fusion with rows of structure.

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
from fedkge.client.texts import Words, encoded, text_encoder
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError
from fedkge.experiment import ModelSettings, Settings

__all__ = [
    "BLP",
    "BOW",
    "DKRL",
    "BLPComplEx",
    "BLPDistMult",
    "Described",
    "Fusion",
    "FusionComplEx",
    "FusionDistMult",
]

_BLOCK = 4096  # rows that are encoded at once where all are wanted
_WINDOW = 4  # tokens of which DKRL's first layer keeps the strongest


class TextOptions(Settings):
    """What every text model takes."""

    text: str = Field(
        default="hash",
        min_length=1,
        description="what reads texts: `hash`, `glove`, `glove:PATH`, `minilm`, `transformers:NAME`",
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
        rows = torch.cat([self.encode_rows(block).entities for block in torch.split(every, _BLOCK)])
        return Encoded(rows, self[self.relation_table])

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
    """W f: a frozen encoder's vector f of the text, and a matrix that is trained."""

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        width = _feature_width(cls, settings, graph)
        return {**super().weight_shapes(settings, graph), "projection": (width, cls.row_columns(settings))}

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        return {**super().prepare(graph), "texts": torch.from_numpy(_features(self, graph))}

    @property
    def num_rows(self) -> int:
        return len(self["texts"])

    def read(self, entities: Tensor) -> Tensor:
        return self["texts"][entities] @ self["projection"]

    @property
    def linear_rows(self) -> LinearRows | None:
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
            shapes["words"] = words.vectors.shape  # what is learnt, on top of the given vectors
        return shapes

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

    As in BLP's code, which trains it alone; the original's four mixed terms with a table of entities are not
    here. Words are kept in windows of four with the word after, so that padding costs nothing.
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
        windows, starts = _windows(words)
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


class FusedReader(LinearReader):
    """w₁ · structure + w₂ · text, with two weights for all, or a gate for each entity.

    An entity without a train triple has no structure to speak of, and one without a text no text: the part
    that is missing is left out, and a gate is open for the other.
    """

    class Options(TextOptions):
        weights: Literal["global", "gate"] = Field(
            default="global", description="two weights for all entities, or a gate computed for each"
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
        seen = torch.zeros(graph.num_entities, 1)
        seen[torch.from_numpy(np.unique(graph.train[:, [0, 2]]).astype(np.int64))] = 1
        told = buffers["texts"].ne(0).any(dim=1, keepdim=True).float()
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
    return text_encoder(options.text).words(_texts(kind, graph), options.length)


def _texts(kind: type[Described], graph: KnowledgeGraph) -> tuple[str, ...]:
    texts = graph.texts.get("entity", ())
    if not any(texts):
        raise DataError(
            f"{graph.name}: {kind.__name__} reads texts of entities, and there are none; name a file of them "
            "in data.features, or put entity2text.txt beside the triples"
        )
    return texts


def _windows(words: Words) -> tuple[np.ndarray, np.ndarray]:
    """Texts as windows of four words and the word after, −1 for none; where those of a text start."""
    counts = -(-np.diff(words.starts) // _WINDOW)  # windows of each text
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    owner = np.repeat(np.arange(len(counts)), counts)
    first = words.starts[owner] + _WINDOW * (np.arange(len(owner)) - starts[owner])
    places = first[:, None] + np.arange(_WINDOW + 1)  # (g, 5)
    inside = places < words.starts[owner + 1][:, None]
    windows = np.full(places.shape, -1, dtype=np.int64)
    windows[inside] = words.ids[places[inside]]
    return windows, starts


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
