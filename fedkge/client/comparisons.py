"""How a query is compared with candidate rows: dot product, L1, L2, complex modulus.

Kernels walk the candidates entity by entity: a row is read once from the table, and the queries of a batch,
which fit in the cache, are gathered instead. Rows are passed as an array and a number, because a view of a
row costs as much as a third of the work on it.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from fedkge.client.arrays import Floats, Ids
from fedkge.client.compiled import compiled
from fedkge.client.pairs import Pairs

__all__ = [
    "Comparison",
    "candidate_gradients",
    "compare",
    "compare_pairs",
    "length",
    "query_gradients",
]

_ZERO = np.float32(0)
_WIDE = 128  # the candidates of one triple fill the cache if their rows are longer than this
_TINY = np.float32(1e-30)  # keeps 0 / 0 away, and changes no other float32


class Comparison(IntEnum):
    """What relates a query to a candidate; all but DOT are distances."""

    DOT = 0
    L1 = 1
    L2 = 2
    MODULUS = 3

    @property
    def sign(self) -> float:
        """A score grows with a dot product and shrinks with a distance."""
        return 1.0 if self is Comparison.DOT else -1.0


_DOT, _L1, _L2, _MODULUS = (int(kind) for kind in Comparison)


def compare(kind: Comparison, query: Tensor, candidate: Tensor) -> Tensor:
    """The comparison in torch, over the last dimension."""
    if kind is Comparison.DOT:
        return (query * candidate).sum(-1)
    difference = query - candidate
    if kind is Comparison.L1:
        return difference.abs().sum(-1)
    if kind is Comparison.L2:
        return length(difference, 2)
    parts = torch.stack(difference.chunk(2, dim=-1), dim=-1)  # (..., d, 2) real, imaginary
    return length(parts, 2).sum(-1)


def length(x: Tensor, norm: int) -> Tensor:
    """The L1 or L2 norm over the last dimension."""
    lengths: Tensor = torch.linalg.vector_norm(x, ord=norm, dim=-1)
    return lengths


@compiled
def compare_pairs(kind: int, queries: Floats, table: Floats, pairs: Pairs, out: Floats) -> None:
    """out.ravel()[places[p]] = comparison of queries[owners[p]] with the row that pair p belongs to."""
    starts, places, owners = pairs
    flat = out.ravel()
    for row in range(table.shape[0]):
        start, stop = starts[row], starts[row + 1]
        whole = stop - (stop - start) % 4
        for p in range(start, whole, 4):
            a, b, c, d = owners[p], owners[p + 1], owners[p + 2], owners[p + 3]
            four = _compare_four(kind, table, row, queries, a, b, c, d)
            flat[places[p]], flat[places[p + 1]], flat[places[p + 2]], flat[places[p + 3]] = four
        for p in range(whole, stop):
            flat[places[p]] = _compare_one(kind, table, row, queries, owners[p])


@compiled
def _compare_four(
    kind: int, table: Floats, row: int, others: Floats, a: int, b: int, c: int, d: int
) -> tuple[np.float32, np.float32, np.float32, np.float32]:
    """One row against four: it is loaded once, and four sums hide each other's latency."""
    sa = sb = sc = sd = _ZERO
    if kind == _DOT:
        for k in range(table.shape[1]):
            t = table[row, k]
            sa += others[a, k] * t
            sb += others[b, k] * t
            sc += others[c, k] * t
            sd += others[d, k] * t
    elif kind == _L1:
        for k in range(table.shape[1]):
            t = table[row, k]
            sa += abs(others[a, k] - t)
            sb += abs(others[b, k] - t)
            sc += abs(others[c, k] - t)
            sd += abs(others[d, k] - t)
    else:
        sa = _compare_one(kind, table, row, others, a)
        sb = _compare_one(kind, table, row, others, b)
        sc = _compare_one(kind, table, row, others, c)
        sd = _compare_one(kind, table, row, others, d)
    return sa, sb, sc, sd


