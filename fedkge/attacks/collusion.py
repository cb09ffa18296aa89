"""What a colluder hands over: element–embedding pairs, as many as the leak ratio says."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.view import Handover, Rows
from fedkge.datasets import KnowledgeGraph

__all__ = ["hand_over"]


def hand_over(
    client: int,
    graph: KnowledgeGraph,
    tables: Mapping[str, NDArray[np.float32]],
    names: Mapping[str, NDArray[np.int64]],
    leak_ratio: float,
    rng: np.random.Generator,
) -> Handover:
    """A random share of a client's entities, and each relation that has a train triple with one of them.

    `tables` are in the order of the graph's labels, and `names` are these labels in the view.
    """
    chosen = np.zeros(graph.num_entities, dtype=bool)
    count = max(1, round(leak_ratio * graph.num_entities))
    chosen[rng.permutation(graph.num_entities)[:count]] = True
    head, relation, tail = graph.train.T
    # As published: one end suffices for the relation to be in the pool.
    related = np.unique(relation[chosen[head] | chosen[tail]])
    inside = graph.train[chosen[head] & chosen[tail]]
    entity, kind = names["entity"], names["relation"]
    triples = np.stack([entity[inside[:, 0]], kind[inside[:, 1]], entity[inside[:, 2]]], axis=1)
    return Handover(
        client,
        Rows(entity[chosen], tables["entity"][chosen]),
        Rows(kind[related], tables["relation"][related]),
        triples,
    )
