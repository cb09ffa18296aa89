"""How a query is compared with candidate rows: dot product, L1, L2, complex modulus.

Every kernel walks the candidates *entity by entity*: a row is read once from the table, and the queries of
a batch, which fit in the cache, are gathered instead. A pair is one candidate of one triple.
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
    four = np.empty(4, dtype=np.float32)
    for row in range(table.shape[0]):
        t = table[row]
        start, stop = starts[row], starts[row + 1]
        whole = stop - (stop - start) % 4
        for p in range(start, whole, 4):
            compare_four(kind, t, queries, owners[p : p + 4], four)
            for j in range(4):
                flat[places[p + j]] = four[j]
        for p in range(whole, stop):
            flat[places[p]] = compare_one(kind, t, queries[owners[p]])


@compiled
def compare_four(kind: int, t: Floats, others: Floats, ids: Ids, out: Floats) -> None:
    """One row against four: it is loaded once, and four sums hide each other's latency."""
    a, b, c, d = others[ids[0]], others[ids[1]], others[ids[2]], others[ids[3]]
    sa = sb = sc = sd = _ZERO
    if kind == _DOT:
        for k in range(t.shape[0]):
            sa += a[k] * t[k]
            sb += b[k] * t[k]
            sc += c[k] * t[k]
            sd += d[k] * t[k]
    elif kind == _L1:
        for k in range(t.shape[0]):
            sa += abs(a[k] - t[k])
            sb += abs(b[k] - t[k])
            sc += abs(c[k] - t[k])
            sd += abs(d[k] - t[k])
    else:
        sa, sb = compare_one(kind, t, a), compare_one(kind, t, b)
        sc, sd = compare_one(kind, t, c), compare_one(kind, t, d)
    out[0], out[1], out[2], out[3] = sa, sb, sc, sd


@compiled
def compare_one(kind: int, t: Floats, q: Floats) -> np.float32:
    total = _ZERO
    if kind == _DOT:
        for k in range(q.shape[0]):
            total += q[k] * t[k]
    elif kind == _L1:
        for k in range(q.shape[0]):
            total += abs(q[k] - t[k])
    elif kind == _L2:
        for k in range(q.shape[0]):
            x = q[k] - t[k]
            total += x * x
        total = np.sqrt(total)
    else:
        half = q.shape[0] // 2
        # Views, because the vectoriser cannot see that q[k] and q[half + k] never meet.
        qx, qy, tx, ty = q[:half], q[half:], t[:half], t[half:]
        for k in range(half):
            x = qx[k] - tx[k]
            y = qy[k] - ty[k]
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
    if kind == _MODULUS:  # twice as fast entity by entity, since its rows are twice as long
        _modulus_gradients_by_entity(queries, table, coefficients.ravel(), pairs, out)
    else:
        for b in range(queries.shape[0]):
            _gradient(kind, queries[b], table, candidates[b], coefficients[b], out[b])


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
        _gradient(kind, table[rows[i]], queries, owners[start:stop], coefficients[start:stop], out[i])


@compiled
def _gradient(kind: int, centre: Floats, others: Floats, ids: Ids, weights: Floats, g: Floats) -> None:
    """g = Σ_j weights[j] · ∂comparison(centre, others[ids[j]]) / ∂centre."""
    g[:] = 0
    n = ids.shape[0]
    if kind == _MODULUS:
        for j in range(n):
            _add_modulus(centre, others[ids[j]], weights[j], g)
        return
    whole = n - n % 4
    for j in range(0, whole, 4):
        _add_four(kind, centre, others, ids[j : j + 4], weights[j : j + 4], g)
    for j in range(whole, n):
        _add_one(kind, centre, others[ids[j]], weights[j], g)
    if kind != _DOT:
        _finish(kind, centre, weights, g)


@compiled
def _add_four(kind: int, centre: Floats, others: Floats, ids: Ids, w: Floats, g: Floats) -> None:
    """g += Σ w·row, or for L1 the weights of the rows below the centre; by four, to touch g less often."""
    a, b, c, d = others[ids[0]], others[ids[1]], others[ids[2]], others[ids[3]]
    wa, wb, wc, wd = w[0], w[1], w[2], w[3]
    if kind == _L1:
        for k in range(g.shape[0]):
            x = centre[k]
            left = (wa if x > a[k] else _ZERO) + (wb if x > b[k] else _ZERO)
            right = (wc if x > c[k] else _ZERO) + (wd if x > d[k] else _ZERO)
            g[k] += left + right
    else:
        for k in range(g.shape[0]):
            g[k] += (wa * a[k] + wb * b[k]) + (wc * c[k] + wd * d[k])


@compiled
def _add_one(kind: int, centre: Floats, a: Floats, w: np.float32, g: Floats) -> None:
    if kind == _L1:
        for k in range(g.shape[0]):
            g[k] += w if centre[k] > a[k] else _ZERO
    else:
        for k in range(g.shape[0]):
            g[k] += w * a[k]


@compiled
def _finish(kind: int, centre: Floats, weights: Floats, g: Floats) -> None:
    total = _ZERO
    for j in range(weights.shape[0]):
        total += weights[j]
    if kind == _L1:  # sign(x) = 2·[x > 0] − 1; where x is exactly 0 this is a subgradient
        for k in range(g.shape[0]):
            g[k] = 2 * g[k] - total
    else:  # L2: the weights are already divided by the distance
        for k in range(g.shape[0]):
            g[k] = total * centre[k] - g[k]


@compiled
def _add_modulus(q: Floats, t: Floats, w: np.float32, g: Floats) -> None:
    """g += w · ∂ Σ|q − t| / ∂q."""
    half = q.shape[0] // 2
    qx, qy, tx, ty, gx, gy = q[:half], q[half:], t[:half], t[half:], g[:half], g[half:]
    for k in range(half):
        x = qx[k] - tx[k]
        y = qy[k] - ty[k]
        s = w / np.sqrt(x * x + y * y + _TINY)
        gx[k] += s * x
        gy[k] += s * y


@compiled
def _modulus_gradients_by_entity(
    queries: Floats, table: Floats, coefficients: Floats, pairs: Pairs, out: Floats
) -> None:
    starts, places, owners = pairs
    out[:] = 0
    for row in range(table.shape[0]):
        for p in range(starts[row], starts[row + 1]):
            _add_modulus(queries[owners[p]], table[row], coefficients[places[p]], out[owners[p]])
