"""How a row moves against its gradient: the loops of the optimisers."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.compiled import compiled
from fedkge.client.kernels.simd import LANES, every, fetch, load, store

__all__ = ["Descent", "Moving", "Rule", "add_carrying", "fetch_carrying", "move", "move_carrying"]


class Moving(NamedTuple):
    """A table and what an optimiser keeps beside it: arrays of the same shape, or empty ones."""

    table: Floats
    first: Floats
    second: Floats


class Descent(IntEnum):
    """The ways of moving a row that kernels know."""

    ADAM = 0
    ADAGRAD = 1
    SGD = 2


class Rule(NamedTuple):
    """How a row moves, and the numbers of one step."""

    descent: int
    steps: int
    rate: float
    beta1: float
    beta2: float
    epsilon: float
    decay: float  # of weights: this times a row is added to its gradient


_ADAM, _ADAGRAD, _SGD = (int(descent) for descent in Descent)


@compiled
def move(rule: Rule, moving: Moving, rows: Ids, gradient: Floats) -> None:
    """Move the rows of a table against a gradient (rows, w)."""
    if rule.descent == _ADAM:
        _adam(rule, moving, rows, gradient)
    elif rule.descent == _ADAGRAD:
        _adagrad(rule, moving, rows, gradient)
    else:
        _sgd(rule, moving, rows, gradient)


@compiled
def _adam(rule: Rule, moving: Moving, rows: Ids, gradient: Floats) -> None:
    rate = np.float32(rule.rate / (1 - rule.beta1**rule.steps))
    correction = np.float32(1 / np.sqrt(1 - rule.beta2**rule.steps))
    epsilon, decay = np.float32(rule.epsilon), np.float32(rule.decay)
    # 1 − β is rounded after the subtraction: in float32, 1 − 0.999 is wrong in the fifth digit.
    keep_mean, take_mean = np.float32(rule.beta1), np.float32(1 - rule.beta1)
    keep_variance, take_variance = np.float32(rule.beta2), np.float32(1 - rule.beta2)
    for i in range(rows.shape[0]):
        x, m, v = moving.table[rows[i]], moving.first[rows[i]], moving.second[rows[i]]
        g = gradient[i]
        for k in range(g.shape[0]):
            slope = g[k] + decay * x[k]
            m[k] = keep_mean * m[k] + take_mean * slope
            v[k] = keep_variance * v[k] + take_variance * slope * slope
            x[k] -= rate * m[k] / (np.sqrt(v[k]) * correction + epsilon)


@compiled
def _adagrad(rule: Rule, moving: Moving, rows: Ids, gradient: Floats) -> None:
    rate, epsilon, decay = np.float32(rule.rate), np.float32(rule.epsilon), np.float32(rule.decay)
    for i in range(rows.shape[0]):
        x, s, g = moving.table[rows[i]], moving.first[rows[i]], gradient[i]
        for k in range(g.shape[0]):
            slope = g[k] + decay * x[k]
            s[k] += slope * slope
            x[k] -= rate * slope / (np.sqrt(s[k]) + epsilon)


@compiled
def _sgd(rule: Rule, moving: Moving, rows: Ids, gradient: Floats) -> None:
    rate, decay = np.float32(rule.rate), np.float32(rule.decay)
    for i in range(rows.shape[0]):
        x, g = moving.table[rows[i]], gradient[i]
        for k in range(g.shape[0]):
            x[k] -= rate * (g[k] + decay * x[k])


# Rows with 48 bits: a second table carries what float32 has no room for in the first. Sums are exact but for
# the last of these bits (Knuth's two-sum). Lanes keep the order in which sums are written; where columns do
# not fill lanes, float64 does the same.


_AHEAD = 2  # rows that are on their way from memory while one is moved
_LINE = 16  # floats that memory gives at once


@compiled
def fetch_carrying(table: Floats, carry: Floats, row: int) -> None:
    """Ask for a row of a table with its carry, which will be needed soon."""
    for k in range(0, table.shape[1], _LINE):
        fetch(table, row, k)
        fetch(carry, row, k)


@compiled
def move_carrying(rate: np.float32, table: Floats, carry: Floats, rows: Ids, gradient: Floats) -> None:
    """Move rows of a table with its carry against a gradient (rows, w)."""
    width = table.shape[1]
    whole = width - width % LANES
    step = every(rate)
    for i in range(rows.shape[0]):
        row = rows[i]
        if i + _AHEAD < rows.shape[0]:
            fetch_carrying(table, carry, rows[i + _AHEAD])
        for k in range(0, whole, LANES):
            x, change = load(table, row, k), load(carry, row, k) - step * load(gradient, i, k)
            moved = x + change
            part = moved - x
            store(table, row, k, moved)
            store(carry, row, k, (x - (moved - part)) + (change - part))
        for k in range(whole, width):
            value = np.float64(table[row, k]) + np.float64(carry[row, k]) - np.float64(rate) * gradient[i, k]
            _keep(table, carry, row, k, value)


@compiled
def add_carrying(table: Floats, carry: Floats, row: int, factor: np.float32, source: Floats, i: int) -> None:
    """Add factor · source[i] to a row of a table with its carry."""
    width = table.shape[1]
    whole = width - width % LANES
    times = every(factor)
    for k in range(0, whole, LANES):
        x, change = load(table, row, k), load(carry, row, k) + times * load(source, i, k)
        moved = x + change
        part = moved - x
        store(table, row, k, moved)
        store(carry, row, k, (x - (moved - part)) + (change - part))
    for k in range(whole, width):
        value = np.float64(table[row, k]) + np.float64(carry[row, k]) + np.float64(factor * source[i, k])
        _keep(table, carry, row, k, value)


@compiled
def _keep(table: Floats, carry: Floats, row: int, k: int, value: float) -> None:
    table[row, k] = np.float32(value)
    carry[row, k] = np.float32(value - np.float64(table[row, k]))
