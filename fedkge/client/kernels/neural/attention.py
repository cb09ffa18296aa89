"""Attention over incoming edges: what each entity receives, and how that depends on what was sent.

A message is a sum of three rows, of its receiver, its sender and its relations, and so is its logit. Only the
senders' rows are added up along edges: all others are the same for many edges, and weights are enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedkge.client.kernels.arrays import Floats, Ids, Offsets
from fedkge.client.kernels.compiled import compiled

__all__ = ["SLOPE", "Edges", "Logits", "Received", "attend", "attend_backward"]

SLOPE = 0.2  # of LeakyReLU below zero
_SLOPE = np.float32(SLOPE)


class Edges(NamedTuple):
    """Edges by their receiver; a path of two edges is one that has two relations."""

    starts: Offsets  # (n + 1,) the edges into entity i are starts[i]:starts[i + 1]
    senders: Ids  # (e,)
    first: Ids  # (e,) a relation
    second: Ids  # (e,) the other relation of a path, −1 for a plain edge


class Logits(NamedTuple):
    """What the parts of a message add to its logit."""

    receiver: Floats  # (n, heads)
    sender: Floats  # (n, heads)
    relation: Floats  # (m, heads)


class Received(NamedTuple):
    """What entities receive: sums by shares over the edges into them."""

    sent: Floats  # (n, w) of the senders' rows; head k has the k-th part of the columns
    relations: Floats  # (n, heads, m) how much of each relation's row
    total: Floats  # (n, heads) how much of the receiver's own row: 1 if nothing is dropped


@compiled
def attend(
    edges: Edges, logits: Logits, senders: Floats, kept: Floats, shares: Floats, received: Received
) -> None:
    """Sum by shares: the softmax of −LeakyReLU(logit) over the edges into an entity.

    Args:
        senders: (n, w)
        kept: (e, heads) what dropout multiplies a share by
        shares: (e, heads) written, before dropout
        received: zeros, written
    """
    heads = shares.shape[1]
    width = senders.shape[1] // heads
    for t in range(len(edges.starts) - 1):
        for k in range(heads):
            _share(edges, logits, t, k, shares)
            out = received.sent[t, k * width : (k + 1) * width]
            for e in range(edges.starts[t], edges.starts[t + 1]):
                share = shares[e, k] * kept[e, k]
                received.total[t, k] += share
                received.relations[t, k, edges.first[e]] += share
                if edges.second[e] >= 0:
                    received.relations[t, k, edges.second[e]] += share
                row = senders[edges.senders[e], k * width : (k + 1) * width]
                for c in range(width):
                    out[c] += share * row[c]


@compiled
def attend_backward(
    edges: Edges,
    logits: Logits,
    senders: Floats,
    kept: Floats,
    shares: Floats,
    at_received: Received,
    at_logits: Logits,
    at_senders: Floats,
) -> None:
    """From the gradient at what was received to those at logits and senders, which are zeros before."""
    heads = shares.shape[1]
    width = senders.shape[1] // heads
    along = np.empty(len(shares), dtype=np.float32)  # the gradient at a share
    for t in range(len(edges.starts) - 1):
        start, stop = edges.starts[t], edges.starts[t + 1]
        for k in range(heads):
            g = at_received.sent[t, k * width : (k + 1) * width]
            mean = np.float32(0)
            for e in range(start, stop):
                share = shares[e, k] * kept[e, k]
                row = senders[edges.senders[e], k * width : (k + 1) * width]
                at_row = at_senders[edges.senders[e], k * width : (k + 1) * width]
                slope = at_received.total[t, k] + at_received.relations[t, k, edges.first[e]]
                if edges.second[e] >= 0:
                    slope += at_received.relations[t, k, edges.second[e]]
                for c in range(width):
                    slope += g[c] * row[c]
                for c in range(width):
                    at_row[c] += share * g[c]
                along[e] = slope * kept[e, k]
                mean += shares[e, k] * along[e]
            for e in range(start, stop):
                slope = _SLOPE if _logit(edges, logits, t, e, k) < 0 else np.float32(1)
                at_logit = slope * shares[e, k] * (mean - along[e])
                at_logits.receiver[t, k] += at_logit
                at_logits.sender[edges.senders[e], k] += at_logit
                at_logits.relation[edges.first[e], k] += at_logit
                if edges.second[e] >= 0:
                    at_logits.relation[edges.second[e], k] += at_logit


@compiled
def _share(edges: Edges, logits: Logits, t: int, k: int, shares: Floats) -> None:
    start, stop = edges.starts[t], edges.starts[t + 1]
    top = np.float32(-np.inf)
    for e in range(start, stop):
        b = _logit(edges, logits, t, e, k)
        shares[e, k] = -b * (_SLOPE if b < 0 else np.float32(1))
        top = max(top, shares[e, k])
    total = np.float32(0)
    for e in range(start, stop):
        shares[e, k] = np.exp(shares[e, k] - top)
        total += shares[e, k]
    for e in range(start, stop):
        shares[e, k] /= total


@compiled
def _logit(edges: Edges, logits: Logits, t: int, e: int, k: int) -> np.float32:
    logit = logits.receiver[t, k] + logits.sender[edges.senders[e], k] + logits.relation[edges.first[e], k]
    if edges.second[e] >= 0:
        logit += logits.relation[edges.second[e], k]
    return np.float32(logit)
