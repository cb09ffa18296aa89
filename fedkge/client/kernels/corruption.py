"""Batches of triples, and the loops that draw the entities which corrupt them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats, Ids, Offsets
from fedkge.client.kernels.compiled import compiled

__all__ = ["Batch", "arrange", "draw", "strike_out"]


class Batch(NamedTuple):
    """Triples with their candidates: first those whose tail is replaced, then those whose head is."""

    anchors: Ids  # (b,) the entity that stays: the head where the tail is replaced
    relations: Ids  # (b,)
    candidates: Ids  # (b, 1 + n) column 0 is the true entity, −1 is no candidate
    num_tails: int  # how many triples have their tail replaced
    shared: Ids | None = (
        None  # (n,) the negatives before known answers are struck out, if all triples share them
    )

    def part(self, start: int, stop: int) -> Batch:
        """Some of its triples, those whose tail is replaced still first."""
        part = slice(start, stop)
        tails = min(max(self.num_tails - start, 0), len(self.anchors[part]))
        return Batch(
            self.anchors[part],
            self.relations[part],
            np.ascontiguousarray(self.candidates[part]),
            tails,
            self.shared,
        )


@compiled
def arrange(
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
def draw(seed: np.uint64, bound: int, known: Ids, starts: Offsets, stops: Offsets, out: Ids) -> None:
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
def strike_out(known: Ids, starts: Offsets, stops: Offsets, out: Ids) -> None:
    """Set the known answers among out[:, 1:] to −1."""
    for b in range(out.shape[0]):
        for j in range(1, out.shape[1]):
            place = starts[b] + np.searchsorted(known[starts[b] : stops[b]], out[b, j])
            if place < stops[b] and known[place] == out[b, j]:
                out[b, j] = -1
