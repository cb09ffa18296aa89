"""The candidates of a batch by the row that they name, and sums over them: each row is written once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedkge.client.arrays import Floats, Ids, Offsets
from fedkge.client.compiled import compiled

__all__ = ["Pairs", "add_rows", "divided_rows", "group", "in_order", "named_rows"]


class Pairs(NamedTuple):
    """A pair is one candidate of one triple; they are grouped by the table row that they name."""

    starts: Offsets  # (rows + 1,) the pairs of row i are starts[i]:starts[i + 1]
    places: Ids  # (p,) where the pair stands in the flat (batch, candidates) array
    owners: Ids  # (p,) the triple that the pair belongs to


def group(ids: Ids, num_rows: int) -> Pairs:
    """Group a (batch, candidates) array of row numbers by row; a negative number is no candidate."""
    starts = np.zeros(num_rows + 1, dtype=np.int64)
    places = np.empty(ids.size, dtype=np.int32)
    owners = np.empty(ids.size, dtype=np.int32)
    _group(ids.reshape(len(ids), -1), starts, places, owners)
    return Pairs(starts, places[: starts[-1]], owners[: starts[-1]])


def named_rows(first: Pairs, second: Pairs) -> Ids:
    """The rows that a pair of either group names, ascending."""
    rows = np.empty(min(len(first.places) + len(second.places), len(first.starts) - 1), dtype=np.int32)
    return rows[: _named_rows(first.starts, second.starts, rows)]


def divided_rows(first: Pairs, second: Pairs, dense: bool) -> tuple[Ids, Ids]:
    """The rows that no pair of the second group names, and those that one does, each ascending.

    `dense` asks for rows that neither group names too.
    """
    rows = np.empty(len(first.starts) - 1, dtype=np.int32)
    middle, stop = _divided_rows(first.starts, second.starts, dense, rows)
    return rows[:middle], rows[middle:stop]


@compiled
def _divided_rows(first: Offsets, second: Offsets, dense: bool, rows: Ids) -> tuple[int, int]:
    count = 0
    for row in range(rows.shape[0]):
        if second[row + 1] == second[row] and (dense or first[row + 1] > first[row]):
            rows[count] = row
            count += 1
    middle = count
    for row in range(rows.shape[0]):
        if second[row + 1] > second[row]:
            rows[count] = row
            count += 1
    return middle, count


@compiled
def _named_rows(first: Offsets, second: Offsets, rows: Ids) -> int:
    count = 0
    for row in range(first.shape[0] - 1):
        if first[row + 1] > first[row] or second[row + 1] > second[row]:
            rows[count] = row
            count += 1
    return count


@compiled
def _group(ids: Ids, starts: Offsets, places: Ids, owners: Ids) -> None:
    """A counting sort: stable, so that sums do not depend on anything but the batch."""
    num_rows = starts.shape[0] - 1
    flat = ids.ravel()
    for i in range(flat.shape[0]):
        if flat[i] >= 0:
            starts[flat[i] + 1] += 1
    for row in range(num_rows):
        starts[row + 1] += starts[row]
    width = ids.shape[1]
    for b in range(ids.shape[0]):
        for j in range(width):
            if ids[b, j] >= 0:
                place = starts[ids[b, j]]
                places[place] = b * width + j
                starts[ids[b, j]] = place + 1
    share = 1 / width
    for p in range(starts[num_rows - 1]):  # place // width, which is exact so and divides nothing
        owners[p] = np.int32((places[p] + 0.5) * share)
    for row in range(num_rows, 0, -1):  # filling moved each start to its stop
        starts[row] = starts[row - 1]
    starts[0] = 0


def in_order(values: Floats, pairs: Pairs) -> Floats:
    """A (batch, candidates) array in the order of the pairs."""
    out = np.empty(len(pairs.places), dtype=np.float32)
    _gather(values.ravel(), pairs.places, out)
    return out


@compiled
def _gather(values: Floats, places: Ids, out: Floats) -> None:
    for p in range(places.shape[0]):
        out[p] = values[places[p]]


@compiled
def add_rows(source: Floats, pairs: Pairs, rows: Ids, out: Floats) -> None:
    """out[i] += the source rows of every pair that names table row rows[i]."""
    starts, places, _ = pairs
    for i in range(rows.shape[0]):
        g = out[i]
        for p in range(starts[rows[i]], starts[rows[i] + 1]):
            s = source[places[p]]
            for k in range(g.shape[0]):
                g[k] += s[k]
