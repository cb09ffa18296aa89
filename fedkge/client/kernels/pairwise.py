"""Comparisons of a batch's queries with their candidates, and the gradients of both, for all pairs at once.

Every kernel walks entity by entity: a row is read once from the table, and the queries of a batch, which fit
in the cache, are gathered instead. A row's gradient is summed in registers, some columns at a time. Rows are
passed as an array and a number, because a view of a row costs as much as a third of the work.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedkge.client.kernels.arrays import Doubles, Floats, Ids
from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.kernels.compiled import compiled
from fedkge.client.kernels.scatter import Pairs
from fedkge.client.kernels.simd import LANES, Lanes, choose, every, load, magnitude, root, store, total

__all__ = [
    "add_both_gradients",
    "candidate_gradients",
    "compare_all",
    "query_gradients",
    "sum_candidate_gradients",
    "sum_query_gradients",
    "write_candidate_gradients",
]

_ZERO = np.float32(0)
_TINY = np.float32(1e-30)  # keeps 0 / 0 away, and changes no other float32
_DOT, _L1, _L2, _MODULUS = (int(kind) for kind in Comparison)


def query_gradients(
    kind: int, queries: Floats, table: Floats, coefficients: Floats, pairs: Pairs, out: Floats
) -> None:
    """out[b] = Σ over the pairs of triple b of their coefficient · ∂comparison / ∂query.

    `coefficients` are in the order of the pairs.
    """
    _AT_QUERIES[kind](queries, table, coefficients, pairs, out)


def candidate_gradients(
    kind: int, queries: Floats, table: Floats, coefficients: Floats, pairs: Pairs, rows: Ids, out: Floats
) -> None:
    """out[i] = Σ over the pairs of table row rows[i] of their coefficient · ∂comparison / ∂row."""
    _AT_CANDIDATES[kind](queries, table, coefficients, pairs, rows, out)


@compiled
def compare_all(kind: int, queries: Floats, table: Floats, pairs: Pairs, out: Floats) -> None:
    """out[places[p]] = comparison of queries[owners[p]] with the row that pair p belongs to."""
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


@compiled
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


@compiled
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


@compiled
def sum_query_gradients(
    kind: int, queries: Floats, table: Floats, weights: Floats, pairs: Pairs, out: Floats
) -> None:
    """Row by row of the table; what is added to, the queries' gradients, stays in the cache."""
    starts, _, owners = pairs
    span = table.shape[1] // 2 if kind == _MODULUS else table.shape[1]
    whole = span - span % LANES
    out[:] = 0
    for row in range(table.shape[0]):
        for p in range(starts[row], starts[row + 1]):
            _add_gradient(kind, queries, owners[p], table, row, weights[p], whole, out)
            _add_rest(kind, queries, owners[p], table, row, weights[p], whole, span, out)


@compiled
def _add_gradient(
    kind: int, queries: Floats, b: int, table: Floats, row: int, weight: np.float32, whole: int, out: Floats
) -> None:
    """out[b] += weight · ∂comparison / ∂query b in the columns that fill lanes."""
    w, opposite, tiny, half = every(weight), every(-weight), every(_TINY), table.shape[1] // 2
    for k in range(0, whole, LANES):
        if kind == _MODULUS:
            x = load(queries, b, k) - load(table, row, k)
            y = load(queries, b, half + k) - load(table, row, half + k)
            s = w / root(x * x + (y * y + tiny))
            store(out, b, k, load(out, b, k) + s * x)
            store(out, b, half + k, load(out, b, half + k) + s * y)
        else:
            slope = _slope(kind, w, opposite, load(queries, b, k), load(table, row, k))
            store(out, b, k, load(out, b, k) + slope)


@compiled
def _add_rest(
    kind: int,
    queries: Floats,
    b: int,
    table: Floats,
    row: int,
    weight: np.float32,
    start: int,
    span: int,
    out: Floats,
) -> None:
    """The same in the last columns, one by one."""
    for k in range(start, span):
        if kind == _MODULUS:
            x, y = queries[b, k] - table[row, k], queries[b, span + k] - table[row, span + k]
            s = weight / np.sqrt(x * x + y * y + _TINY)
            out[b, k] += s * x
            out[b, span + k] += s * y
        else:
            out[b, k] += _slope_one(kind, weight, queries[b, k], table[row, k])


@compiled
def write_candidate_gradients(
    kind: int, queries: Floats, table: Floats, weights: Floats, pairs: Pairs, rows: Ids, out: Floats
) -> None:
    """Every comparison is symmetric: the same gradient serves the other side."""
    starts, _, owners = pairs
    for i in range(rows.shape[0]):
        row = rows[i]
        _gradient(kind, table, row, queries, owners, weights, starts[row], starts[row + 1], out, i)


