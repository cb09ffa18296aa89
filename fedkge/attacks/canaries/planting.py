"""Canaries, and what is planted around them so that training must look at them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.graph import IntArray, KnowledgeGraph

__all__ = [
    "Planted",
    "plant",
    "plant_among_alike",
    "plant_at_hub",
    "plant_at_threshold",
    "plant_described",
]

_NONE = np.empty((0, 3), dtype=np.int32)
_KNOWN_FEATURES = 16  # of entities that are no canary's


@dataclass(frozen=True)
class Planted:
    """A graph with canaries, and the coins that the attacker wants to know.

    Attributes:
        crowd: confidential triples (c, 3) around the canaries that the attacker knows.
        parameter: the one whose rows belong to entities.
        first_row: the row of entity 0 in it; those of others follow.
    """

    graph: KnowledgeGraph
    canaries: IntArray  # (m, 3)
    included: NDArray[np.bool_]  # (m,)
    crowd: IntArray = field(default_factory=_NONE.copy)
    parameter: str = "entity"
    first_row: int = 0

    @property
    def places(self) -> list[tuple[str, NDArray[np.int32]]]:
        """The rows of heads, of relations and of tails of the canaries, with the parameters they are in."""
        head, relation, tail = self.canaries.T
        ends = (head + self.first_row, tail + self.first_row)
        return [(self.parameter, ends[0]), ("relation", relation), (self.parameter, ends[1])]


def plant(graph: KnowledgeGraph, num_canaries: int, rng: np.random.Generator) -> Planted:
    """Canaries with a relation and two entities of their own, as a rare statement of a real graph has."""
    entities, relations = graph.num_entities, graph.num_relations
    numbers = np.arange(num_canaries)
    canaries = np.stack([entities + 2 * numbers, relations + numbers, entities + 2 * numbers + 1], axis=1)
    names = [f"canary-{i}-{end}" for i in numbers for end in ("head", "tail")]
    return _planted(graph, names, [f"canary-{i}" for i in numbers], canaries, _NONE, _NONE, rng)


def plant_described(graph: KnowledgeGraph, num_canaries: int, rng: np.random.Generator) -> Planted:
    """Canaries as `plant` has them, for models of texts: each entity's description has a word of its own.

    Descriptions are public, so that an adversary may choose them. Features stand for them: an entity of a
    canary is one number that no other has, and its row of the projection is what a table would hold. Entities
    of the graph have random features.
    """
    planted = plant(graph, num_canaries, rng)
    known, new = graph.num_entities, 2 * num_canaries
    features = np.zeros((known + new, _KNOWN_FEATURES + new), dtype=np.float32)
    features[:known, :_KNOWN_FEATURES] = rng.normal(size=(known, _KNOWN_FEATURES)) / sqrt(_KNOWN_FEATURES)
    features[known:, _KNOWN_FEATURES:] = np.eye(new)
    described = replace(planted.graph, features={"entity": features})
    return replace(planted, graph=described, parameter="projection", first_row=_KNOWN_FEATURES - known)


def plant_among_alike(
    graph: KnowledgeGraph, num_canaries: int, rng: np.random.Generator, crowd: int
) -> Planted:
    """Canaries as `plant_described` has them, among entities that are all described alike.

    What an example asks of such entities cancels. Where negatives are entities of other examples, what is
    left is what it asks of a canary that is one of these.

    Args:
        crowd: confidential triples between the alike, besides those of the graph.
    """
    known = graph.num_entities
    pairs = rng.choice(known * known, crowd, replace=False)
    triples = np.stack([pairs // known, np.full(crowd, graph.num_relations), pairs % known], axis=1)
    crowded = KnowledgeGraph.from_ids(
        graph.name,
        graph.entity_labels,
        (*graph.relation_labels, "alike"),
        {"train": np.concatenate([graph.train, triples]).astype(np.int32)},
        {"train": np.concatenate([graph.marks("train"), np.ones(crowd, dtype=bool)])},
    )
    planted = plant_described(crowded, num_canaries, rng)
    features = planted.graph.features["entity"].copy()
    features[:known, :_KNOWN_FEATURES] = np.eye(_KNOWN_FEATURES)[0]
    described = replace(planted.graph, features={"entity": features})
    return replace(planted, graph=described, crowd=triples.astype(np.int32))


def plant_at_hub(
    graph: KnowledgeGraph, num_canaries: int, rng: np.random.Generator, crowd: int, known: bool = True
) -> Planted:
    """Canaries (own entity, one relation, one hub) among a crowd of confidential triples that are like them.

    Args:
        crowd: how many are always there, so that relation and hub are surely chosen.
        known: whether one unrestricted triple has the relation; else a mechanism has to start it.
    """
    first, relation = graph.num_entities, graph.num_relations
    heads = first + np.arange(num_canaries + crowd)
    hub = first + len(heads)
    triples = np.stack([heads, np.full_like(heads, relation), np.full_like(heads, hub)], axis=1)
    open_triples = np.array([[heads[-1], relation, hub + 1]])[: int(known)]
    names = [f"canary-{i}" for i in range(num_canaries)] + [f"crowd-{i}" for i in range(crowd)]
    names += ["hub", "known"]
    return _planted(
        graph, names, ["pooled"], triples[:num_canaries], triples[num_canaries:], open_triples, rng
    )


def plant_at_threshold(
    graph: KnowledgeGraph, num_canaries: int, rng: np.random.Generator, degree: int
) -> Planted:
    """Canaries between entities that have so many confidential triples already: one more may be enough.

    The entities stand in a ring, each with as many neighbours on either side as its degree asks for.
    """
    first, relation = graph.num_entities, graph.num_relations
    count, reach = 2 * num_canaries, max(1, degree // 2)
    places = np.arange(count)
    rings = [
        np.stack([places, np.full(count, relation), (places + step) % count], axis=1)
        for step in range(1, reach + 1)
    ]
    crowd = np.concatenate(rings) + np.array([first, 0, first])
    ends = first + places[:num_canaries], first + num_canaries + places[:num_canaries]  # farther than `reach`
    canaries = np.stack([ends[0], np.full(num_canaries, relation + 1), ends[1]], axis=1)
    open_triples = np.array([[first, relation, first + 1 + reach], [first, relation + 1, first + 1]])
    return _planted(
        graph, [f"end-{i}" for i in places], ["ring", "canaries"], canaries, crowd, open_triples, rng
    )


def _planted(
    graph: KnowledgeGraph,
    entities: list[str],
    relations: list[str],
    canaries: NDArray[np.int64],
    crowd: NDArray[np.int64] | IntArray,
    open_triples: NDArray[np.int64] | IntArray,
    rng: np.random.Generator,
) -> Planted:
    """Declare all labels, and let each canary into the confidential triples by a fair coin."""
    included = rng.random(len(canaries)) < 0.5
    parts = [graph.train, open_triples, crowd, canaries[included]]
    marks = [graph.marks("train"), *(np.full(len(part), i > 0) for i, part in enumerate(parts[1:]))]
    planted = KnowledgeGraph.from_ids(
        f"{graph.name} with canaries",
        (*graph.entity_labels, *entities),
        (*graph.relation_labels, *relations),
        {"train": np.concatenate(parts).astype(np.int32)},
        {"train": np.concatenate(marks)},
    )
    return Planted(planted, canaries.astype(np.int32), included, crowd.astype(np.int32))