@compiled
def _compare_one(kind: int, table: Floats, row: int, others: Floats, a: int) -> np.float32:
    total = _ZERO
    if kind == _DOT:
        for k in range(table.shape[1]):
            total += others[a, k] * table[row, k]
    elif kind == _L1:
        for k in range(table.shape[1]):
            total += abs(others[a, k] - table[row, k])
    elif kind == _L2:
        for k in range(table.shape[1]):
            x = others[a, k] - table[row, k]
            total += x * x
        total = np.sqrt(total)
    else:
        half = table.shape[1] // 2
        for k in range(half):
            x = others[a, k] - table[row, k]
            y = others[a, half + k] - table[row, half + k]
            total += np.sqrt(x * x + y * y)
    return total


@compiled
def query_gradients(
    kind: int,
    queries: Floats,
    table: Floats,
    candidates: Ids,
    coefficients: Floats,
    pairs: Pairs,
    out: Floats,
) -> None:
    """out[b] = Σ_j coefficients[b, j] · ∂comparison / ∂query."""
    ids, weights = candidates.ravel(), coefficients.ravel()
    n = candidates.shape[1]
    if queries.shape[1] > _WIDE:
        _query_gradients_by_entity(kind, queries, table, weights, pairs, out)
    else:
        for b in range(queries.shape[0]):
            _gradient(kind, queries, b, table, ids, weights, b * n, (b + 1) * n, out, b)


@compiled
def candidate_gradients(
    kind: int, queries: Floats, table: Floats, coefficients: Floats, pairs: Pairs, rows: Ids, out: Floats
) -> None:
    """out[i] = Σ over the pairs of table row rows[i] of their coefficient · ∂comparison / ∂row.

    `coefficients` are in the order of the pairs.
    """
    starts, _, owners = pairs
    for i in range(rows.shape[0]):
        start, stop = starts[rows[i]], starts[rows[i] + 1]
        # Every comparison is symmetric: the same gradient serves the other side.
        _gradient(kind, table, rows[i], queries, owners, coefficients, start, stop, out, i)


@compiled
def _gradient(
    kind: int,
    centres: Floats,
    row: int,
    others: Floats,
    ids: Ids,
    weights: Floats,
    start: int,
    stop: int,
    out: Floats,
    i: int,
) -> None:
    """out[i] = Σ weights[p] · ∂comparison(centres[row], others[ids[p]]) / ∂centre for p in start:stop."""
    for k in range(out.shape[1]):
        out[i, k] = _ZERO
    if kind == _MODULUS:
        for p in range(start, stop):
            _add_modulus(centres, row, others, ids[p], weights[p], out, i)
        return  # nothing remains to be finished
    eights = stop - (stop - start) % 8
    for p in range(start, eights, 8):
        _add_eight(kind, centres, row, others, ids, weights, p, out, i)
    whole = stop - (stop - eights) % 4
    for p in range(eights, whole, 4):
        _add_four(kind, centres, row, others, ids, weights, p, out, i)
    for p in range(whole, stop):
        _add_one(kind, centres, row, others, ids[p], weights[p], out, i)
    _finish(kind, centres, row, weights, start, stop, out, i)


@compiled
def _finish(
    kind: int, centres: Floats, row: int, weights: Floats, start: int, stop: int, out: Floats, i: int
) -> None:
    """What remains to be done once for all pairs of a centre."""
    total = _ZERO
    for p in range(start, stop):
        total += weights[p]
    if kind == _L1:  # sign(x) = 2·[x > 0] − 1; where x is exactly 0 this is a subgradient
        for k in range(out.shape[1]):
            out[i, k] = 2 * out[i, k] - total
    elif kind == _L2:  # the weights are already divided by the distance
        for k in range(out.shape[1]):
            out[i, k] = total * centres[row, k] - out[i, k]


