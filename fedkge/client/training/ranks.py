"""Filtered ranks: where the true entity stands among all candidates, other known answers left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.ranking import Candidates, count_better, padded
from fedkge.client.models.model import Model
from fedkge.client.training.threads import one_thread
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.lookup import Lookup
from fedkge.errors import DataError

__all__ = ["SIDES", "Ranks", "rank"]

Side = Literal["tail", "head"]
SIDES: dict[str, tuple[Side, ...]] = {"tail": ("tail",), "head": ("head",), "both": ("tail", "head")}

_BLOCK = 2**20  # scores held at once: they stay in the cache until they are counted


@dataclass(frozen=True)
class Ranks:
    """For every triple and side: how many candidates beat the true entity, equal it, and were left to it."""

    triples: Ids  # (n, 3)
    sides: tuple[Side, ...]
    better: NDArray[np.int64]  # (n, sides)
    equal: NDArray[np.int64]
    candidates: NDArray[np.int64]  # the true entity among them
    seen: NDArray[np.bool_]  # (n,) whether training met both entities and the relation

    def ranks(self, ties: str = "realistic") -> NDArray[np.float64]:
        """(n, sides): the mean, the best or the worst rank that equal scores allow."""
        share = {"optimistic": 0.0, "realistic": 0.5, "pessimistic": 1.0}[ties]
        places: NDArray[np.float64] = 1.0 + self.better + share * self.equal
        return places

    def __getitem__(self, rows: NDArray[np.bool_]) -> Ranks:
        """Some of the triples."""
        arrays = (self.better[rows], self.equal[rows], self.candidates[rows], self.seen[rows])
        return Ranks(self.triples[rows], self.sides, *arrays)


def rank(
    model: Model,
    graph: KnowledgeGraph,
    split: str = "test",
    sides: Literal["tail", "head", "both"] = "both",
    candidates: Ids | None = None,
) -> Ranks:
    """Rank the triples of a split among all rows, or among the given candidates."""
    triples = graph[split]
    offered = np.arange(len(model.entity), dtype=np.int32) if candidates is None else np.unique(candidates)
    place_of = np.full(len(model.entity), -1, dtype=np.int32)
    place_of[offered] = np.arange(len(offered))
    counts = np.empty((3, len(SIDES[sides]), len(triples)), dtype=np.int64)
    with one_thread(), torch.no_grad():
        for i, side in enumerate(SIDES[sides]):
            _rank_side(model, graph, triples, side, offered, place_of, counts[:, i])
    better, equal, left = counts.transpose(0, 2, 1)
    return Ranks(triples, SIDES[sides], better, equal, left, _seen(graph, triples))


def _rank_side(
    model: Model,
    graph: KnowledgeGraph,
    triples: Ids,
    side: Side,
    offered: Ids,
    place_of: Ids,
    counts: NDArray[np.int64],
) -> None:
    head, relation, tail = triples.T
    anchor, target = (head, tail) if side == "tail" else (tail, head)
    lookup: Lookup = graph.true_tails if side == "tail" else graph.true_heads
    places = place_of[target]
    if (places < 0).any():
        raise DataError(
            f"{graph.name}: {(places < 0).sum()} of {len(places)} {side}s to rank are not candidates; "
            "offer every entity that a triple may have"
        )
    starts, stops = lookup.spans(anchor, relation)
    sign = np.float32(model.comparison.sign)
    for block, query_of, compared in _blocks(model, anchor, relation, side, offered):
        out = [np.empty(len(block), dtype=np.int64) for _ in range(3)]
        filters = (lookup.values, starts[block], stops[block], place_of)
        count_better(sign, compared, query_of, places[block], *filters, *out)
        for kept, found in zip(counts, out, strict=True):
            kept[block] = found


def _blocks(
    model: Model, anchor: Ids, relation: Ids, side: Side, offered: Ids
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Floats]]:
    """Score each question (anchor, relation) once: the triples that ask it, the row of each, the rows."""
    width = len(model.entity)
    questions, inverse = np.unique(relation.astype(np.int64) * width + anchor, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    ends = np.searchsorted(inverse[order], np.arange(len(questions) + 1))
    for start, stop, table in _stretches(model, questions // width, offered):
        relations, anchors = np.divmod(questions[start:stop], width)
        h, r = model.entity[torch.from_numpy(anchors)], model.relation[torch.from_numpy(relations)]
        query = model.query_tail(h, r) if side == "tail" else model.query_head(h, r)
        block = order[ends[start] : ends[stop]]
        yield block, inverse[block] - start, table.compare(query.contiguous().numpy())


def _stretches(
    model: Model, relations: NDArray[np.int64], offered: Ids
) -> Iterator[tuple[int, int, Candidates]]:
    """Runs of questions with the table they are asked of; a model that projects has one per relation."""
    size = max(2, _BLOCK // max(len(offered), 1))
    rows = padded(model.entity[torch.from_numpy(offered.astype(np.int64))])
    bounds = [0, len(relations)]
    if model.projects:
        bounds = [0, *(np.flatnonzero(np.diff(relations)) + 1).tolist(), len(relations)]
    for low, high in pairwise(bounds):
        if low == high:
            continue
        seen_by = model.relation[relations[low] : relations[low] + 1]
        mapped = model.project(rows[None], seen_by)[0] if model.projects else rows
        table = Candidates(model.comparison, mapped, len(offered))
        for start in range(low, high, size):
            yield start, min(start + size, high), table


def _seen(graph: KnowledgeGraph, triples: Ids) -> NDArray[np.bool_]:
    entity = np.zeros(graph.num_entities, dtype=bool)
    entity[graph.train[:, [0, 2]]] = True
    relation = np.zeros(graph.num_relations, dtype=bool)
    relation[graph.train[:, 1]] = True
    known: NDArray[np.bool_] = entity[triples[:, 0]] & relation[triples[:, 1]] & entity[triples[:, 2]]
    return known
