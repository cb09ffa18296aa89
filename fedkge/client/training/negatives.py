"""Candidates for every triple of a batch: its own entity first, then entities drawn from the client's.

Known answers are left out exactly, and every entity that is left is equally likely: a draw that hits a known
one is drawn again; where most are known, a draw is a number among the *others*, counted past the sorted known
ones. Only train triples are known here: a sampler that avoided test triples would be told the answers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats, Ids, Offsets
from fedkge.client.kernels.compiled import compiled
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.lookup import Lookup
from fedkge.errors import SettingError
from fedkge.experiment import TrainingSettings

__all__ = ["Batch", "NegativeSampler", "head_shares"]


class Batch(NamedTuple):
    """Triples with their candidates: first those whose tail is replaced, then those whose head is."""

    anchors: Ids  # (b,) the entity that stays: the head where the tail is replaced
    relations: Ids  # (b,)
    candidates: Ids  # (b, 1 + n) column 0 is the true entity, −1 is no candidate
    num_tails: int  # how many triples have their tail replaced
    shared: Ids | None = (
        None  # (n,) the negatives before known answers are struck out, if all triples share them
    )


class NegativeSampler:
    """Draws negatives for the train triples of one graph; `counted` is the graph whose counts may be used."""

    def __init__(
        self, graph: KnowledgeGraph, settings: TrainingSettings, counted: KnowledgeGraph | None = None
    ) -> None:
        self.triples = graph.train
        self.num_entities = graph.num_entities
        self.num_negatives = settings.negatives
        self.filtered = settings.filter_negatives
        self.shared = settings.shared_negatives
        self.replace_head = _replace_head(graph, settings, counted or graph)  # (n,) probability
        head, relation, tail = graph.train.T
        tails = Lookup.build(head, relation, tail, graph.num_relations)
        heads = Lookup.build(tail, relation, head, graph.num_relations)
        self.known = np.concatenate([tails.values, heads.values])
        tail_starts, tail_stops = tails.spans(head, relation)
        head_starts, head_stops = heads.spans(tail, relation)
        shift = len(tails.values)
        self.starts = np.stack([tail_starts, head_starts + shift])  # (2, n) where the known answers are
        self.stops = np.stack([tail_stops, head_stops + shift])

    def batch(self, places: NDArray[np.int64], rng: np.random.Generator) -> Batch:
        """The train triples at those places, each with its own negatives (or all with the same)."""
        chances = rng.random(len(places), dtype=np.float32)
        anchors, relations = np.empty((2, len(places)), dtype=np.int32)
        starts, stops = np.empty((2, len(places)), dtype=np.int64)
        candidates = np.empty((len(places), 1 + self.num_negatives), dtype=np.int32)
        rows = (self.triples, self.replace_head, self.starts, self.stops)
        num_tails = _arrange(places, chances, *rows, anchors, relations, candidates, starts, stops)
        if not self.filtered:
            stops = starts
        shared = None
        if self.shared:
            shared = rng.integers(0, self.num_entities, self.num_negatives, dtype=np.int32)
            candidates[:, 1:] = shared
            _strike_out(self.known, starts, stops, candidates)
        else:
            seed = rng.integers(0, 2**64, dtype=np.uint64)
            _draw(seed, self.num_entities, self.known, starts, stops, candidates)
        return Batch(anchors, relations, candidates, num_tails, shared)


def head_shares(graph: KnowledgeGraph) -> Floats:
    """How often a relation's heads are replaced: tails per head over both (Wang et al., 2014).

    A half where there is no triple to count.
    """
    head, relation, tail = graph.train.T
    count = np.bincount(relation, minlength=graph.num_relations)
    tails_per_head = count / np.maximum(_distinct(relation, head, graph), 1)
    heads_per_tail = count / np.maximum(_distinct(relation, tail, graph), 1)
    share = np.where(count > 0, tails_per_head / np.maximum(tails_per_head + heads_per_tail, 1e-9), 0.5)
    return share.astype(np.float32)


def _distinct(relation: Ids, entity: Ids, graph: KnowledgeGraph) -> NDArray[np.int64]:
    """How many distinct entities each relation has in that column."""
    pairs = np.unique(relation.astype(np.int64) * graph.num_entities + entity)
    return np.bincount(pairs // graph.num_entities, minlength=graph.num_relations)


def _replace_head(graph: KnowledgeGraph, settings: TrainingSettings, counted: KnowledgeGraph) -> Floats:
    if settings.sampler == "bernoulli" and settings.corrupt != "both":
        raise SettingError(
            'training.sampler: "bernoulli" chooses between head and tail; set training.corrupt = "both"'
        )
    if settings.corrupt != "both":
        return np.full(len(graph.train), settings.corrupt == "head", dtype=np.float32)
    if settings.sampler == "bernoulli":
        shares: Floats = head_shares(counted)[graph.train[:, 1]]
        return shares
    return np.full(len(graph.train), 0.5, dtype=np.float32)


@compiled
def _arrange(
    places: Offsets,
    chances: Floats,
    triples: Ids,
    replace_head: Floats,
    all_starts: Offsets,
    all_stops: Offsets,
    anchors: Ids,
    relations: Ids,
    candidates: Ids,
    starts: Offsets,
    stops: Offsets,
) -> int:
    """Write the triples whose tail is replaced, then those whose head is; return how many the first are."""
    i = num_tails = 0
    for side in range(2):
        for b in range(places.shape[0]):
            place = places[b]
            if int(chances[b] < replace_head[place]) == side:
                anchors[i], relations[i] = triples[place, 2 * side], triples[place, 1]
                candidates[i, 0] = triples[place, 2 - 2 * side]
                starts[i], stops[i] = all_starts[side, place], all_stops[side, place]
                i += 1
        if side == 0:
            num_tails = i
    return num_tails


@compiled
def _draw(seed: np.uint64, bound: int, known: Ids, starts: Offsets, stops: Offsets, out: Ids) -> None:
    """Fill out[:, 1:] with entities that are not among known[start:stop]."""
    state = seed
    marked = np.zeros(bound, dtype=np.uint8)
    for b in range(out.shape[0]):
        answers = known[starts[b] : stops[b]]
        free = bound - answers.shape[0]
        if 2 * free >= bound:
            for i in range(answers.shape[0]):
                marked[answers[i]] = 1
            state = _unmarked(state, marked, out[b, 1:])
            for i in range(answers.shape[0]):
                marked[answers[i]] = 0
        elif free > 0:
            state = _ranks(state, np.uint64(free), out[b, 1:])
            for j in range(1, out.shape[1]):
                out[b, j] += _before(answers, out[b, j])
        else:
            out[b, 1:] = -1


@compiled
def _unmarked(state: np.uint64, marked: NDArray[np.uint8], out: Ids) -> np.uint64:
    """As `_ranks`, until none is marked; at least half of all are not."""
    span = np.uint64(marked.shape[0])
    unfair = (np.uint64(1) << np.uint64(32)) % span
    j = 0
    while j < out.shape[0]:
        state += np.uint64(0x9E3779B97F4A7C15)
        product = (_mixed(state) >> np.uint64(32)) * span
        entity = np.int32(product >> np.uint64(32))
        out[j] = entity
        j += int((product & np.uint64(0xFFFFFFFF)) >= unfair) & int(marked[entity] == 0)
    return state


@compiled
def _mixed(state: np.uint64) -> np.uint64:
    z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def _ranks(state: np.uint64, span: np.uint64, out: Ids) -> np.uint64:
    """Uniform numbers below span, by splitmix64 (Steele et al., 2014) and fair scaling (Lemire, 2019)."""
    unfair = (np.uint64(1) << np.uint64(32)) % span
    j = 0
    while j < out.shape[0]:
        state += np.uint64(0x9E3779B97F4A7C15)
        product = (_mixed(state) >> np.uint64(32)) * span
        out[j] = np.int32(product >> np.uint64(32))
        j += int((product & np.uint64(0xFFFFFFFF)) >= unfair)  # else draw again
    return state


@compiled
def _before(answers: Ids, rank: int) -> int:
    """How many answers come before the entity with that rank among the others."""
    low, high = 0, answers.shape[0]
    while low < high:
        middle = (low + high) // 2
        if answers[middle] - middle <= rank:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _strike_out(known: Ids, starts: Offsets, stops: Offsets, out: Ids) -> None:
    """Set the known answers among out[:, 1:] to −1."""
    for b in range(out.shape[0]):
        for j in range(1, out.shape[1]):
            place = starts[b] + np.searchsorted(known[starts[b] : stops[b]], out[b, j])
            if place < stops[b] and known[place] == out[b, j]:
                out[b, j] = -1
