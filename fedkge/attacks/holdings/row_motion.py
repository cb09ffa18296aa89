"""How far a view's rows move in a round of training, which grows with the triples behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.view import UNKNOWN, Rows, Snapshot, View

__all__ = [
    "Motion",
    "masked_motion",
    "mean_motion",
    "motion_of_all",
    "motion_of_one",
    "motion_of_pseudonyms",
    "motions_of_each",
    "own_counts",
]

Names = NDArray[np.int64]
Values = NDArray[np.float64]

_PARTS = {
    "entity": ("gee", "lee"),
    "relation": ("gre", "lre"),
}  # of a snapshot: global, local


@dataclass(frozen=True, eq=False)
class Motion:
    """The largest change of any number of each row in any round seen."""

    names: Names  # (n,) of the rows, in the view's names; row numbers where they are pseudonyms
    largest: Values  # (n,)
    rounds: int


def motion_of_one(view: View, table: str, target: int) -> Motion | None:
    """A client's own steps: from the rows that it was sent to those that it uploaded."""
    whole, local = _PARTS[table]
    steps = [
        (getattr(before, whole), getattr(after, local).get(target)) for before, after in _consecutive(view)
    ]
    return _motion([(start, stop) for start, stop in steps if start is not None and stop is not None])


def motions_of_each(view: View, table: str) -> dict[int, Motion]:
    """Of every client whose uploads are seen, a colluder's too."""
    _, local = _PARTS[table]
    clients = sorted({client for shot in view.rounds for client in getattr(shot, local)})
    motions = {client: motion_of_one(view, table, client) for client in clients}
    return {client: motion for client, motion in motions.items() if motion is not None}


def mean_motion(motions: Sequence[Motion], names: Names) -> Values:
    """(n,) how far each name's row moved in the mean; where a client has no such row, nothing moved."""
    size = 1 + max(int(part.max(initial=0)) for part in (names, *(motion.names for motion in motions)))
    total = np.zeros(size)
    for motion in motions:
        total[motion.names] += motion.largest
    mean: Values = total[names] / max(len(motions), 1)
    return mean


def motion_of_all(view: View, table: str) -> Motion | None:
    """From broadcast to broadcast; where holders are counted, the sum over clients and not the mean."""
    whole, _ = _PARTS[table]
    steps = [(getattr(before, whole), getattr(after, whole)) for before, after in _consecutive(view)]
    motion = _motion([(start, stop) for start, stop in steps if start is not None and stop is not None])
    if motion is None or table not in view.holders:
        return motion
    return Motion(motion.names, motion.largest * view.holders[table][motion.names], motion.rounds)


def motion_of_pseudonyms(view: View, table: str) -> Motion | None:
    """What a server sees of rows that it cannot name, by their numbers."""
    if table not in view.movement:
        return None
    movement = view.movement[table]
    largest = np.abs(movement.steps).max(axis=(0, 2), initial=0.0) * movement.holders
    return Motion(movement.ids, largest.astype(np.float64), len(movement.rounds))


def masked_motion(view: View, table: str, target: int) -> Motion | None:
    """A masked vector read as if it were a step; None if no row of it has a name."""
    _, local = _PARTS[table]
    vectors = [getattr(shot, local)[target] for shot in view.rounds if target in getattr(shot, local)]
    if not vectors:
        return None
    named = np.flatnonzero(vectors[0].names != UNKNOWN)
    if not len(named):
        return None
    largest = np.max([np.abs(rows.values[named]).max(axis=1) for rows in vectors], axis=0)
    return Motion(vectors[0].names[named], largest.astype(np.float64), len(vectors))


def own_counts(view: View, table: str, names: Names) -> Values:
    """(n,) in how many of the triples that colluders handed over each name occurs."""
    triples = [np.empty((0, 3), dtype=np.int64), *(handed.triples for handed in view.handed)]
    columns = np.concatenate(triples)[:, [1] if table == "relation" else [0, 2]]
    counts = np.bincount(columns.ravel(), minlength=int(names.max(initial=0)) + 1)
    return counts[names].astype(np.float64)


def _consecutive(view: View) -> Iterator[tuple[Snapshot, Snapshot]]:
    for before, after in pairwise(view.rounds):
        if after.round == before.round + 1:
            yield before, after


def _motion(steps: list[tuple[Rows, Rows]]) -> Motion | None:
    """Over the rows that the first step has; rows of another round may stand in another order."""
    if not steps:
        return None
    names = steps[0][1].names
    largest = np.zeros(len(names))
    for start, stop in steps:
        rows, before = stop.rows_of(names), start.rows_of(names)
        there = np.flatnonzero((rows != UNKNOWN) & (before != UNKNOWN))
        change = stop.values[rows[there]] - start.values[before[there]]
        largest[there] = np.maximum(largest[there], np.abs(change).max(axis=1, initial=0.0))
    return Motion(names, largest, len(steps))
