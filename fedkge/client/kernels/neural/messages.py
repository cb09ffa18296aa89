"""Messages along edges, summed at their receivers, and what gradients at the sums say of rows that sent them.

What a relation does to a message is linear, so that messages of one relation into one entity are added up
first, and the relation acts on their sum. Each kernel has its backward pass beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedkge.client.kernels.arrays import Floats, Ids, Offsets
from fedkge.client.kernels.compiled import compiled

__all__ = [
    "Bundles",
    "correlate",
    "correlate_backward",
    "mix",
    "mix_backward",
    "multiply",
    "multiply_backward",
    "subtract",
    "subtract_backward",
]


class Bundles(NamedTuple):
    """Edges by receiver, and among those by relation: all of one relation into one entity are a bundle."""

    starts: Offsets  # (n + 1,) the bundles into entity i are starts[i]:starts[i + 1]
    relations: Ids  # (b,) of each bundle
    stops: Offsets  # (b + 1,) the edges of bundle b are stops[b]:stops[b + 1]
    senders: Ids  # (e,)


@compiled
def subtract(edges: Bundles, shares: Floats, x: Floats, z: Floats, out: Floats) -> None:
    """out[i] = Σ share · (x of the sender − z of the relation).

    Args:
        shares: (e,) what each message counts.
        x: (n, w) rows of entities.
        z: (m, w) rows of relations.
        out: (n, w) written.
    """
    total = np.empty(x.shape[1], dtype=np.float32)
    for i in range(out.shape[0]):
        received = out[i]
        received[:] = 0
        for b in range(edges.starts[i], edges.starts[i + 1]):
            weight = _add_up(edges, shares, b, x, total)
            row = z[edges.relations[b]]
            for k in range(total.shape[0]):
                received[k] += total[k] - weight * row[k]


@compiled
def subtract_backward(
    edges: Bundles, shares: Floats, _x: Floats, _z: Floats, at_out: Floats, at_x: Floats, at_z: Floats
) -> None:
    """Adds to `at_x` and `at_z`; the rows themselves do not matter."""
    for i in range(at_out.shape[0]):
        g = at_out[i]
        for b in range(edges.starts[i], edges.starts[i + 1]):
            weight = np.float32(0)
            for e in range(edges.stops[b], edges.stops[b + 1]):
                weight += shares[e]
            at_row = at_z[edges.relations[b]]
            for k in range(g.shape[0]):
                at_row[k] -= weight * g[k]
            _hand_back(edges, shares, b, g, at_x)


@compiled
def multiply(edges: Bundles, shares: Floats, x: Floats, z: Floats, out: Floats) -> None:
    """out[i] = Σ share · x of the sender ∘ z of the relation; as `subtract`."""
    total = np.empty(x.shape[1], dtype=np.float32)
    for i in range(out.shape[0]):
        received = out[i]
        received[:] = 0
        for b in range(edges.starts[i], edges.starts[i + 1]):
            _add_up(edges, shares, b, x, total)
            row = z[edges.relations[b]]
            for k in range(total.shape[0]):
                received[k] += total[k] * row[k]


@compiled
def multiply_backward(
    edges: Bundles, shares: Floats, x: Floats, z: Floats, at_out: Floats, at_x: Floats, at_z: Floats
) -> None:
    """Adds to `at_x` and `at_z`."""
    total, part = np.empty(x.shape[1], dtype=np.float32), np.empty(x.shape[1], dtype=np.float32)
    for i in range(at_out.shape[0]):
        g = at_out[i]
        for b in range(edges.starts[i], edges.starts[i + 1]):
            _add_up(edges, shares, b, x, total)
            row, at_row = z[edges.relations[b]], at_z[edges.relations[b]]
            for k in range(g.shape[0]):
                at_row[k] += g[k] * total[k]
                part[k] = g[k] * row[k]
            _hand_back(edges, shares, b, part, at_x)


@compiled
def correlate(edges: Bundles, shares: Floats, x: Floats, z: Floats, out: Floats) -> None:
    """out[i] = Σ share · conj(x of the sender) ∘ z of the relation, of complex rows: real parts first."""
    total, half = np.empty(x.shape[1], dtype=np.float32), x.shape[1] // 2
    for i in range(out.shape[0]):
        received = out[i]
        received[:] = 0
        for b in range(edges.starts[i], edges.starts[i + 1]):
            _add_up(edges, shares, b, x, total)
            row = z[edges.relations[b]]
            for k in range(half):
                p, q = total[k], total[half + k]
                u, v = row[k], row[half + k]
                received[k] += p * u + q * v
                received[half + k] += p * v - q * u


@compiled
def correlate_backward(
    edges: Bundles, shares: Floats, x: Floats, z: Floats, at_out: Floats, at_x: Floats, at_z: Floats
) -> None:
    """Adds to `at_x` and `at_z`."""
    total, part = np.empty(x.shape[1], dtype=np.float32), np.empty(x.shape[1], dtype=np.float32)
    half = x.shape[1] // 2
    for i in range(at_out.shape[0]):
        g = at_out[i]
        for b in range(edges.starts[i], edges.starts[i + 1]):
            _add_up(edges, shares, b, x, total)
            row, at_row = z[edges.relations[b]], at_z[edges.relations[b]]
            for k in range(half):
                p, q = total[k], total[half + k]
                u, v = row[k], row[half + k]
                f, h = g[k], g[half + k]
                at_row[k] += f * p - h * q
                at_row[half + k] += f * q + h * p
                part[k] = f * u + h * v
                part[half + k] = f * v - h * u
            _hand_back(edges, shares, b, part, at_x)


@compiled
def mix(edges: Bundles, shares: Floats, x: Floats, z: Floats, out: Floats) -> None:
    """out[i] = Σ share · c ⊗ x of the sender, where c are the relation's numbers, one for each basis.

    Args:
        z: (m, bases).
        out: (n, bases · w) written, basis after basis.
    """
    width = x.shape[1]
    total = np.empty(width, dtype=np.float32)
    for i in range(out.shape[0]):
        received = out[i]
        received[:] = 0
        for b in range(edges.starts[i], edges.starts[i + 1]):
            _add_up(edges, shares, b, x, total)
            for c in range(z.shape[1]):
                factor, part = z[edges.relations[b], c], received[c * width : (c + 1) * width]
                for k in range(width):
                    part[k] += factor * total[k]


@compiled
def mix_backward(
    edges: Bundles, shares: Floats, x: Floats, z: Floats, at_out: Floats, at_x: Floats, at_z: Floats
) -> None:
    """Adds to `at_x` and `at_z`."""
    width = x.shape[1]
    total, part = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    for i in range(at_out.shape[0]):
        for b in range(edges.starts[i], edges.starts[i + 1]):
            _add_up(edges, shares, b, x, total)
            part[:] = 0
            for c in range(z.shape[1]):
                factor, g = z[edges.relations[b], c], at_out[i, c * width : (c + 1) * width]
                slope = np.float32(0)
                for k in range(width):
                    slope += g[k] * total[k]
                for k in range(width):  # apart: a loop that sums and stores may sum in another order
                    part[k] += factor * g[k]
                at_z[edges.relations[b], c] += slope
            _hand_back(edges, shares, b, part, at_x)


@compiled
def _add_up(edges: Bundles, shares: Floats, bundle: int, x: Floats, total: Floats) -> np.float32:
    """The senders' rows by their shares; returned is the sum of these."""
    total[:] = 0
    weight = np.float32(0)
    for e in range(edges.stops[bundle], edges.stops[bundle + 1]):
        share, row = shares[e], x[edges.senders[e]]
        weight += share
        for k in range(total.shape[0]):
            total[k] += share * row[k]
    return weight


@compiled
def _hand_back(edges: Bundles, shares: Floats, bundle: int, part: Floats, at_x: Floats) -> None:
    """To each sender of a bundle its share of a gradient."""
    for e in range(edges.stops[bundle], edges.stops[bundle + 1]):
        share, row = shares[e], at_x[edges.senders[e]]
        for k in range(part.shape[0]):
            row[k] += share * part[k]
