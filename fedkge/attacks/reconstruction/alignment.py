"""Which known row an unnamed row belongs to: the nearest by cosine, after a rotation if wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import orthogonal_procrustes

__all__ = ["Matches", "mutual", "nearest", "ranks", "superpose", "unit"]

Values = NDArray[np.float32]
Indices = NDArray[np.int64]

_BLOCK = 1024  # rows whose similarities to the whole pool are in memory at once
_STEPS = 5


@dataclass(frozen=True, eq=False)
class Matches:
    """For each row the nearest rows of the pool, the nearest first."""

    indices: Indices  # (n, k)
    similarity: Values  # (n, k)


def unit(rows: Values) -> Values:
    """Rows of length one; a row of zeros stays one."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Values = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return scaled


def nearest(rows: Values, pool: Values, k: int = 1) -> Matches:
    """The k most similar rows of the pool by cosine, as Algorithm 2 of FedR compares them."""
    k = min(k, len(pool))
    indices = np.empty((len(rows), k), dtype=np.int64)
    similarity = np.empty((len(rows), k), dtype=np.float32)
    for block, compared in _similarities(rows, pool):
        indices[block], similarity[block] = _largest(compared, k)
    return Matches(indices, similarity)


def mutual(rows: Values, pool: Values) -> tuple[Indices, Indices]:
    """Pairs of rows that are each other's nearest: (indices of rows, indices of the pool)."""
    there = nearest(rows, pool).indices[:, 0]
    back = nearest(pool, rows).indices[:, 0]
    here = np.flatnonzero(back[there] == np.arange(len(rows)))
    return here, there[here]


def ranks(rows: Values, pool: Values, right: Indices) -> Indices:
    """How many rows of the pool are more similar than the right one, for each row, plus one."""
    rank = np.empty(len(rows), dtype=np.int64)
    for block, compared in _similarities(rows, pool):
        bar = np.take_along_axis(compared, right[block, None], axis=1)
        rank[block] = 1 + (compared > bar).sum(axis=1)
    return rank


def superpose(
    rows: Values, pool: Values, anchors: tuple[Indices, Indices] | None = None
) -> tuple[Values, Values]:
    """Two spaces moved and turned onto each other, so that the same elements come to lie together.

    With anchors (rows known to be the same) this is one orthogonal Procrustes problem (Schönemann, 1966).
    Without, mutual nearest neighbours serve as anchors, found anew after each turn.
    """
    if anchors is not None:
        return _rotated(rows, pool, anchors)
    moved, still = rows - rows.mean(axis=0), pool - pool.mean(axis=0)
    for _ in range(_STEPS):
        pairs = mutual(moved, still)
        if len(pairs[0]) < 2:
            break
        moved, still = _rotated(moved, still, pairs)
    return moved, still


def _rotated(rows: Values, pool: Values, anchors: tuple[Indices, Indices]) -> tuple[Values, Values]:
    here, there = anchors
    moved = rows - rows[here].mean(axis=0)
    still = pool - pool[there].mean(axis=0)
    rotation, _ = orthogonal_procrustes(moved[here].astype(np.float64), still[there].astype(np.float64))
    return (moved @ rotation).astype(np.float32), still


def _similarities(rows: Values, pool: Values) -> Iterator[tuple[slice, Values]]:
    """Cosines of blocks of rows with the whole pool."""
    left, right = unit(rows), np.ascontiguousarray(unit(pool).T)
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, min(start + _BLOCK, len(rows)))
        yield block, left[block] @ right


def _largest(compared: Values, k: int) -> tuple[Indices, Values]:
    """The k largest of each line, the largest first."""
    if k == 1:
        indices = compared.argmax(axis=1)[:, None]
    else:
        indices = np.argpartition(-compared, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(compared, indices, axis=1), axis=1, kind="stable")
        indices = np.take_along_axis(indices, order, axis=1)
    return indices.astype(np.int64), np.take_along_axis(compared, indices, axis=1)
