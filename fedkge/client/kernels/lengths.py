"""How long the gradients of single triples are, and by how much each must be shortened."""

from __future__ import annotations

import numpy as np

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.kernels.compiled import compiled

__all__ = ["clipping_weights", "norms_of_rows", "norms_of_triples", "unnormalised"]

_DOT, _L1, _L2, _MODULUS = (int(kind) for kind in Comparison)
_SHORTEST = 1e-12  # a row that is made as long as 1 is divided by no less, as torch has it
_ROUNDING = 1e-6  # of a float32 difference, beside the length of what is subtracted


@compiled
def norms_of_triples(
    kind: int,
    queries: Floats,
    table: Floats,
    anchors: Ids,
    candidates: Ids,
    compared: Floats,
    coefficients: Floats,
    anchor_rows: Floats,
    relation_rows: Floats,
    least: float,
    out: Floats,
) -> None:
    """From coefficients and queries; never below the share `least` of what the parts are apart."""
    sums = np.empty(table.shape[0], dtype=np.float64)  # of the coefficients of one triple, by entity
    apart = np.empty(table.shape[0], dtype=np.float64)  # the same, of their magnitudes
    owner = np.full(table.shape[0], -1, dtype=np.int32)  # the triple that a sum belongs to
    for b in range(out.shape[0]):
        for j in range(candidates.shape[1]):
            e = candidates[b, j]
            if e >= 0:
                again = owner[e] == b
                sums[e] = coefficients[b, j] + (sums[e] if again else 0.0)
                apart[e] = abs(coefficients[b, j]) + (apart[e] if again else 0.0)
                owner[e] = b
        # The slopes of other comparisons do not depend on it.
        length = np.sqrt(_square(queries, b)) if kind in (_DOT, _L2) else 0.0
        anchor = anchors[b]
        total = uncancelled = _square(anchor_rows, b) + _square(relation_rows, b)
        if owner[anchor] == b:
            total += 2 * sums[anchor] * _along(kind, queries, b, table, anchor, anchor_rows)
            uncancelled *= 2  # with twice the candidates' own, no less than the square of the sum
        entities = most = 0.0
        for j in range(candidates.shape[1]):
            e = candidates[b, j]
            if e >= 0 and owner[e] == b:
                owner[e] = -1  # each entity once
                # Coefficients of a Euclidean distance were divided by it.
                unit = compared[b, j] + _ROUNDING * length if kind == _L2 else 1.0
                entities += (unit * sums[e]) ** 2
                most += (unit * apart[e]) ** 2
        factor = _squared_slope(kind, length, queries.shape[1])
        out[b] = _root(total + factor * entities, least * least * (uncancelled + 2 * factor * most))


@compiled
def _root(square: float, least: float) -> float:
    """Of the larger one, or of zero; not a number where either is none."""
    larger = least if square < least else square
    return np.sqrt(larger + 0 * least) if not larger < 0 else 0.0


@compiled
def _squared_slope(kind: int, length: float, width: int) -> float:
    """|∂comparison / ∂row|² for a query of that length; Euclidean distances have their own."""
    if kind == _DOT:
        return length * length
    if kind == _L1:
        return float(width)
    return float(width // 2) if kind == _MODULUS else 1.0


@compiled
def _square(rows: Floats, b: int) -> float:
    total = 0.0
    for k in range(rows.shape[1]):
        total += np.float64(rows[b, k]) * np.float64(rows[b, k])
    return total


@compiled
def _along(kind: int, queries: Floats, b: int, table: Floats, e: int, rows: Floats) -> float:
    """∂comparison(query b, row e) / ∂row · rows[b], as the kernels have that gradient."""
    total = 0.0
    if kind == _MODULUS:
        half = table.shape[1] // 2
        for k in range(half):
            x = np.float64(table[e, k]) - np.float64(queries[b, k])
            y = np.float64(table[e, half + k]) - np.float64(queries[b, half + k])
            total += (x * rows[b, k] + y * rows[b, half + k]) / np.sqrt(x * x + y * y + 1e-30)
        return total
    for k in range(table.shape[1]):
        if kind == _DOT:
            total += np.float64(queries[b, k]) * rows[b, k]
        elif kind == _L1:
            total += rows[b, k] if table[e, k] > queries[b, k] else -rows[b, k]
        else:
            total += (np.float64(table[e, k]) - np.float64(queries[b, k])) * rows[b, k]
    return total


@compiled
def norms_of_rows(
    num_rows: int,
    anchors: Ids,
    candidates: Ids,
    candidate_rows: Floats,
    anchor_rows: Floats,
    relation_rows: Floats,
    least: float,
    out: Floats,
) -> None:
    """Where the relation maps candidates there is no closed form, but their gradients are at hand."""
    n, width = candidates.shape[1], anchor_rows.shape[1]
    place = np.full(num_rows, -1, dtype=np.int32)  # where an entity's sum stands
    sums = np.empty((n + 1, width), dtype=np.float64)
    lengths = np.empty(n + 1, dtype=np.float64)  # of the parts of an entity, added up
    for b in range(out.shape[0]):
        place[anchors[b]] = 0
        used = 1
        lengths[0] = np.sqrt(_square(anchor_rows, b))
        for k in range(width):
            sums[0, k] = anchor_rows[b, k]
        for j in range(n):
            e = candidates[b, j]
            if e < 0:
                continue
            if place[e] < 0:
                place[e] = used
                sums[used, :] = 0
                lengths[used] = 0
                used += 1
            lengths[place[e]] += np.sqrt(_square(candidate_rows, b * n + j))
            for k in range(width):
                sums[place[e], k] += candidate_rows[b * n + j, k]
        total = most = _square(relation_rows, b)
        for i in range(used):
            most += lengths[i] * lengths[i]
            for k in range(width):
                total += sums[i, k] * sums[i, k]
        out[b] = _root(total, least * least * most)
        place[anchors[b]] = -1
        for j in range(n):
            if candidates[b, j] >= 0:
                place[candidates[b, j]] = -1


@compiled
def clipping_weights(norms: Floats, bound: float, share: float, out: Floats) -> int:
    """What to multiply each triple by; returns how many norms are not finite."""
    broken = 0
    for b in range(norms.shape[0]):
        norm = np.float64(norms[b])
        if abs(norm) < np.inf:
            out[b] = share if norm <= bound else share * bound / norm
        else:  # infinite, or not a number
            out[b] = 0
            broken += 1
    return broken


@compiled
def unnormalised(raw: Floats, rows: Ids, slopes: Floats) -> Floats:
    """Gradients (p, w) at raw rows (p,) of a table, from those at the same rows divided by their length."""
    out = np.empty_like(slopes)
    for p in range(rows.shape[0]):
        row = rows[p]
        length = np.sqrt(_square(raw, row))
        along = 0.0
        for k in range(slopes.shape[1]):
            along += np.float64(raw[row, k]) * np.float64(slopes[p, k])
        short = length < _SHORTEST
        share = 0.0 if short else along / (length * length)
        unit = 1 / max(length, _SHORTEST)
        for k in range(slopes.shape[1]):
            out[p, k] = np.float32(unit * (np.float64(slopes[p, k]) - share * np.float64(raw[row, k])))
    return out
