"""Graphs with their features: labels without any are counted, and so are those that no graph has."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.features.feature_file import FeatureFile
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.labels import is_local
from fedkge.datasets.split import Split
from fedkge.errors import DataError

__all__ = [
    "Coverage",
    "attach",
    "coverage_of",
    "described_by",
    "described_split",
    "split_coverage",
    "with_all_entities",
    "with_features_of",
]

_log = logging.getLogger(__name__)

Labels = Mapping[str, Sequence[str]]  # by kind, "entity" or "relation"


@dataclass(frozen=True)
class Coverage:
    """How many labels of a kind have a text or a vector."""

    kind: str
    having: int
    labels: int
    unknown: int = 0  # labels of the files that the graph does not have

    def __str__(self) -> str:
        kinds = {"entity": "entities", "relation": "relations"}[self.kind]
        text = f"{self.having:,} of {self.labels:,} {kinds} have a text or a vector"
        if self.having < self.labels:
            text += "; in place of the others' stands zero"
        return f"{text}; {self.unknown:,} labels of the files are not in the graph" if self.unknown else text


def attach(graph: KnowledgeGraph, files: Sequence[FeatureFile]) -> KnowledgeGraph:
    """The graph with the features of some files; what it has already, and what comes first, counts."""
    _refuse_strangers(graph.name, graph.labels, files)
    return _attached(graph, files)


def described_by(graph: KnowledgeGraph, files: Sequence[FeatureFile]) -> KnowledgeGraph:
    """The graph with its features, after saying how many labels have some."""
    described = attach(graph, files)
    for kind in dict.fromkeys(file.kind for file in files):
        _tell(graph.name, coverage_of(described, kind, files))
    return described


def described_split(split: Split, files: Sequence[FeatureFile]) -> Split:
    """A split whose clients have the features of their own labels."""
    labels = {"entity": split.entity_labels, "relation": split.relation_labels}
    _refuse_strangers(split.name, labels, files)
    described = replace(split, clients=tuple(_attached(graph, files) for graph in split.clients))
    for kind in dict.fromkeys(file.kind for file in files):
        _tell(split.name, split_coverage(described, kind, files))
    return described


def with_features_of(graph: KnowledgeGraph, others: Sequence[KnowledgeGraph]) -> KnowledgeGraph:
    """The graph with what other graphs know of its labels."""
    files = [
        FeatureFile(
            kind,
            other.name,
            _by_label(other, kind),
            dict(zip(labels, other.features[kind], strict=True)) if kind in other.features else {},
        )
        for other in others
        for kind, labels in other.labels.items()
        if kind in other.texts or kind in other.features
    ]
    return _attached(graph, files)


def with_all_entities(split: Split) -> Split:
    """Every client with the labels, texts and vectors of all clients' entities, its own first.

    Of an entity that it does not hold a client has no triple. Local labels stay with their own party.
    """
    every = [label for label in split.entity_labels if not is_local(label)]
    clients = []
    for graph in split.clients:
        labels = tuple(dict.fromkeys((*graph.entity_labels, *every)))
        features = {kind: rows for kind, rows in graph.features.items() if kind != "entity"}
        texts = {kind: words for kind, words in graph.texts.items() if kind != "entity"}
        wider = replace(graph, entity_labels=labels, features=features, texts=texts)
        clients.append(with_features_of(wider, split.clients))
    return replace(split, clients=tuple(clients))


def coverage_of(graph: KnowledgeGraph, kind: str, files: Sequence[FeatureFile] = ()) -> Coverage:
    """How many labels of a graph have features, and how many labels of files it lacks."""
    unknown = _labels_of(files, kind).difference(graph.labels[kind])
    return Coverage(kind, int(_having(graph, kind).sum()), len(graph.labels[kind]), len(unknown))


def split_coverage(split: Split, kind: str, files: Sequence[FeatureFile] = ()) -> Coverage:
    """How many labels of a split have features at a client, and how many labels of files it lacks."""
    labels = set(split.entity_labels if kind == "entity" else split.relation_labels)
    having = {
        label
        for graph in split.clients
        for label, has in zip(graph.labels[kind], _having(graph, kind), strict=True)
        if has
    }
    return Coverage(kind, len(having), len(labels), len(_labels_of(files, kind) - labels))


def _refuse_strangers(name: str, labels: Labels, files: Sequence[FeatureFile]) -> None:
    """Refuse a file of another dataset: one that has none of the labels."""
    known = {kind: set(of_kind) for kind, of_kind in labels.items()}
    for file in files:
        if not file.labels:
            raise DataError(f"{file.origin}: no text and no vector; give a file that has some, or none")
        if known[file.kind].isdisjoint(file.labels):
            other = "relation" if file.kind == "entity" else "entity"
            if not known[other].isdisjoint(file.labels):
                remedy = (
                    "'relation:' before the path" if other == "relation" else "the path without 'relation:'"
                )
                raise DataError(
                    f"{file.origin}: its {len(file.labels):,} labels are taken for those of {file.kind} "
                    f"features, and are {other} labels of {name}; write {remedy}"
                )
            theirs, ours = min(file.labels, default=""), min(known[file.kind], default="")
            raise DataError(
                f"{file.origin}: none of its {len(file.labels):,} labels, such as '{theirs}', is among the "
                f"{len(known[file.kind]):,} {file.kind} labels of {name}, such as '{ours}'; give the "
                "features of this dataset"
            )


def _attached(graph: KnowledgeGraph, files: Sequence[FeatureFile]) -> KnowledgeGraph:
    texts, vectors = dict(graph.texts), dict(graph.features)
    for kind in dict.fromkeys(file.kind for file in files):
        labels = graph.labels[kind]
        chosen = [file for file in files if file.kind == kind]
        if any(file.texts for file in chosen):
            texts[kind] = _merged(labels, [_by_label(graph, kind), *(file.texts for file in chosen)])
        if any(file.vectors for file in chosen):
            vectors[kind] = _rows(labels, [file for file in chosen if file.vectors])
    return replace(graph, texts=texts, features=vectors) if files else graph


def _tell(name: str, coverage: Coverage) -> None:
    complete = coverage.having == coverage.labels
    _log.log(logging.INFO if complete else logging.WARNING, "%s: %s", name, coverage)


def _labels_of(files: Sequence[FeatureFile], kind: str) -> set[str]:
    return {label for file in files if file.kind == kind for label in file.labels}


def _merged(labels: Iterable[str], sources: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """A text for each label, the first that one of the sources has; empty where none has."""
    return tuple(next((source[label] for source in sources if source.get(label)), "") for label in labels)


def _by_label(graph: KnowledgeGraph, kind: str) -> dict[str, str]:
    return dict(zip(graph.labels[kind], graph.texts.get(kind, ()), strict=False))


def _rows(labels: Sequence[str], files: Sequence[FeatureFile]) -> NDArray[np.float32]:
    widths = {len(row): file.origin for file in files for row in file.vectors.values()}
    if len(widths) > 1:
        found = ", ".join(f"{width} in {origin}" for width, origin in widths.items())
        raise DataError(f"vectors of different widths: {found}; give vectors of one width")
    rows = np.zeros((len(labels), *widths), dtype=np.float32)
    for file in reversed(files):
        for number, label in enumerate(labels):
            if label in file.vectors:
                rows[number] = file.vectors[label]
    return rows


def _having(graph: KnowledgeGraph, kind: str) -> NDArray[np.bool_]:
    having = np.zeros(len(graph.labels[kind]), dtype=bool)
    if kind in graph.texts:
        having |= np.array([bool(text) for text in graph.texts[kind]], dtype=bool)
    if kind in graph.features:
        having |= graph.features[kind].any(axis=1)
    return having
