"""How a query is compared with candidate rows: dot product, L1, L2, complex modulus.

Scores and gradients of candidates walk entity by entity: a row is read once from the table, and the queries
of a batch, which fit in the cache, are gathered instead. A gradient is summed in registers, some columns at a
time. Rows are passed as an array and a number, because a view of a row costs as much as a third of the work.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from fedkge.client.arrays import Floats, Ids, Offsets
from fedkge.client.compiled import compiled, inlined
from fedkge.client.lanes import LANES, Lanes, choose, every, load, magnitude, root, store, total
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
_CACHED = 2**16  # floats of a table that stay in the cache beside other things
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


def compare_pairs(kind: int, queries: Floats, table: Floats, pairs: Pairs, out: Floats) -> None:
    """out.ravel()[places[p]] = comparison of queries[owners[p]] with the row that pair p belongs to."""
    _COMPARE[kind](queries, table, pairs, out.ravel())


def query_gradients(
    kind: int, queries: Floats, table: Floats, candidates: Ids, coefficients: Floats, out: Floats
) -> None:
    """out[b] = Σ_j coefficients[b, j] · ∂comparison / ∂query."""
    _AT_QUERIES[kind](queries, table, candidates, coefficients, out)


def candidate_gradients(
    kind: int, queries: Floats, table: Floats, coefficients: Floats, pairs: Pairs, rows: Ids, out: Floats
) -> None:
    """out[i] = Σ over the pairs of table row rows[i] of their coefficient · ∂comparison / ∂row.

    `coefficients` are in the order of the pairs.
    """
    _AT_CANDIDATES[kind](queries, table, coefficients, pairs, rows, out)


@inlined
def _compare_all(kind: int, queries: Floats, table: Floats, pairs: Pairs, out: Floats) -> None:
    starts, places, owners = pairs
    span = table.shape[1] // 2 if kind == _MODULUS else table.shape[1]
    whole = span - span % LANES
    for row in range(table.shape[0]):
        start, stop = starts[row], starts[row + 1]
        fours = stop - (stop - start) % 4
        for p in range(start, fours, 4):  # a row is loaded once, and four sums hide each other's latency
            a, b, c, d = owners[p], owners[p + 1], owners[p + 2], owners[p + 3]
            va = vb = vc = vd = every(_ZERO)
            for k in range(0, whole, LANES):
                va += _term(kind, table, row, queries, a, k, span)
                vb += _term(kind, table, row, queries, b, k, span)
                vc += _term(kind, table, row, queries, c, k, span)
                vd += _term(kind, table, row, queries, d, k, span)
            out[places[p]], out[places[p + 1]] = total(va), total(vb)
            out[places[p + 2]], out[places[p + 3]] = total(vc), total(vd)
        for p in range(fours, stop):
            lanes = every(_ZERO)
            for k in range(0, whole, LANES):
                lanes += _term(kind, table, row, queries, owners[p], k, span)
            out[places[p]] = total(lanes)
        if whole < span:
            for p in range(start, stop):
                out[places[p]] += _rest(kind, table, row, queries, owners[p], whole, span)
        if kind == _L2:
            for p in range(start, stop):
                out[places[p]] = np.sqrt(out[places[p]])


@inlined
def _term(kind: int, table: Floats, row: int, others: Floats, a: int, k: int, span: int) -> Lanes:
    """What eight columns add to a comparison; of a modulus, eight complex columns."""
    if kind == _DOT:
        return load(others, a, k) * load(table, row, k)
    x = load(others, a, k) - load(table, row, k)
    if kind == _L1:
        return magnitude(x)
    if kind == _L2:
        return x * x
    y = load(others, a, span + k) - load(table, row, span + k)
    return root(x * x + y * y)


@inlined
def _rest(kind: int, table: Floats, row: int, others: Floats, a: int, start: int, span: int) -> np.float32:
    """What the last columns add, one by one."""
    result = _ZERO
    for k in range(start, span):
        x = others[a, k] - table[row, k]
        if kind == _DOT:
            result += others[a, k] * table[row, k]
        elif kind == _L1:
            result += abs(x)
        elif kind == _L2:
            result += x * x
        else:
            y = others[a, span + k] - table[row, span + k]
            result += np.sqrt(x * x + y * y)
    return result


@inlined
def _query_gradients(
    kind: int, queries: Floats, table: Floats, candidates: Ids, weights: Floats, out: Floats
) -> None:
    """As many rows of the table at a time as stay in the cache; within them, triple by triple."""
    shift = 0
    while (2 << shift) * table.shape[1] <= _CACHED or (table.shape[0] >> shift) > candidates.shape[1]:
        shift += 1  # more blocks than candidates would be mostly empty
    blocks = ((table.shape[0] - 1) >> shift) + 1
    spans = np.zeros((queries.shape[0], blocks + 1), np.int64)
    ids, ordered = np.empty(candidates.size, np.int32), np.empty(candidates.size, np.float32)
    for b in range(queries.shape[0]):
        _by_block(candidates, weights, b, shift, spans, ids, ordered)
    out[:] = 0
    for block in range(blocks):
        for b in range(queries.shape[0]):
            start, stop = spans[b, block], spans[b, block + 1]
            if start < stop:
                _gradient(kind, True, queries, b, table, ids, ordered, start, stop, out, b)


@inlined
def _by_block(
    candidates: Ids, weights: Floats, b: int, shift: int, spans: Offsets, ids: Ids, ordered: Floats
) -> None:
    """The candidates of triple b by block of 2^shift rows; the bounds of each block are in spans[b]."""
    n, last = candidates.shape[1], spans.shape[1] - 1
    for j in range(n):
        if candidates[b, j] >= 0:
            spans[b, (candidates[b, j] >> shift) + 1] += 1
    spans[b, 0] = b * n
    for block in range(last):
        spans[b, block + 1] += spans[b, block]
    for j in range(n):
        if candidates[b, j] >= 0:
            block = candidates[b, j] >> shift
            place = spans[b, block]
            ids[place], ordered[place] = candidates[b, j], weights[b, j]
            spans[b, block] = place + 1
    for block in range(last, 0, -1):  # filling moved each start to its stop
        spans[b, block] = spans[b, block - 1]
    spans[b, 0] = b * n


@inlined
def _candidate_gradients(
    kind: int, queries: Floats, table: Floats, weights: Floats, pairs: Pairs, rows: Ids, out: Floats
) -> None:
    """Every comparison is symmetric: the same gradient serves the other side."""
    starts, _, owners = pairs
    for i in range(rows.shape[0]):
        row = rows[i]
        _gradient(kind, False, table, row, queries, owners, weights, starts[row], starts[row + 1], out, i)


@inlined
def _gradient(
    kind: int,
    add: bool,
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
    """out[i] (+)= Σ weights[p] · ∂comparison(centres[row], others[ids[p]]) / ∂centre for p in start:stop."""
    if kind == _MODULUS:
        _modulus_gradient(add, centres, row, others, ids, weights, start, stop, out, i)
        return
    width = out.shape[1]
    fours, whole = width - width % (4 * LANES), width - width % LANES
    for k in range(0, fours, 4 * LANES):  # the sums stay in registers; four hide each other's latency
        xa, xb = load(centres, row, k), load(centres, row, k + LANES)
        xc, xd = load(centres, row, k + 2 * LANES), load(centres, row, k + 3 * LANES)
        a, b = _begin(add, out, i, k), _begin(add, out, i, k + LANES)
        c, d = _begin(add, out, i, k + 2 * LANES), _begin(add, out, i, k + 3 * LANES)
        for p in range(start, stop):
            j, w, opposite = ids[p], every(weights[p]), every(-weights[p])
            a += _slope(kind, w, opposite, xa, load(others, j, k))
            b += _slope(kind, w, opposite, xb, load(others, j, k + LANES))
            c += _slope(kind, w, opposite, xc, load(others, j, k + 2 * LANES))
            d += _slope(kind, w, opposite, xd, load(others, j, k + 3 * LANES))
        store(out, i, k, a)
        store(out, i, k + LANES, b)
        store(out, i, k + 2 * LANES, c)
        store(out, i, k + 3 * LANES, d)
    for k in range(fours, whole, LANES):
        x, lanes = load(centres, row, k), _begin(add, out, i, k)
        for p in range(start, stop):
            lanes += _slope(kind, every(weights[p]), every(-weights[p]), x, load(others, ids[p], k))
        store(out, i, k, lanes)
    for k in range(whole, width):
        result = out[i, k] if add else _ZERO
        for p in range(start, stop):
            result += _slope_one(kind, weights[p], centres[row, k], others[ids[p], k])
        out[i, k] = result


@inlined
def _begin(add: bool, out: Floats, i: int, k: int) -> Lanes:
    return load(out, i, k) if add else every(_ZERO)


@inlined
def _slope(kind: int, w: Lanes, opposite: Lanes, x: Lanes, y: Lanes) -> Lanes:
    """w · ∂comparison / ∂x in eight columns."""
    if kind == _DOT:
        return w * y
    if kind == _L1:  # where x is exactly y this is a subgradient
        return choose(x, y, w, opposite)
    return w * (x - y)  # the weights are already divided by the distance


@inlined
def _slope_one(kind: int, w: np.float32, x: np.float32, y: np.float32) -> np.float32:
    if kind == _DOT:
        return np.float32(w * y)
    if kind == _L1:
        return w if x > y else -w
    return np.float32(w * (x - y))


@inlined
def _modulus_gradient(
    add: bool,
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
    """The same where the first half of the columns are real parts and the second imaginary ones."""
    half = out.shape[1] // 2
    whole = half - half % LANES
    tiny = every(_TINY)
    for k in range(0, whole, LANES):
        real, imaginary = load(centres, row, k), load(centres, row, half + k)
        a, b = _begin(add, out, i, k), _begin(add, out, i, half + k)
        for p in range(start, stop):
            x, y = real - load(others, ids[p], k), imaginary - load(others, ids[p], half + k)
            s = every(weights[p]) / root(x * x + y * y + tiny)
            a += s * x
            b += s * y
        store(out, i, k, a)
        store(out, i, half + k, b)
    for k in range(whole, half):
        u, v = (out[i, k], out[i, half + k]) if add else (_ZERO, _ZERO)
        for p in range(start, stop):
            x0, y0 = centres[row, k] - others[ids[p], k], centres[row, half + k] - others[ids[p], half + k]
            s0 = weights[p] / np.sqrt(x0 * x0 + y0 * y0 + _TINY)
            u += s0 * x0
            v += s0 * y0
        out[i, k], out[i, half + k] = u, v


# A kernel per comparison, so that a model compiles its own and no other.


def _compare(kind: int) -> Callable[[Floats, Floats, Pairs, Floats], None]:
    @compiled
    def compare_of_kind(queries: Floats, table: Floats, pairs: Pairs, out: Floats) -> None:
        _compare_all(kind, queries, table, pairs, out)

    return compare_of_kind


def _at_queries(kind: int) -> Callable[[Floats, Floats, Ids, Floats, Floats], None]:
    @compiled
    def at_queries(queries: Floats, table: Floats, candidates: Ids, weights: Floats, out: Floats) -> None:
        _query_gradients(kind, queries, table, candidates, weights, out)

    return at_queries


def _at_candidates(kind: int) -> Callable[[Floats, Floats, Floats, Pairs, Ids, Floats], None]:
    @compiled
    def at_candidates(
        queries: Floats, table: Floats, weights: Floats, pairs: Pairs, rows: Ids, out: Floats
    ) -> None:
        _candidate_gradients(kind, queries, table, weights, pairs, rows, out)

    return at_candidates


_COMPARE = [_compare(int(kind)) for kind in Comparison]
_AT_QUERIES = [_at_queries(int(kind)) for kind in Comparison]
_AT_CANDIDATES = [_at_candidates(int(kind)) for kind in Comparison]
