"""Entities that a run never had, told by a text or a vector: a client's model with rows for them too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from fedkge.client.kernels.arrays import Floats
from fedkge.client.models import MODELS, Model
from fedkge.client.models.text_encoders import Described
from fedkge.client.texts import encoded, text_encoder
from fedkge.datasets import KnowledgeGraph
from fedkge.datasets.features.feature_file import read_features
from fedkge.datasets.formats.container import members
from fedkge.datasets.graph import LONGEST_TEXT
from fedkge.errors import DataError, SettingError
from fedkge.simulations.trained.client_model import Trained

__all__ = ["Newcomers", "admit", "new_words"]


@dataclass(frozen=True)
class Newcomers:
    """New entities by label, each with a text, or each with a vector."""

    texts: Mapping[str, str] = field(default_factory=dict)
    vectors: Mapping[str, Floats] = field(default_factory=dict)

    @classmethod
    def of_text(cls, text: str) -> Newcomers:
        """One entity, which its text stands for."""
        if not text.strip() or len(text) > LONGEST_TEXT:
            raise SettingError(
                f"a text of {len(text):,} characters; expected a description of 1 to {LONGEST_TEXT:,}"
            )
        return cls({text: text})

    @classmethod
    def of_file(cls, path: Path) -> Newcomers:
        """`label⇥text` on each line, or an .npz with `labels` and `rows`, as graphs have them."""
        file = read_features(members(path)[0], "entity")
        if not file.labels:
            raise DataError(f"{path}: no text and no vector; expected a label, a tab and a text a line")
        return cls(file.texts, file.vectors)

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.texts, *self.vectors)


def admit(trained: Trained, newcomers: Newcomers) -> Trained:
    """The client's model with the new entities after its own, as if its graph had them without a triple.

    What was trained for single entities is left out for them: rows of structure, and what training added to
    the vector of a word that no text of the graph had.
    """
    model, graph = trained.model, trained.graph
    if not isinstance(model, Described):
        readers = ", ".join(name for name, kind in MODELS.items() if issubclass(kind, Described))
        raise SettingError(
            f"{model.settings.name} reads no texts, and knows nothing of an entity that has no triples; ask "
            f"for one that client {trained.client} knows, or train one of {readers}"
        )
    _check_labels(trained, newcomers)
    wider = _wider(model, graph, newcomers)
    made = type(model).restore(model.settings, wider, _padded(model, wider))
    _check_rows(made, graph.num_entities, newcomers.labels)
    return replace(trained, graph=wider, model=made)


def new_words(trained: Trained, wider: Trained) -> int:
    """How many words no text of the client's graph had, where a model reads single words."""
    if "words" not in trained.model.tensors:
        return 0
    return len(wider.model["given"]) - len(trained.model["given"])


def _check_labels(trained: Trained, newcomers: Newcomers) -> None:
    known = set(trained.graph.entity_labels)
    for label in newcomers.labels:
        if label in known and newcomers.texts.get(label) != label:
            raise SettingError(
                f"'{label}' is an entity of client {trained.client} already; ask for it by its label, or "
                "give the new one another"
            )


def _wider(model: Described, graph: KnowledgeGraph, newcomers: Newcomers) -> KnowledgeGraph:
    """The graph with the new labels, and what the model reads of them; no text is encoded twice."""
    count = len(newcomers.labels)
    texts, features = dict(graph.texts), dict(graph.features)
    if "entity" in texts:
        texts["entity"] = (*texts["entity"], *(newcomers.texts.get(label, "") for label in newcomers.labels))
    if "texts" in model.buffers:  # a vector for each text
        features["entity"] = np.concatenate([model["texts"].numpy(), _vectors(model, graph, newcomers)])
    elif newcomers.vectors:
        raise SettingError(f"{model.settings.name} reads words; give texts of the new entities, no vectors")
    elif "entity" in features:
        blank = np.zeros((count, features["entity"].shape[1]), dtype=np.float32)
        features["entity"] = np.concatenate([features["entity"], blank])
    labels = (*graph.entity_labels, *newcomers.labels)
    return replace(graph, entity_labels=labels, texts=texts, features=features)


def _vectors(model: Described, graph: KnowledgeGraph, newcomers: Newcomers) -> Floats:
    """(new, w) as given, or of texts; whichever the entities of the graph have."""
    if "entity" not in graph.features:
        if newcomers.vectors:
            raise SettingError(
                f"vectors of new entities, where {model.options.text} reads texts of the others; give texts"
            )
        encoder = text_encoder(model.options.text).fitted(graph.texts["entity"])
        return encoded(encoder, tuple(newcomers.texts.values()))
    width = graph.features["entity"].shape[1]
    rows = np.array([*newcomers.vectors.values()], dtype=np.float32)
    if newcomers.texts or rows.ndim != 2 or rows.shape[1] != width:
        given = "texts" if newcomers.texts else f"vectors of shape {rows.shape}"
        raise SettingError(
            f"{given} of new entities, where the others were given as vectors of {width} numbers; give an "
            f".npz with arrays 'labels' (n,) and 'rows' (n, {width})"
        )
    return rows


def _padded(model: Model, wider: KnowledgeGraph) -> dict[str, Floats]:
    """The parameters with rows of zeros for new entities and new words."""
    shapes: dict[str, tuple[int, ...]] = {
        name: (len(wider.labels[spec.vocabulary]), spec.width) for name, spec in model.specs.items()
    }
    shapes |= type(model).weight_shapes(model.settings, wider)
    return {
        name: _lengthened(array, shapes.get(name, array.shape))
        for name, array in (model.parameters | model.state_buffers).items()
    }


def _lengthened(array: Floats, shape: tuple[int, ...]) -> Floats:
    if array.shape[1:] != shape[1:] or len(shape) == 0 or len(array) >= shape[0]:
        return array
    return np.concatenate([array, np.zeros((shape[0] - len(array), *shape[1:]), dtype=array.dtype)])


def _check_rows(model: Described, num_old: int, labels: Sequence[str]) -> None:
    with torch.no_grad():
        rows = model.encode_rows(torch.arange(num_old, num_old + len(labels))).entities
    for label, row in zip(labels, rows, strict=True):
        if not row.any():
            raise DataError(
                f"'{_short(label)}': {model.options.text} knows no word of its text; describe it in other "
                "words"
            )


def _short(label: str) -> str:
    return label if len(label) <= 60 else f"{label[:59]}…"
