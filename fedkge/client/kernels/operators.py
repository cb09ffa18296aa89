"""What a relation does to an entity row to make a query: keep, move, scale, multiply, rotate."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from math import pi

import numpy as np

from fedkge.client.kernels.arrays import Floats
from fedkge.client.kernels.compiled import compiled

__all__ = ["Backward", "Operator", "backward", "forward", "query"]

# From gradients at queries (b, w) to gradients at anchor rows and at relation rows, each in its own memory.
Backward = Callable[[Floats], tuple[Floats, Floats]]


class Operator(IntEnum):
    """How kernels make a query for tails from a head and its relation, and one for heads from a tail."""

    KEEP = 0  # h, and t: the relation says nothing
    MOVE = 1  # h + r, and t − r
    SCALE = 2  # h ∘ r, and t ∘ r
    MULTIPLY = 3  # complex numbers, the real parts first: h ∘ r, and t ∘ r̄
    ROTATE = 4  # complex numbers by phases r · unit, and back


_KEEP, _MOVE, _SCALE, _MULTIPLY, _ROTATE = (int(operator) for operator in Operator)
_QUARTER = pi / 2


def query(
    operator: Operator, unit: float, rows: Floats, relations: Floats, num_tails: int
) -> tuple[Floats, Backward]:
    """Queries (b, w) of a batch, for tails first, then for heads; and their backward pass."""
    factors, queries = forward(int(operator), unit, rows, relations, num_tails)

    def back(slopes: Floats) -> tuple[Floats, Floats]:
        return backward(int(operator), unit, rows, relations, factors, num_tails, slopes)

    return queries, back


@compiled
def forward(
    operator: int, unit: float, rows: Floats, relations: Floats, num_tails: int
) -> tuple[Floats, Floats]:
    """What complex rows are multiplied with (nothing otherwise), and queries (b, w)."""
    queries = np.empty_like(rows)
    half = rows.shape[1] // 2
    factors = np.empty((rows.shape[0] if operator >= _MULTIPLY else 0, rows.shape[1]), dtype=np.float32)
    for b in range(rows.shape[0]):
        sign = np.float32(1) if b < num_tails else np.float32(-1)
        if operator == _MOVE:
            for k in range(rows.shape[1]):
                queries[b, k] = rows[b, k] + sign * relations[b, k]
        elif operator == _SCALE:
            for k in range(rows.shape[1]):
                queries[b, k] = rows[b, k] * relations[b, k]
        elif operator == _KEEP:
            queries[b] = rows[b]
        else:
            if operator == _MULTIPLY:
                for k in range(half):
                    factors[b, k], factors[b, half + k] = relations[b, k], sign * relations[b, half + k]
            else:
                for k in range(half):
                    factors[b, k], factors[b, half + k] = _circle(sign * relations[b, k] * unit)
            _multiply(rows, factors, np.float32(1), b, queries)
    return factors, queries


@compiled
def backward(
    operator: int,
    unit: float,
    rows: Floats,
    relations: Floats,
    factors: Floats,
    num_tails: int,
    slopes: Floats,
) -> tuple[Floats, Floats]:
    """From gradients at queries to gradients at rows and relations."""
    at_rows, at_relations = np.empty_like(rows), np.empty_like(relations)
    half = rows.shape[1] // 2
    at_factors = np.empty((1, rows.shape[1]), dtype=np.float32)
    for b in range(rows.shape[0]):
        sign = np.float32(1) if b < num_tails else np.float32(-1)
        if operator == _MOVE:
            for k in range(rows.shape[1]):
                at_rows[b, k], at_relations[b, k] = slopes[b, k], sign * slopes[b, k]
        elif operator == _SCALE:
            for k in range(rows.shape[1]):
                at_rows[b, k] = slopes[b, k] * relations[b, k]
                at_relations[b, k] = slopes[b, k] * rows[b, k]
        elif operator == _KEEP:
            at_rows[b], at_relations[b] = slopes[b], 0
        else:
            _multiply(slopes, factors, np.float32(-1), b, at_rows)
            if operator == _MULTIPLY:
                _multiply(slopes, rows, np.float32(-1), b, at_relations)
                for k in range(half):
                    at_relations[b, half + k] *= sign
            else:
                _multiply(slopes[b : b + 1], rows[b : b + 1], np.float32(-1), 0, at_factors)
                for k in range(half):
                    along = at_factors[0, half + k] * factors[b, k] - at_factors[0, k] * factors[b, half + k]
                    at_relations[b, k] = sign * np.float32(unit) * along
    return at_rows, at_relations


@compiled
def _multiply(first: Floats, second: Floats, sign: np.float32, b: int, out: Floats) -> None:
    """out[b] = first[b] ∘ second[b]; a sign of −1 conjugates the second, as gradients pass a product."""
    half = out.shape[1] // 2
    for k in range(half):
        x, y, u, v = first[b, k], first[b, half + k], second[b, k], sign * second[b, half + k]
        out[b, k] = x * u - y * v
        out[b, half + k] = x * v + y * u


@compiled
def _circle(phase: float) -> tuple[np.float32, np.float32]:
    """Cosine and sine to 1e-7 of phases up to 1e9, in vector registers (Cody and Waite, 1980)."""
    quarters = np.floor(phase / _QUARTER + 0.5)
    x = np.float32(phase - quarters * _QUARTER)  # |x| ≤ π / 4
    z = x * x
    p = np.float32(-1.9515295891e-4) * z + np.float32(8.3321608736e-3)
    p = p * z - np.float32(1.6666654611e-1)
    sine = p * z * x + x
    q = np.float32(2.443315711809948e-5) * z - np.float32(1.388731625493765e-3)
    q = q * z + np.float32(4.166664568298827e-2)
    cosine = q * z * z - np.float32(0.5) * z + np.float32(1)
    turned = np.int64(quarters) & 3
    c = sine if turned & 1 else cosine
    s = cosine if turned & 1 else sine
    return (-c if (turned + 1) & 2 else c), (-s if turned & 2 else s)
