"""Blocks of queries against every candidate, for ranking.

Candidates are stored by column, so that a vector register holds eight of them and every candidate is summed
in the same order: equal rows get equal scores, wherever they stand.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedkge.client.kernels.arrays import Floats, Ids, Offsets
from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.kernels.compiled import compiled

__all__ = ["Candidates", "count_better", "padded"]

_TILE = 256  # candidates whose columns stay in the cache while all queries of a block pass
_LANES = 64
_L1, _L2 = int(Comparison.L1), int(Comparison.L2)


def padded(rows: Tensor) -> Tensor:
    """Rows, then zeros up to a whole number of groups: libraries sum an incomplete group in another order."""
    missing = -len(rows) % _LANES
    return torch.cat([rows, rows.new_zeros(missing, rows.shape[1])])


class Candidates:
    """The first `count` of padded rows, ready to be compared with blocks of queries."""

    def __init__(self, comparison: Comparison, rows: Tensor, count: int) -> None:
        self.comparison = comparison
        self.count = count
        self.columns: Floats = rows.T.contiguous().numpy()  # (w, c)

    def compare(self, queries: Floats) -> Floats:
        """(b, c): dot products, or distances, the L2 ones squared, since only their order counts."""
        if self.comparison is Comparison.DOT:
            product: Floats = torch.mm(torch.from_numpy(queries), torch.from_numpy(self.columns)).numpy()
            return product[:, : self.count]
        whole = -(-len(queries) // 2) * 2  # queries go in twos
        paired = np.zeros((whole, queries.shape[1]), dtype=np.float32)
        paired[: len(queries)] = queries
        out = np.zeros((whole, self.columns.shape[1]), dtype=np.float32)
        _distances(int(self.comparison), paired, self.columns, out)
        return out[: len(queries), : self.count]


@compiled
def _distances(kind: int, queries: Floats, columns: Floats, out: Floats) -> None:
    for start in range(0, columns.shape[1], _TILE):
        stop = min(start + _TILE, columns.shape[1])
        for b in range(0, queries.shape[0], 2):
            p, q = out[b, start:stop], out[b + 1, start:stop]
            if kind in (_L1, _L2):
                _differences(kind, queries[b], queries[b + 1], columns, start, p, q)
            else:
                _moduli(queries[b], columns, start, p)
                _moduli(queries[b + 1], columns, start, q)


@compiled
def _differences(
    kind: int, first: Floats, second: Floats, columns: Floats, start: int, p: Floats, q: Floats
) -> None:
    """Two queries and two columns at a time: each column is loaded once for both."""
    stop = start + p.shape[0]
    width = first.shape[0]
    for k in range(0, width - 1, 2):
        a, b, c, d = first[k], first[k + 1], second[k], second[k + 1]
        x, y = columns[k, start:stop], columns[k + 1, start:stop]
        if kind == _L1:
            for i in range(p.shape[0]):
                p[i] += abs(a - x[i]) + abs(b - y[i])
                q[i] += abs(c - x[i]) + abs(d - y[i])
        else:
            for i in range(p.shape[0]):
                p[i] += (a - x[i]) * (a - x[i]) + (b - y[i]) * (b - y[i])
                q[i] += (c - x[i]) * (c - x[i]) + (d - y[i]) * (d - y[i])
    if width % 2:
        a, c = first[width - 1], second[width - 1]
        x = columns[width - 1, start:stop]
        for i in range(p.shape[0]):
            p[i] += abs(a - x[i]) if kind == _L1 else (a - x[i]) * (a - x[i])
            q[i] += abs(c - x[i]) if kind == _L1 else (c - x[i]) * (c - x[i])


@compiled
def _moduli(query: Floats, columns: Floats, start: int, out: Floats) -> None:
    half = query.shape[0] // 2
    stop = start + out.shape[0]
    for k in range(half):
        a, b = query[k], query[half + k]
        x, y = columns[k, start:stop], columns[half + k, start:stop]
        for i in range(out.shape[0]):
            u = a - x[i]
            v = b - y[i]
            out[i] += np.sqrt(u * u + v * v)


@compiled
def count_better(
    sign: np.float32,
    compared: Floats,
    num_common: int,
    query_of: Offsets,
    target_of: Ids,
    known: Ids,
    starts: Offsets,
    stops: Offsets,
    place_of: Ids,
    better: Offsets,
    equal: Offsets,
    candidates: Offsets,
) -> None:
    """How many candidates beat or equal each target, the other known answers left out.

    Row query_of[i] of `compared` holds the scores for target i, and the target's own is read from it too: a
    score computed apart differs in the last bit, and the rank by one. A broken score counts as better.
    Columns from `num_common` on are candidates of the questions that they are the target of, and of no other.

    A filter f leaves out known[starts[f, i]:stops[f, i]] and what the filters before it leave out, which must
    be other answers; what remains is counted in row f of (filters, n). All scores are read once.
    """
    for i in range(target_of.shape[0]):
        row = compared[query_of[i]]
        bar = sign * row[target_of[i]]
        worse, same = _count(sign, row[:num_common], bar)
        left = num_common
        if target_of[i] >= num_common:
            left += 1
            same += bar == bar  # which a broken score is not
        for f in range(starts.shape[0]):
            for p in range(starts[f, i], stops[f, i]):
                c = place_of[known[p]]
                if 0 <= c < num_common and c != target_of[i]:
                    left -= 1
                    worse -= sign * row[c] < bar
                    same -= sign * row[c] == bar
            candidates[f, i] = left
            better[f, i] = left - worse - same
            equal[f, i] = max(same - 1, 0)  # the target equals itself
            if same == 0:  # the target's own score is broken: it is last
                better[f, i] = left - 1


@compiled
def _count(sign: np.float32, row: Floats, bar: np.float32) -> tuple[int, int]:
    worse = np.int32(0)  # as wide as a score, so that eight are counted at once
    same = np.int32(0)
    for c in range(row.shape[0]):
        worse += np.int32(sign * row[c] < bar)
        same += np.int32(sign * row[c] == bar)
    return int(worse), int(same)
