"""ConvKB's score of many candidates for each query, and its gradients (Nguyen et al., 2018).

A filter has three numbers, for head, relation and tail, so that of w · relu([h, r, t] ∗ filters) the part of
the fixed side and the relation is made once for a query. Eight filters go in one vector register.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedkge.client.kernels.arrays import Floats
from fedkge.client.kernels.compiled import compiled
from fedkge.client.kernels.simd import LANES, choose, every, load, store, total

__all__ = ["Filters", "convolve", "convolve_backward", "padded_filters"]

_TILE = 256  # candidates whose sums stay in the cache


class Filters(NamedTuple):
    """Filters in whole registers: those that are missing are zeros."""

    anchor: Floats  # (1, f) what the fixed entity is multiplied by
    relation: Floats  # (1, f)
    candidate: Floats  # (1, f)
    bias: Floats  # (1, f)
    dense: Floats  # (d, f) what outputs are multiplied by


def padded_filters(
    anchor: Floats, relation: Floats, candidate: Floats, bias: Floats, dense: Floats
) -> Filters:
    """Of vectors (f,) and a matrix (d, f)."""
    missing = -len(bias) % LANES
    rows = (np.atleast_2d(part) for part in (anchor, relation, candidate, bias, dense))
    return Filters(*(np.pad(part, ((0, 0), (0, missing))).astype(np.float32) for part in rows))


@compiled
def convolve(filters: Filters, anchors: Floats, relations: Floats, candidates: Floats, out: Floats) -> None:
    """Scores (b, n) of queries (b, d) with candidates (b, n, d), or (1, n, d) that all queries share."""
    d, f = filters.dense.shape
    fixed = np.empty((d, f), dtype=np.float32)
    columns = np.empty((d, _TILE), dtype=np.float32)
    sums = np.empty((_TILE, LANES), dtype=np.float32)
    zero = every(np.float32(0))
    for b in range(out.shape[0]):
        _fix(filters, anchors[b], relations[b], fixed)
        own = candidates[b if len(candidates) > 1 else 0]
        for start in range(0, out.shape[1], _TILE):
            count = min(_TILE, out.shape[1] - start)
            _turn(own, start, count, columns)
            sums[:] = 0
            for k in range(d):
                for j in range(0, f, LANES):
                    q, w, v = load(fixed, k, j), load(filters.candidate, 0, j), load(filters.dense, k, j)
                    for c in range(count):
                        z = q + w * every(columns[k, c])
                        store(sums, c, 0, load(sums, c, 0) + v * choose(z, zero, z, zero))
            for c in range(count):
                out[b, start + c] = total(load(sums, c, 0))


@compiled
def convolve_backward(
    filters: Filters,
    anchors: Floats,
    relations: Floats,
    candidates: Floats,
    slopes: Floats,
    at_filters: Filters,
    at_anchors: Floats,
    at_relations: Floats,
    at_candidates: Floats,
) -> None:
    """From the gradient at scores (b, n) to those at filters and rows, which are zeros before."""
    d, f = filters.dense.shape
    fixed = np.empty((d, f), dtype=np.float32)
    products = np.empty((d, f), dtype=np.float32)  # of what candidates and outputs are multiplied by
    for k in range(d):
        for j in range(f):
            products[k, j] = filters.dense[k, j] * filters.candidate[0, j]
    columns = np.empty((d, _TILE), dtype=np.float32)
    sums = np.empty((_TILE, LANES), dtype=np.float32)
    active = np.empty((d, f), dtype=np.float32)  # Σ slope over the candidates with a positive output
    moved = np.empty((d, f), dtype=np.float32)  # Σ slope · candidate over the same
    zero = every(np.float32(0))
    for b in range(slopes.shape[0]):
        _fix(filters, anchors[b], relations[b], fixed)
        place = b if len(candidates) > 1 else 0
        active[:] = 0
        moved[:] = 0
        for start in range(0, slopes.shape[1], _TILE):
            count = min(_TILE, slopes.shape[1] - start)
            _turn(candidates[place], start, count, columns)
            for k in range(d):
                sums[:count] = 0
                for j in range(0, f, LANES):
                    q, w, v = load(fixed, k, j), load(filters.candidate, 0, j), load(products, k, j)
                    some, far = load(active, k, j), load(moved, k, j)
                    for c in range(count):
                        t, s = every(columns[k, c]), every(slopes[b, start + c])
                        z = q + w * t
                        some += choose(z, zero, s, zero)
                        far += choose(z, zero, s * t, zero)
                        store(sums, c, 0, load(sums, c, 0) + choose(z, zero, v, zero))
                    store(active, k, j, some)
                    store(moved, k, j, far)
                for c in range(count):
                    at_candidates[place, start + c, k] += slopes[b, start + c] * total(load(sums, c, 0))
        sums_of_b = (fixed, active, moved)
        _fix_backward(
            filters, anchors[b], relations[b], sums_of_b, at_filters, at_anchors[b], at_relations[b]
        )


@compiled
def _fix(filters: Filters, anchor: Floats, relation: Floats, fixed: Floats) -> None:
    """The part of the outputs that no candidate changes, (d, f)."""
    for k in range(fixed.shape[0]):
        for j in range(fixed.shape[1]):
            rows = filters.anchor[0, j] * anchor[k] + filters.relation[0, j] * relation[k]
            fixed[k, j] = rows + filters.bias[0, j]


@compiled
def _fix_backward(
    filters: Filters,
    anchor: Floats,
    relation: Floats,
    sums: tuple[Floats, Floats, Floats],
    at_filters: Filters,
    at_anchor: Floats,
    at_relation: Floats,
) -> None:
    """An output's sum over candidates is fixed · active + filter · moved, where it is positive."""
    fixed, active, moved = sums
    for k in range(fixed.shape[0]):
        h, r = anchor[k], relation[k]
        at_h = at_r = np.float32(0)
        for j in range(fixed.shape[1]):
            v, u = filters.dense[k, j], active[k, j]
            at_filters.dense[k, j] += fixed[k, j] * u + filters.candidate[0, j] * moved[k, j]
            at_filters.candidate[0, j] += v * moved[k, j]
            at_filters.anchor[0, j] += v * u * h
            at_filters.relation[0, j] += v * u * r
            at_filters.bias[0, j] += v * u
        for j in range(fixed.shape[1]):  # apart: a loop that sums and stores may sum in another order
            weight = filters.dense[k, j] * active[k, j]
            at_h += weight * filters.anchor[0, j]
            at_r += weight * filters.relation[0, j]
        at_anchor[k] = at_h
        at_relation[k] = at_r


@compiled
def _turn(rows: Floats, start: int, count: int, columns: Floats) -> None:
    """Some rows (n, d) as columns (d, count), so that one after the other is read."""
    for c in range(count):
        for k in range(columns.shape[0]):
            columns[k, c] = rows[start + c, k]
