"""How the FedR paper's authors split a graph: a sound rule, and an unsound shuffle kept for comparison.

Zhang et al., "Efficient Federated Learning on Knowledge Graphs via Privacy-preserving Relation Embedding
Aggregation", 2022, and the splits they published.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.graph import SPLITS, IntArray, KnowledgeGraph

__all__ = ["PUBLISHED_SEED", "corrupting_shuffle", "frequency_rule", "pathcon_numbering"]

PUBLISHED_SEED = 9
HELD_OUT_SHARE = 0.2

Rows = NDArray[np.int64]

_PATHCON_RELATIONS = (
    "belong(s) to the category of",
    "is a category subset of",
    "may cause",
    "is a subtype of",
    "is a risk factor for",
    "is associated with",
    "may contraindicate",
    "interacts with",
    "belongs to the drug family of",
    "belongs to drug super-family",
    "is a vector for",
    "may be allelic with",
    "see also",
    "is an ingredient of",
)


def frequency_rule(triples: IntArray, shuffle: Callable[[list[int]], None]) -> tuple[Rows, Rows, Rows]:
    """Rows of train, valid and test: a triple may be held out while its parts occur more than twice."""
    order = list(range(len(triples)))
    shuffle(order)
    entity = np.bincount(triples[:, [0, 2]].ravel()).tolist()
    relation = np.bincount(triples[:, 1]).tolist()
    rows = triples.tolist()
    enough = int(len(order) * HELD_OUT_SHARE)
    train: list[int] = []
    held: list[int] = []
    for place, row in enumerate(order):
        h, r, t = rows[row]
        if entity[h] > 2 and entity[t] > 2 and relation[r] > 2:
            held.append(row)
            entity[h] -= 1
            entity[t] -= 1
            relation[r] -= 1
        else:
            train.append(row)
        if len(held) > enough:
            train += order[place + 1 :]
            break
    shuffle(held)
    half = len(held) // 2
    return (
        np.array(train, dtype=np.int64),
        np.array(held[:half], dtype=np.int64),
        np.array(held[half:], dtype=np.int64),
    )


def corrupting_shuffle(count: int, generator: random.Random) -> Rows:
    """Which source row each row holds after `random.shuffle` of a 2-D array: swapping two *views* of an
    array copies one row over the other, so half of the rows are lost."""
    rows = np.arange(count)[:, None]
    generator.shuffle(rows)  # type: ignore[arg-type]
    return rows[:, 0]


def pathcon_numbering(graph: KnowledgeGraph) -> KnowledgeGraph:
    """DDB14 with PathCon's ids, which the published splits use: entities as they appear in the whole graph
    when it is sorted by tail, relation and head."""
    relation_id = {label: number for number, label in enumerate(_PATHCON_RELATIONS)}
    relations = np.array([relation_id[label] for label in graph.relation_labels])
    names = np.array([int(label) for label in graph.entity_labels])
    head, relation, tail = graph.triples.T
    order = np.lexsort((names[head], relations[relation], names[tail]))
    by_appearance = dict.fromkeys(graph.triples[order][:, [0, 2]].ravel().tolist())
    entities = np.empty(graph.num_entities, dtype=np.int32)
    entities[list(by_appearance)] = np.arange(graph.num_entities)
    arrays = {
        split: np.stack([entities[head], relations[relation], entities[tail]], axis=1)
        for split, (head, relation, tail) in ((split, graph[split].T) for split in SPLITS)
    }
    labels = (graph.entity_labels[old] for old in by_appearance)
    return KnowledgeGraph.from_ids(graph.name, labels, _PATHCON_RELATIONS, arrays)
