"""Filtered ranks: where the true entity stands among all candidates, other known answers left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.ranking import Candidates, count_better, padded
from fedkge.client.models.model import Encoded, Model
from fedkge.client.training.threads import one_thread
from fedkge.client.training.truths import Truths
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.lookup import Lookup
from fedkge.errors import DataError
from fedkge.experiment import EvaluationSettings

__all__ = ["FILTERS", "SIDES", "Ranks", "Side", "rank", "rank_as", "rank_by_filter"]

Side = Literal["tail", "head"]
FILTERS = ("own", "all")  # whose true answers are left out: the client's, or those of all clients
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

    def of_side(self, side: Side) -> Ranks:
        """One of the sides alone."""
        column = slice(self.sides.index(side), self.sides.index(side) + 1)
        arrays = (self.better[:, column], self.equal[:, column], self.candidates[:, column])
        return Ranks(self.triples, (side,), *arrays, self.seen)


def rank(
    model: Model,
    graph: KnowledgeGraph,
    split: str = "test",
    sides: Literal["tail", "head", "both"] = "both",
    candidates: Ids | None = None,
) -> Ranks:
    """Rank the triples of a split among all rows, or among the given candidates."""
    return rank_by_filter(model, graph, split, sides, candidates)["own"]


def rank_as(
    settings: EvaluationSettings,
    model: Model,
    graph: KnowledgeGraph,
    split: str,
    others: Truths | None = None,
    shared: Ids | None = None,
) -> dict[str, Ranks]:
    """Ranks of a split by filter, as the settings say; `shared` are candidates beside the client's own."""
    candidates = _candidates(graph, split, settings)
    if candidates is not None and shared is not None:
        candidates = np.union1d(candidates, shared)
    target_too = settings.candidates == "seen"
    return rank_by_filter(model, graph, split, settings.sides, candidates, others, target_too)


def _candidates(graph: KnowledgeGraph, split: str, settings: EvaluationSettings) -> Ids | None:
    """The entities that a client ranks against, None for all: rows of others' entities it does not know.

    At validation, those that only test triples have are not known yet (Daza et al., 2021).
    """
    if settings.candidates == "all":
        return None
    if settings.candidates == "seen":
        return np.flatnonzero(graph.seen_entities).astype(np.int32)
    known = graph.triples if split == "test" else np.concatenate([graph.train, graph.valid])
    return np.unique(known[:, [0, 2]])


def rank_by_filter(
    model: Model,
    graph: KnowledgeGraph,
    split: str = "test",
    sides: Literal["tail", "head", "both"] = "both",
    candidates: Ids | None = None,
    others: Truths | None = None,
    target_too: bool = False,
) -> dict[str, Ranks]:
    """Ranks by filter: `own` leaves out the graph's answers, `all` also those of `others`, if they are given.

    Both come out of one pass over the scores.

    Args:
        target_too: whether the true entity is a candidate of its own question where it is not among them;
            otherwise that is an error.
    """
    triples = graph[split]
    with one_thread(), torch.no_grad():  # threads would divide its products otherwise
        encoded = model.encode()
    count = len(encoded.entities)
    common = np.arange(count, dtype=np.int32) if candidates is None else np.unique(candidates)
    offered = common
    if target_too:
        offered = np.concatenate([common, np.setdiff1d(triples[:, [0, 2]], common)])
    place_of = np.full(count, -1, dtype=np.int32)
    place_of[offered] = np.arange(len(offered))
    filters = FILTERS[:1] if others is None else FILTERS
    counts = np.empty((3, len(SIDES[sides]), len(filters), len(triples)), dtype=np.int64)
    with one_thread(), torch.no_grad():
        for i, side in enumerate(SIDES[sides]):
            answers = _answers(graph, others, triples, side)
            places = offered, len(common), place_of
            _rank_side(model, encoded, graph, triples, side, places, answers, counts[:, i])
    seen = graph.is_seen(triples)
    ranks = {}
    for row, name in enumerate(filters):
        better, equal, left = counts[:, :, row].transpose(0, 2, 1)
        ranks[name] = Ranks(triples, SIDES[sides], better, equal, left, seen)
    return ranks


# Who is scored; how many of them, the first, are candidates of all; the place of each entity, or −1.
Places = tuple[Ids, int, Ids]
# Answers one after the other; where those of each filter and triple start and stop, (filters, n).
Answers = tuple[Ids, NDArray[np.int64], NDArray[np.int64]]