@compiled
def sum_candidate_gradients(
    kind: int, queries: Floats, table: Floats, weights: Floats, pairs: Pairs, rows: Ids, out: Doubles
) -> None:
    """As `candidate_gradients`, added in double precision; for the few rows that very many pairs name."""
    starts, _, owners = pairs
    half = table.shape[1] // 2
    for i in range(rows.shape[0]):
        row = rows[i]
        for p in range(starts[row], starts[row + 1]):
            j, w = owners[p], weights[p]
            if kind == _MODULUS:
                for k in range(half):
                    x, y = table[row, k] - queries[j, k], table[row, half + k] - queries[j, half + k]
                    s = w / np.sqrt(x * x + y * y + _TINY)
                    out[i, k] += s * x
                    out[i, half + k] += s * y
            else:
                for k in range(table.shape[1]):
                    out[i, k] += _slope_one(kind, w, table[row, k], queries[j, k])


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
    if kind == _MODULUS:
        _modulus_gradient(centres, row, others, ids, weights, start, stop, out, i)
        return
    width = out.shape[1]
    fours, whole = width - width % (4 * LANES), width - width % LANES
    for k in range(0, fours, 4 * LANES):  # the sums stay in registers; four hide each other's latency
        xa, xb = load(centres, row, k), load(centres, row, k + LANES)
        xc, xd = load(centres, row, k + 2 * LANES), load(centres, row, k + 3 * LANES)
        a, b = every(_ZERO), every(_ZERO)
        c, d = every(_ZERO), every(_ZERO)
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
        x, lanes = load(centres, row, k), every(_ZERO)
        for p in range(start, stop):
            lanes += _slope(kind, every(weights[p]), every(-weights[p]), x, load(others, ids[p], k))
        store(out, i, k, lanes)
    for k in range(whole, width):
        result = _ZERO
        for p in range(start, stop):
            result += _slope_one(kind, weights[p], centres[row, k], others[ids[p], k])
        out[i, k] = result


@compiled
def _slope(kind: int, w: Lanes, opposite: Lanes, x: Lanes, y: Lanes) -> Lanes:
    """w · ∂comparison / ∂x in eight columns."""
    if kind == _DOT:
        return w * y
    if kind == _L1:  # where x is exactly y this is a subgradient
        return choose(x, y, w, opposite)
    return w * (x - y)  # the weights are already divided by the distance


@compiled
def _slope_one(kind: int, w: np.float32, x: np.float32, y: np.float32) -> np.float32:
    if kind == _DOT:
        return np.float32(w * y)
    if kind == _L1:
        return w if x > y else -w
    return np.float32(w * (x - y))


