"""How the FedR paper's authors split a graph: a sound rule, and an unsound shuffle kept for comparison.

Zhang et al., "Efficient Federated Learning on Knowledge Graphs via Privacy-preserving Relation Embedding
Aggregation", 2022, and the splits they published.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedkge.datasets.graph import SPLITS, KnowledgeGraph
from fedkge.datasets.partition.partitioner import Partitioner, Rows, by_frequency, divided
from fedkge.datasets.partition.random import Random
from fedkge.datasets.split import Split

__all__ = ["PUBLISHED_SEED", "FedRLegacy", "FedRPartition", "corrupting_shuffle", "pathcon_numbering"]

PUBLISHED_SEED = 9

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


@dataclass(frozen=True)
class FedRPartition(Random):
    """Random, all triples pooled, and FedR's rule decides what is held out (Zhang et al., 2022)."""

    pools: ClassVar[bool] = True


@dataclass(frozen=True)
class FedRLegacy(Partitioner):
    """The published FedR splits, bit for bit: a shuffle that overwrites half of the triples, seed 9.

    For comparison with published numbers only; `fedr` is the same idea done right. The seed of a run does not
    change it.
    """

    def split(self, graph: KnowledgeGraph, clients: int, seed: int, spec: str) -> Split:  # noqa: ARG002
        shuffler = random.Random(PUBLISHED_SEED)
        rows = corrupting_shuffle(graph.num_triples, shuffler)
        assignment = np.array_split(rows, clients)
        parts = [by_frequency(graph, client_rows, shuffler.shuffle) for client_rows in assignment]
        return divided(graph, assignment, parts, spec, PUBLISHED_SEED)


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
