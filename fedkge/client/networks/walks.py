"""Random walks as pairs of a vertex and one that is near it on a walk (Perozzi et al., 2014)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["random_walks", "walk_pairs"]

Vertices = NDArray[np.int32]


def random_walks(adjacency: Any, walks: int, length: int, rng: np.random.Generator) -> Vertices:
    """(n · walks, length) walks from every vertex; one that cannot go on stays where it is."""
    starts, targets = adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int32)
    degrees = np.diff(starts)
    paths = np.empty((walks * len(degrees), length), dtype=np.int32)
    paths[:, 0] = np.tile(np.arange(len(degrees), dtype=np.int32), walks)
    for step in range(1, length):
        here = paths[:, step - 1]
        chosen = (rng.random(len(here)) * degrees[here]).astype(np.int64)
        moves = degrees[here] > 0
        paths[:, step] = here
        paths[moves, step] = targets[(starts[here] + chosen)[moves]]
    return paths


def walk_pairs(paths: Vertices, window: int) -> NDArray[np.int32]:
    """(m, 2) every vertex of a walk with each other vertex at most so many steps before or after it."""
    pairs = []
    for gap in range(1, min(window, paths.shape[1] - 1) + 1):
        first, second = paths[:, :-gap].ravel(), paths[:, gap:].ravel()
        different = first != second
        forwards = np.stack([first[different], second[different]], axis=1)
        pairs += [forwards, forwards[:, ::-1]]
    return np.concatenate(pairs) if pairs else np.empty((0, 2), dtype=np.int32)
