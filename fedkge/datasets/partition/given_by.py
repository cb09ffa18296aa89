"""Clients that the graph itself names: hospitals, and the patients who stay in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedkge.datasets.graph import BoolArray, IntArray, KnowledgeGraph
from fedkge.datasets.partition.partitioner import Assigner, Rows, divided
from fedkge.datasets.split import Split
from fedkge.errors import DataError, SettingError, UnknownNameError
from fedkge.seeding import draw

__all__ = ["GivenBy"]


@dataclass(frozen=True)
class GivenBy(Assigner):
    """The objects of a predicate are the clients, the largest first: `given-by:staysAt`.

    A client holds what is said of the entities that have it as their object, and from there on whatever is
    said of the entities that these statements lead to, as of a patient's assessments and of their kinds.
    Where two clients' entities lead to one, as to a drug, both hold what is said of it. Of the other clients'
    own entities it holds nothing. The predicate itself is trained on, never held out: its answer is the
    client.
    """

    free_option: ClassVar[str] = "predicate"
    predicate: str = ""  # its label, or the last part of it, where it is an IRI

    def __post_init__(self) -> None:
        if not self.predicate:
            raise SettingError("partition 'given-by': expected a predicate, such as given-by:staysAt")

    def assign(self, graph: KnowledgeGraph, clients: int, rng: np.random.Generator) -> Sequence[Rows]:
        del rng  # nothing is drawn
        relation = _relation(graph, self.predicate)
        pairs = np.unique(graph.triples[graph.triples[:, 1] == relation][:, [0, 2]], axis=0)
        objects = _largest_first(graph, pairs)
        if len(objects) < clients:
            raise DataError(
                f"{graph.name}: '{self.predicate}' has {len(objects)} objects for {clients} clients; "
                "use fewer clients"
            )
        has_object = _are(graph, pairs[:, 0])
        return [_held(graph, pairs[pairs[:, 1] == own, 0], has_object) for own in objects[:clients]]

    def split(self, graph: KnowledgeGraph, clients: int, seed: int, spec: str) -> Split:
        rng = draw(seed, clients)
        assignment = self.assign(graph, clients, rng)
        relation = _relation(graph, self.predicate)
        parts = [self._parts(graph, rows, relation, rng) for rows in assignment]
        return divided(graph, assignment, parts, spec, seed)

    def _parts(
        self, graph: KnowledgeGraph, rows: Rows, relation: int, rng: np.random.Generator
    ) -> Mapping[str, Rows]:
        parts = self.part(graph, rows, rng)
        asked = {split: graph.triples[part, 1] != relation for split, part in parts.items()}
        settled = [parts[split][~asked[split]] for split in ("valid", "test")]
        kept = {split: parts[split][asked[split]] for split in ("valid", "test")}
        return {"train": np.concatenate([parts["train"], *settled]), **kept}


def _largest_first(graph: KnowledgeGraph, pairs: IntArray) -> list[int]:
    """The objects by how much is said of their entities, then by label."""
    head, _, tail = graph.triples.T
    has_object = _are(graph, pairs[:, 0])
    said = np.bincount(head, minlength=graph.num_entities)
    said += np.bincount(tail[~has_object[head]], minlength=graph.num_entities)
    sizes = np.bincount(pairs[:, 1], said[pairs[:, 0]], graph.num_entities)
    return sorted(np.unique(pairs[:, 1]).tolist(), key=lambda row: (-sizes[row], graph.entity_labels[row]))


def _are(graph: KnowledgeGraph, entities: IntArray) -> BoolArray:
    """(entities,) which are among those."""
    among = np.zeros(graph.num_entities, dtype=bool)
    among[entities] = True
    return among


def _held(graph: KnowledgeGraph, members: IntArray, has_object: BoolArray) -> Rows:
    """The rows of `graph.triples` that a client holds whose entities are `members`."""
    head, _, tail = graph.triples.T
    own = _are(graph, members)
    held = own[head] | (own[tail] & ~has_object[head])
    while True:
        reached = _are(graph, np.concatenate([head[held], tail[held]])) & ~has_object
        more = held | reached[head]
        if (more == held).all():
            return np.flatnonzero(held)
        held = more


def _relation(graph: KnowledgeGraph, predicate: str) -> int:
    """The number of the relation of that label, or of the only IRI that ends so."""
    if predicate in graph.relation_labels:
        return graph.relation_labels.index(predicate)
    ends = [
        number
        for number, label in enumerate(graph.relation_labels)
        if re.split(r"[#/]", label)[-1] == predicate
    ]
    if len(ends) != 1:
        raise UnknownNameError("predicate", predicate, graph.relation_labels)
    return ends[0]
