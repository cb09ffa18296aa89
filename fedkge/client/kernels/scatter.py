"""The candidates of a batch by the row that they name, and sums over them: each row is written once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedkge.client.kernels.arrays import Doubles, Floats, Ids, Offsets
from fedkge.client.kernels.compiled import compiled

__all__ = [
    "Pairs",
    "add_rows",
    "add_whole",
    "crowded_rows",
    "divided_rows",
    "group",
    "in_order",
    "named_rows",
    "square",
    "sum_rows",
    "take_rows",
]


class Pairs(NamedTuple):
    """A pair is one candidate of one triple; they are grouped by the table row that they name."""

    starts: Offsets  # (rows + 1,) the pairs of row i are starts[i]:starts[i + 1]
    places: Ids  # (p,) where the pair stands in the flat (batch, candidates) array
    owners: Ids  # (p,) the triple that the pair belongs to


@compiled
def group(ids: Ids, num_rows: int) -> Pairs:
    """Group a (batch,) or (batch, candidates) array of row numbers by row; a negative number is no candidate.

    A counting sort: stable, so that sums do not depend on anything but the batch.
    """
    starts = np.zeros(num_rows + 1, dtype=np.int64)
    places = np.empty(ids.size, dtype=np.int32)
    owners = np.empty(ids.size, dtype=np.int32)
    flat = ids.ravel()
    for i in range(flat.shape[0]):
        if flat[i] >= 0:
            starts[flat[i] + 1] += 1
    for row in range(num_rows):
        starts[row + 1] += starts[row]
    for i in range(flat.shape[0]):
        if flat[i] >= 0:
            place = starts[flat[i]]
            places[place] = i
            starts[flat[i]] = place + 1
    count = starts[num_rows - 1] if num_rows > 0 else 0
    share = len(ids) / max(ids.size, 1)
    for p in range(count):  # place // width, which is exact so and divides nothing
        owners[p] = np.int32((places[p] + 0.5) * share)
    for row in range(num_rows, 0, -1):  # filling moved each start to its stop
        starts[row] = starts[row - 1]
    starts[0] = 0
    return Pairs(starts, places[:count], owners[:count])


@compiled
def named_rows(first: Pairs, second: Pairs) -> Ids:
    """The rows that a pair of either group names, ascending."""
    rows = np.empty(len(first.starts) - 1, dtype=np.int32)
    count = 0
    for row in range(
        rows.shape[0]
    ):  # written always, and kept if named: a branch would often be mispredicted
        rows[count] = row
        count += int(first.starts[row + 1] - first.starts[row] + second.starts[row + 1] > second.starts[row])
    return rows[:count]


@compiled
def divided_rows(first: Pairs, second: Pairs, dense: bool) -> tuple[Ids, Ids]:
    """The rows that no pair of the second group names, and those that one does, each ascending.

    `dense` asks for rows that neither group names too.
    """
    rows = np.empty(len(first.starts), dtype=np.int32)
    count = 0
    for row in range(rows.shape[0] - 1):
        free, wanted = second.starts[row + 1] == second.starts[row], first.starts[row + 1] > first.starts[row]
        rows[count] = row
        count += int(free) & (int(wanted) | int(dense))
    middle = count
    for row in range(rows.shape[0] - 1):
        rows[count] = row
        count += int(second.starts[row + 1] > second.starts[row])
    return rows[:middle], rows[middle:count]


@compiled
def in_order(values: Floats, pairs: Pairs) -> Floats:
    """A (batch, candidates) array in the order of the pairs."""
    flat = values.ravel()
    out = np.empty(len(pairs.places), dtype=np.float32)
    for p in range(out.shape[0]):
        out[p] = flat[pairs.places[p]]
    return out


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


@compiled
def crowded_rows(first: Pairs, second: Pairs, rows: Ids, most: int) -> Ids:
    """The places in `rows` of those that more than `most` pairs of the two groups name."""
    found = np.empty(len(rows), dtype=np.int32)
    count = 0
    for i in range(len(rows)):
        row = rows[i]
        named = first.starts[row + 1] - first.starts[row] + second.starts[row + 1] - second.starts[row]
        found[count] = i
        count += int(named > most)
    return found[:count]


@compiled
def sum_rows(source: Floats, pairs: Pairs, rows: Ids, out: Doubles) -> None:
    """As `add_rows`, in double precision: what one pair adds does not depend on how many there are."""
    starts, places, _ = pairs
    for i in range(rows.shape[0]):
        for p in range(starts[rows[i]], starts[rows[i] + 1]):
            for k in range(out.shape[1]):
                out[i, k] += source[places[p], k]


@compiled
def take_rows(table: Floats, rows: Ids) -> Floats:
    """table[rows], which numba would copy number by number."""
    out = np.empty((len(rows), table.shape[1]), dtype=np.float32)
    for i in range(out.shape[0]):
        row = rows[i]
        for k in range(out.shape[1]):
            out[i, k] = table[row, k]
    return out


@compiled
def square(rows: Floats) -> float:
    """The sum of the squares of all numbers, in double precision."""
    total = 0.0
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            total += np.float64(rows[i, k]) * np.float64(rows[i, k])
    return total


@compiled
def add_whole(source: Floats, scale: float, rows: Ids, out: Doubles) -> None:
    """out[rows[i]] += the whole part of scale · source[i]: exact as long as sums stay below 2⁵³."""
    for i in range(rows.shape[0]):
        row = rows[i]
        for k in range(source.shape[1]):
            out[row, k] += np.trunc(scale * np.float64(source[i, k]))