def _answers(graph: KnowledgeGraph, others: Truths | None, triples: Ids, side: Side) -> Answers:
    head, relation, tail = triples.T
    anchor = head if side == "tail" else tail
    sources: tuple[KnowledgeGraph | Truths, ...] = (graph,) if others is None else (graph, others)
    lookups: list[Lookup] = [each.true_tails if side == "tail" else each.true_heads for each in sources]
    before = np.cumsum([0, *(len(lookup.values) for lookup in lookups)])
    spans = [lookup.spans(anchor, relation) for lookup in lookups]
    starts, stops = (
        np.stack([span[end] + offset for span, offset in zip(spans, before, strict=False)]) for end in (0, 1)
    )
    values = np.concatenate([lookup.values for lookup in lookups]) if others else lookups[0].values
    return values, starts, stops


def _rank_side(
    model: Model,
    encoded: Encoded,
    graph: KnowledgeGraph,
    triples: Ids,
    side: Side,
    places: Places,
    answers: Answers,
    counts: NDArray[np.int64],
) -> None:
    head, relation, tail = triples.T
    anchor, target = (head, tail) if side == "tail" else (tail, head)
    offered, num_common, place_of = places
    target_of = place_of[target]
    if (target_of < 0).any():
        raise DataError(
            f"{graph.name}: {(target_of < 0).sum()} of {len(target_of)} {side}s to rank are not candidates; "
            "offer every entity that a triple may have"
        )
    known, starts, stops = answers
    sign = np.float32(model.comparison.sign if model.has_query else 1)
    for block, query_of, compared in _blocks(model, encoded, anchor, relation, side, offered):
        out = np.empty((3, len(starts), len(block)), dtype=np.int64)
        spans = np.ascontiguousarray(starts[:, block]), np.ascontiguousarray(stops[:, block])
        count_better(sign, compared, num_common, query_of, target_of[block], known, *spans, place_of, *out)
        counts[:, :, block] = out


def _blocks(
    model: Model, encoded: Encoded, anchor: Ids, relation: Ids, side: Side, offered: Ids
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Floats]]:
    """Score each question (anchor, relation) once: the triples that ask it, the row of each, the rows."""
    width = len(encoded.entities)
    questions, inverse = np.unique(relation.astype(np.int64) * width + anchor, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    ends = np.searchsorted(inverse[order], np.arange(len(questions) + 1))
    stretches = _stretches if model.has_query else _scored_stretches
    for start, stop, compare in stretches(model, encoded, questions // width, side, offered):
        relations, anchors = np.divmod(questions[start:stop], width)
        h, r = encoded.entities[torch.from_numpy(anchors)], encoded.relations[torch.from_numpy(relations)]
        block = order[ends[start] : ends[stop]]
        yield block, inverse[block] - start, compare(h, r)


# The first and the last question of a run, and what compares its rows with those that are offered.
Stretch = tuple[int, int, Callable[[Tensor, Tensor], Floats]]


def _stretches(
    model: Model, encoded: Encoded, relations: NDArray[np.int64], side: Side, offered: Ids
) -> Iterator[Stretch]:
    """Runs of questions with one table of candidates; a model that projects has a table per relation."""
    size = max(2, _BLOCK // max(len(offered), 1))
    rows = padded(encoded.entities[torch.from_numpy(offered.astype(np.int64))])
    query = model.query_tail if side == "tail" else model.query_head
    bounds = [0, len(relations)]
    if model.projects:
        bounds = [0, *(np.flatnonzero(np.diff(relations)) + 1).tolist(), len(relations)]
    for low, high in pairwise(bounds):
        if low == high:
            continue
        seen_by = encoded.relations[relations[low] : relations[low] + 1]
        mapped = model.project(rows[None], seen_by)[0] if model.projects else rows
        table = Candidates(model.comparison, mapped, len(offered))

        def compare(h: Tensor, r: Tensor, table: Candidates = table) -> Floats:
            return table.compare(query(h, r).contiguous().numpy())

        for start in range(low, high, size):
            yield start, min(start + size, high), compare


def _scored_stretches(
    model: Model, encoded: Encoded, relations: NDArray[np.int64], side: Side, offered: Ids
) -> Iterator[Stretch]:
    """A few questions at a time, each candidate put into the model's own score."""
    rows = encoded.entities[torch.from_numpy(offered.astype(np.int64))]
    size = max(1, _BLOCK // max(rows.numel(), 1))

    def compare(h: Tensor, r: Tensor) -> Floats:
        h, r, c = h[:, None], r[:, None], rows[None]
        scores = model.score(h, r, c) if side == "tail" else model.score_head(c, r, h)
        compared: Floats = scores.contiguous().numpy()
        return compared

    for start in range(0, len(relations), size):
        yield start, min(start + size, len(relations)), compare