@compiled
def _add_eight(
    kind: int,
    centres: Floats,
    row: int,
    others: Floats,
    ids: Ids,
    weights: Floats,
    p: int,
    out: Floats,
    i: int,
) -> None:
    """As `_add_four`, with half as many loops to enter and leave."""
    a, b, c, d = ids[p], ids[p + 1], ids[p + 2], ids[p + 3]
    e, f, g, h = ids[p + 4], ids[p + 5], ids[p + 6], ids[p + 7]
    wa, wb, wc, wd = weights[p], weights[p + 1], weights[p + 2], weights[p + 3]
    we, wf, wg, wh = weights[p + 4], weights[p + 5], weights[p + 6], weights[p + 7]
    if kind == _L1:
        for k in range(out.shape[1]):
            x = centres[row, k]
            left = (wa if x > others[a, k] else _ZERO) + (wb if x > others[b, k] else _ZERO)
            right = (wc if x > others[c, k] else _ZERO) + (wd if x > others[d, k] else _ZERO)
            left += (we if x > others[e, k] else _ZERO) + (wf if x > others[f, k] else _ZERO)
            right += (wg if x > others[g, k] else _ZERO) + (wh if x > others[h, k] else _ZERO)
            out[i, k] += left + right
    else:
        for k in range(out.shape[1]):
            left = (wa * others[a, k] + wb * others[b, k]) + (wc * others[c, k] + wd * others[d, k])
            right = (we * others[e, k] + wf * others[f, k]) + (wg * others[g, k] + wh * others[h, k])
            out[i, k] += left + right


@compiled
def _add_four(
    kind: int,
    centres: Floats,
    row: int,
    others: Floats,
    ids: Ids,
    weights: Floats,
    p: int,
    out: Floats,
    i: int,
) -> None:
    """out[i] += Σ w·other, or for L1 the weights of those below the centre; by four, to touch it less."""
    a, b, c, d = ids[p], ids[p + 1], ids[p + 2], ids[p + 3]
    wa, wb, wc, wd = weights[p], weights[p + 1], weights[p + 2], weights[p + 3]
    if kind == _L1:
        for k in range(out.shape[1]):
            x = centres[row, k]
            left = (wa if x > others[a, k] else _ZERO) + (wb if x > others[b, k] else _ZERO)
            right = (wc if x > others[c, k] else _ZERO) + (wd if x > others[d, k] else _ZERO)
            out[i, k] += left + right
    else:
        for k in range(out.shape[1]):
            out[i, k] += (wa * others[a, k] + wb * others[b, k]) + (wc * others[c, k] + wd * others[d, k])


@compiled
def _add_one(
    kind: int, centres: Floats, row: int, others: Floats, a: int, w: np.float32, out: Floats, i: int
) -> None:
    if kind == _L1:
        for k in range(out.shape[1]):
            out[i, k] += w if centres[row, k] > others[a, k] else _ZERO
    else:
        for k in range(out.shape[1]):
            out[i, k] += w * others[a, k]


@compiled
def _add_modulus(
    centres: Floats, row: int, others: Floats, a: int, w: np.float32, out: Floats, i: int
) -> None:
    """out[i] += w · ∂ Σ|centre − other| / ∂centre."""
    half = out.shape[1] // 2
    for k in range(half):
        x = centres[row, k] - others[a, k]
        y = centres[row, half + k] - others[a, half + k]
        s = w / np.sqrt(x * x + y * y + _TINY)
        out[i, k] += s * x
        out[i, half + k] += s * y


@compiled
def _query_gradients_by_entity(
    kind: int, queries: Floats, table: Floats, weights: Floats, pairs: Pairs, out: Floats
) -> None:
    starts, places, owners = pairs
    out[:] = 0
    for row in range(table.shape[0]):
        for p in range(starts[row], starts[row + 1]):
            b = owners[p]
            if kind == _MODULUS:
                _add_modulus(queries, b, table, row, weights[places[p]], out, b)
            else:
                _add_one(kind, queries, b, table, row, weights[places[p]], out, b)
    n = weights.shape[0] // queries.shape[0]
    for b in range(queries.shape[0]):
        _finish(kind, queries, b, weights, b * n, (b + 1) * n, out, b)