@compiled
def _modulus_gradient(
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
        a, b = every(_ZERO), every(_ZERO)
        for p in range(start, stop):
            x, y = real - load(others, ids[p], k), imaginary - load(others, ids[p], half + k)
            s = every(weights[p]) / root(x * x + (y * y + tiny))
            a += s * x
            b += s * y
        store(out, i, k, a)
        store(out, i, half + k, b)
    for k in range(whole, half):
        u = v = _ZERO
        for p in range(start, stop):
            x0, y0 = centres[row, k] - others[ids[p], k], centres[row, half + k] - others[ids[p], half + k]
            s0 = weights[p] / np.sqrt(x0 * x0 + y0 * y0 + _TINY)
            u += s0 * x0
            v += s0 * y0
        out[i, k], out[i, half + k] = u, v


@compiled
def add_both_gradients(
    kind: int,
    queries: Floats,
    table: Floats,
    weights: Floats,
    pairs: Pairs,
    rows: Ids,
    at_queries: Floats,
    at_rows: Floats,
) -> None:
    """`query_gradients`, added, and `candidate_gradients` at once, which have most of their work in common.

    What a pair adds to its row is summed in registers, what it adds to its query in the cache.
    """
    starts, _, owners = pairs
    for i in range(rows.shape[0]):
        start, stop = starts[rows[i]], starts[rows[i] + 1]
        if kind == _MODULUS:
            _both_of_modulus(queries, table, rows[i], owners, weights, start, stop, at_queries, at_rows, i)
        else:
            _both_of_row(kind, queries, table, rows[i], owners, weights, start, stop, at_queries, at_rows, i)


@compiled
def _both_of_row(
    kind: int,
    queries: Floats,
    table: Floats,
    row: int,
    owners: Ids,
    weights: Floats,
    start: int,
    stop: int,
    at_queries: Floats,
    at_rows: Floats,
    i: int,
) -> None:
    width = table.shape[1]
    fours, whole = width - width % (4 * LANES), width - width % LANES
    for k in range(0, fours, 4 * LANES):
        k1, k2, k3 = k + LANES, k + 2 * LANES, k + 3 * LANES
        ra, rb, rc, rd = load(table, row, k), load(table, row, k1), load(table, row, k2), load(table, row, k3)
        a = b = c = d = every(_ZERO)
        for p in range(start, stop):
            j, w, opposite = owners[p], every(weights[p]), every(-weights[p])
            qa, qb = load(queries, j, k), load(queries, j, k1)
            qc, qd = load(queries, j, k2), load(queries, j, k3)
            if kind == _DOT:
                sa, sb, sc, sd = w * ra, w * rb, w * rc, w * rd
                a, b, c, d = a + w * qa, b + w * qb, c + w * qc, d + w * qd
            else:
                sa, sb = _slope(kind, w, opposite, qa, ra), _slope(kind, w, opposite, qb, rb)
                sc, sd = _slope(kind, w, opposite, qc, rc), _slope(kind, w, opposite, qd, rd)
                a, b, c, d = a - sa, b - sb, c - sc, d - sd
            store(at_queries, j, k, load(at_queries, j, k) + sa)
            store(at_queries, j, k1, load(at_queries, j, k1) + sb)
            store(at_queries, j, k2, load(at_queries, j, k2) + sc)
            store(at_queries, j, k3, load(at_queries, j, k3) + sd)
        store(at_rows, i, k, a)
        store(at_rows, i, k1, b)
        store(at_rows, i, k2, c)
        store(at_rows, i, k3, d)
    for k in range(fours, whole, LANES):
        r, lanes = load(table, row, k), every(_ZERO)
        for p in range(start, stop):
            j, w = owners[p], every(weights[p])
            q, before = load(queries, j, k), load(at_queries, j, k)
            if kind == _DOT:
                store(at_queries, j, k, before + w * r)
                lanes += w * q
            else:
                slope = _slope(kind, w, every(-weights[p]), q, r)
                store(at_queries, j, k, before + slope)
                lanes -= slope
        store(at_rows, i, k, lanes)
    for k in range(whole, width):
        at_rows[i, k] = 0
        for p in range(start, stop):
            j, w0, q0 = owners[p], weights[p], queries[owners[p], k]
            slope0 = _slope_one(kind, w0, q0, table[row, k])
            at_queries[j, k] += slope0
            at_rows[i, k] += w0 * q0 if kind == _DOT else -slope0


@compiled
def _both_of_modulus(
    queries: Floats,
    table: Floats,
    row: int,
    owners: Ids,
    weights: Floats,
    start: int,
    stop: int,
    at_queries: Floats,
    at_rows: Floats,
    i: int,
) -> None:
    half = table.shape[1] // 2
    whole = half - half % LANES
    tiny = every(_TINY)
    for k in range(0, whole, LANES):
        real, imaginary = load(table, row, k), load(table, row, half + k)
        a = b = every(_ZERO)
        for p in range(start, stop):
            j = owners[p]
            x, y = real - load(queries, j, k), imaginary - load(queries, j, half + k)
            s = every(weights[p]) / root(x * x + (y * y + tiny))
            u, v = s * x, s * y
            a += u
            b += v
            store(at_queries, j, k, load(at_queries, j, k) - u)
            store(at_queries, j, half + k, load(at_queries, j, half + k) - v)
        store(at_rows, i, k, a)
        store(at_rows, i, half + k, b)
    for k in range(whole, half):
        at_rows[i, k] = at_rows[i, half + k] = _ZERO
        for p in range(start, stop):
            j = owners[p]
            x0, y0 = table[row, k] - queries[j, k], table[row, half + k] - queries[j, half + k]
            s0 = weights[p] / np.sqrt(x0 * x0 + y0 * y0 + _TINY)
            at_rows[i, k] += s0 * x0
            at_rows[i, half + k] += s0 * y0
            at_queries[j, k] -= s0 * x0
            at_queries[j, half + k] -= s0 * y0


# A kernel per comparison, so that a model compiles its own and no other.


def _at_queries(kind: int) -> Callable[[Floats, Floats, Floats, Pairs, Floats], None]:
    @compiled
    def at_queries(queries: Floats, table: Floats, weights: Floats, pairs: Pairs, out: Floats) -> None:
        sum_query_gradients(kind, queries, table, weights, pairs, out)

    return at_queries


def _at_candidates(kind: int) -> Callable[[Floats, Floats, Floats, Pairs, Ids, Floats], None]:
    @compiled
    def at_candidates(
        queries: Floats, table: Floats, weights: Floats, pairs: Pairs, rows: Ids, out: Floats
    ) -> None:
        write_candidate_gradients(kind, queries, table, weights, pairs, rows, out)

    return at_candidates


_AT_QUERIES = [_at_queries(int(kind)) for kind in Comparison]
_AT_CANDIDATES = [_at_candidates(int(kind)) for kind in Comparison]
