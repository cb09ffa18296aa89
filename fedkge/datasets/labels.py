"""Labels: how they are spelt, and which of them mean something outside of the party that uses them.

A label that starts with `_:` is a name of its own party, as RDF writes blank nodes: two parties' `_:b0` are
two things. All other labels are names that parties have in common.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.graph import SPLITS, KnowledgeGraph

__all__ = ["LOCAL", "common_rows", "is_local", "normalised", "owned_labels", "respelt"]

LOCAL = "_:"


def is_local(label: str) -> bool:
    """Whether a label means nothing to another party."""
    return label.startswith(LOCAL)


def common_rows(labels: Sequence[str]) -> NDArray[np.int64]:
    """(k,) the indices of the labels that are names for every party, in alphabetical order.

    Labels are numbered as triples name them: in that order, neighbours would often be joined by a triple.
    """
    common = (row for row, label in enumerate(labels) if not is_local(label))
    return np.array(sorted(common, key=labels.__getitem__), dtype=np.int64)


def owned_labels(labels: Sequence[str], client: int) -> tuple[str, ...]:
    """A client's labels, its local ones marked with its number: no other client has them; once is enough."""
    mark = f"{LOCAL}client-{client}."
    if all(label.startswith(mark) for label in labels if is_local(label)):
        return tuple(labels)
    return tuple(mark + label.removeprefix(LOCAL) if is_local(label) else label for label in labels)


def respelt(label: str) -> str:
    """A label in Unicode's NFC: one spelling for every way to compose its letters."""
    return label if label.isascii() else unicodedata.normalize("NFC", label)


def normalised(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph with labels in NFC; two spellings of a label become one, and so do their triples."""
    if all(respelt(label) == label for labels in graph.labels.values() for label in labels):
        return graph
    entities, entity = _merged(graph.entity_labels)
    relations, relation = _merged(graph.relation_labels)
    triples, marks = {}, {}
    for split in SPLITS:
        head, kind, tail = graph[split].T
        numbered = np.stack([entity[head], relation[kind], entity[tail]], axis=1)
        kept, confidential = _without_twins(graph[split], numbered, graph.marks(split))
        triples[split], marks[split] = numbered[kept], confidential[kept]
    first = [np.unique(number, return_index=True)[1].tolist() for number in (entity, relation)]
    confidential_marks = marks if graph.confidential else None
    merged = graph.num_entities + graph.num_relations - len(entities) - len(relations)
    one = KnowledgeGraph.from_ids(
        graph.name,
        entities,
        relations,
        triples,
        confidential_marks,
        graph.features_of(*first),
        graph.texts_of(*first),
        graph.classes_of(first[0]),
    )
    return replace(one, merged_labels=merged, edge_list=graph.edge_list)


def _merged(labels: Iterable[str]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """The distinct labels in NFC, in order of appearance, and the number of each label among them."""
    numbers: dict[str, int] = {}
    number = [numbers.setdefault(respelt(label), len(numbers)) for label in labels]
    return tuple(numbers), np.array(number, dtype=np.int32)


def _without_twins(
    before: NDArray[np.int32], after: NDArray[np.int32], marks: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which triples stay, and their marks: one goes if only the spelling told it from an earlier one.

    What stands twice in the file stands twice still: the audit counts it. A mark on either spelling counts.
    """
    first: dict[tuple[Any, ...], int] = {}
    kept, confidential = np.ones(len(after), dtype=bool), marks.copy()
    rows = before.tolist()
    for row, triple in enumerate(map(tuple, after.tolist())):
        twin = first.setdefault(triple, row)
        if rows[twin] != rows[row]:
            kept[row] = False
            confidential[twin] |= marks[row]
    return kept, confidential
