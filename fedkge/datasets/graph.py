"""A knowledge graph: labelled entities and relations, and int32 triples in three splits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.lookup import Lookup
from fedkge.datasets.networks.edge_counts import EdgeCounts
from fedkge.errors import DataError

__all__ = [
    "LONGEST_TEXT",
    "SPLITS",
    "BoolArray",
    "IntArray",
    "KnowledgeGraph",
    "LabelledTriples",
    "require_train",
]

SPLITS = ("train", "valid", "test")
LONGEST_TEXT = 100_000  # characters of one label's; a description has a few hundred

IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True)
class LabelledTriples:
    """Triples as a file has them: three columns of labels, and a mark per triple."""

    heads: Sequence[str]
    relations: Sequence[str]
    tails: Sequence[str]
    confidential: BoolArray | None = None
    texts: Mapping[str, str] = field(default_factory=dict)  # of any labels that the file describes

    def __len__(self) -> int:
        return len(self.heads)


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """Frozen triples with their labels; `confidential` marks statements, split by split."""

    name: str
    entity_labels: tuple[str, ...]
    relation_labels: tuple[str, ...]
    train: IntArray  # (n, 3) head, relation, tail
    valid: IntArray
    test: IntArray
    confidential: Mapping[str, BoolArray] = field(default_factory=dict)  # split -> (n,); absent: none is
    features: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # "entity" -> (entities, w)
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # "entity" -> a text each, or ""
    merged_labels: int = 0  # how many labels were another spelling (Unicode) of one that is here
    classes: tuple[str, ...] = ()  # of a network: the class of each entity, or "" where it has none
    edge_list: EdgeCounts | None = None  # of a network: what its file had

    def __post_init__(self) -> None:
        for split in SPLITS:
            triples = np.asarray(getattr(self, split)).reshape(-1, 3)
            self._check(split, triples)  # before the cast, which would wrap large ids around
            object.__setattr__(self, split, _frozen(np.ascontiguousarray(triples, dtype=np.int32)))
        marks = {split: _frozen(np.asarray(mark, dtype=bool)) for split, mark in self.confidential.items()}
        for split, mark in marks.items():
            if len(mark) != len(self[split]):
                raise DataError(f"{self.name}: {len(mark)} marks for {len(self[split])} {split} triples")
        object.__setattr__(self, "confidential", marks)
        object.__setattr__(self, "features", {kind: self._feature(kind) for kind in self.features})
        object.__setattr__(self, "texts", {kind: self._text(kind) for kind in self.texts})
        object.__setattr__(self, "classes", tuple(self.classes))
        if len(self.classes) not in (0, self.num_entities):
            raise DataError(f"{self.name}: {len(self.classes)} classes for {self.num_entities} entities")

    def _feature(self, kind: str) -> NDArray[np.float32]:
        sizes = {"entity": self.num_entities, "relation": self.num_relations}
        rows = np.asarray(self.features[kind], dtype=np.float32)
        if rows.ndim != 2 or len(rows) != sizes.get(kind):
            raise DataError(
                f"{self.name}: features of '{kind}' have shape {rows.shape}; expected a row for each of "
                f"{' or '.join(f'{size} {name} labels' for name, size in sizes.items())}"
            )
        return _frozen(rows)

    def _text(self, kind: str) -> tuple[str, ...]:
        texts = tuple(self.texts[kind])
        if kind not in self.labels or len(texts) != len(self.labels[kind]):
            raise DataError(
                f"{self.name}: {len(texts)} texts of '{kind}'; expected one, or '', for each of "
                f"{self.num_entities} entity or {self.num_relations} relation labels"
            )
        return texts

    def _check(self, split: str, triples: NDArray[Any]) -> None:
        if len(triples) == 0:
            return
        if triples.dtype.kind not in "iu":
            raise DataError(f"{self.name}: the {split} triples are {triples.dtype}; ids are whole numbers")
        if triples.min() < 0:
            raise DataError(f"{self.name}: a negative id among the {split} triples")
        for column, bound, kind in (
            (triples[:, [0, 2]], self.num_entities, "entity"),
            (triples[:, 1], self.num_relations, "relation"),
        ):
            if column.max() >= bound:
                raise DataError(
                    f"{self.name}: {split} has {kind} id {column.max()}, but only {bound} labels are known"
                )

    @classmethod
    def from_labels(
        cls,
        name: str,
        splits: Mapping[str, LabelledTriples],
        entity_labels: Iterable[str] = (),
        relation_labels: Iterable[str] = (),
    ) -> KnowledgeGraph:
        """Number the labels: first those given, then in order of appearance."""
        entities = {label: number for number, label in enumerate(entity_labels)}
        relations = {label: number for number, label in enumerate(relation_labels)}
        arrays = {}
        for split, rows in splits.items():
            triples = np.empty((len(rows), 3), dtype=np.int32)
            pairs = [label for pair in zip(rows.heads, rows.tails, strict=True) for label in pair]
            triples[:, [0, 2]] = _number(pairs, entities).reshape(-1, 2)
            triples[:, 1] = _number(rows.relations, relations)
            arrays[split] = triples
        marks = {split: rows.confidential for split, rows in splits.items() if rows.confidential is not None}
        told = {label: text for rows in splits.values() for label, text in rows.texts.items()}
        vocabularies = {"entity": entities, "relation": relations}
        texts = {
            kind: tuple(told.get(label, "") for label in labels)
            for kind, labels in vocabularies.items()
            if not told.keys().isdisjoint(labels)
        }
        return cls.from_ids(name, entities, relations, arrays, marks, texts=texts)

    @classmethod
    def from_ids(
        cls,
        name: str,
        entity_labels: Iterable[str],
        relation_labels: Iterable[str],
        splits: Mapping[str, NDArray[Any]],
        confidential: Mapping[str, BoolArray] | None = None,
        features: Mapping[str, NDArray[np.float32]] | None = None,
        texts: Mapping[str, tuple[str, ...]] | None = None,
        classes: Sequence[str] = (),
    ) -> KnowledgeGraph:
        """A graph whose triples are numbered already; a split that is absent is empty."""
        empty = np.empty((0, 3), dtype=np.int32)
        train, valid, test = (splits.get(split, empty) for split in SPLITS)
        labels = tuple(entity_labels), tuple(relation_labels)
        marks, rows, told = confidential or {}, features or {}, texts or {}
        return cls(name, *labels, train, valid, test, marks, rows, told, classes=tuple(classes))

    def __getitem__(self, split: str) -> IntArray:
        if split not in SPLITS:
            raise KeyError(split)
        triples: IntArray = getattr(self, split)
        return triples

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """The two vocabularies: what rows of tables belong to."""
        return {"entity": self.entity_labels, "relation": self.relation_labels}

    @property
    def num_entities(self) -> int:
        return len(self.entity_labels)

    @property
    def num_relations(self) -> int:
        return len(self.relation_labels)

    @property
    def num_triples(self) -> int:
        return sum(len(self[split]) for split in SPLITS)

    @cached_property
    def triples(self) -> IntArray:
        """All triples, train first, then valid, then test."""
        return _frozen(np.concatenate([self[split] for split in SPLITS]))

    def marks(self, split: str) -> BoolArray:
        """Which triples of a split are confidential."""
        mark = self.confidential.get(split)
        return np.zeros(len(self[split]), dtype=bool) if mark is None else mark

    def features_of(
        self, entities: Sequence[int], relations: Sequence[int]
    ) -> Mapping[str, NDArray[np.float32]]:
        """The features of some entities and relations, in that order, for a graph of these alone."""
        chosen = {"entity": entities, "relation": relations}
        return {kind: rows[chosen[kind]] for kind, rows in self.features.items()}

    def texts_of(self, entities: Sequence[int], relations: Sequence[int]) -> Mapping[str, tuple[str, ...]]:
        """The texts of some entities and relations, as `features_of`."""
        chosen = {"entity": entities, "relation": relations}
        return {kind: tuple(texts[row] for row in chosen[kind]) for kind, texts in self.texts.items()}

    def classes_of(self, entities: Sequence[int]) -> tuple[str, ...]:
        """The classes of some entities, as `features_of`."""
        return tuple(self.classes[row] for row in entities) if self.classes else ()

    @cached_property
    def true_tails(self) -> Lookup:
        """The tails of (head, relation) in any split."""
        head, relation, tail = self.triples.T
        return Lookup.build(head, relation, tail, self.num_relations)

    @cached_property
    def true_heads(self) -> Lookup:
        """The heads of (tail, relation) in any split."""
        head, relation, tail = self.triples.T
        return Lookup.build(tail, relation, head, self.num_relations)

    def labelled(self, split: str) -> LabelledTriples:
        """A split with labels in place of ids."""
        head, relation, tail = self[split].T.tolist()
        return LabelledTriples(
            [self.entity_labels[i] for i in head],
            [self.relation_labels[i] for i in relation],
            [self.entity_labels[i] for i in tail],
            self.confidential.get(split),
        )

    @cached_property
    def seen_entities(self) -> BoolArray:
        """(entities,) which have a train triple."""
        seen = np.zeros(self.num_entities, dtype=bool)
        seen[self.train[:, [0, 2]]] = True
        return _frozen(seen)

    def is_seen(self, triples: IntArray) -> BoolArray:
        """(n,) which triples have entities and a relation that train triples have."""
        relations = np.zeros(self.num_relations, dtype=bool)
        relations[self.train[:, 1]] = True
        head, relation, tail = triples.T
        seen: BoolArray = self.seen_entities[head] & relations[relation] & self.seen_entities[tail]
        return seen

    def unseen(self, split: str) -> int:
        """How many triples of a split have an entity or relation that no train triple has."""
        return int((~self.is_seen(self[split])).sum())


def require_train(graph: KnowledgeGraph, origin: str) -> None:
    """Refuse a graph that nothing can be learnt from."""
    if len(graph.train) == 0:
        raise DataError(f"{origin}: no triples in its train split, which cannot be empty")


def _number(labels: Sequence[str], known: dict[str, int]) -> IntArray:
    """Ids of labels; a new label gets the next id."""
    for label in dict.fromkeys(labels):
        known.setdefault(label, len(known))
    return np.fromiter(map(known.__getitem__, labels), np.int32, len(labels))


def _frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    array = array.view()
    array.flags.writeable = False
    return array
