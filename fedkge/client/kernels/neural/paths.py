"""Paths of two edges, for encoders that look further than a neighbour."""

from __future__ import annotations

import numpy as np

from fedkge.client.kernels.arrays import Ids, Offsets
from fedkge.client.kernels.compiled import compiled

__all__ = ["two_hop_paths"]


def two_hop_paths(triples: Ids, num_entities: int, most: int | None = None) -> Ids:
    """(p, 4) start, first relation, second relation and end of a path to every entity two edges away.

    As Nathani et al. (2019) find them: breadth first along the edges' direction, neighbours in the order of
    their first triple, so that one path leads to each end. Of several relations between two entities the
    last one counts. `most` bounds the ends of a start.
    """
    head, relation, tail = triples.T.astype(np.int64)
    pairs, first = np.unique(head * num_entities + tail, return_index=True)
    last = len(triples) - 1 - np.unique((head * num_entities + tail)[::-1], return_index=True)[1]
    order = np.lexsort([first, pairs // max(num_entities, 1)])
    starts = np.searchsorted(pairs[order] // max(num_entities, 1), np.arange(num_entities + 1))
    targets = (pairs[order] % max(num_entities, 1)).astype(np.int32)
    relations = relation[last[order]].astype(np.int32)
    graph = starts.astype(np.int64), targets, relations
    bound = num_entities if most is None else most
    paths = np.empty((_walk(*graph, bound, np.empty((0, 4), dtype=np.int32)), 4), dtype=np.int32)
    _walk(*graph, bound, paths)
    return paths


@compiled
def _walk(starts: Offsets, targets: Ids, relations: Ids, most: int, paths: Ids) -> int:
    """Count the paths, and write them down where there is room."""
    count = 0
    met_from = np.full(len(starts) - 1, -1, dtype=np.int32)  # the last start that reached an entity
    for start in range(len(starts) - 1):
        met_from[start] = start
        for e in range(starts[start], starts[start + 1]):
            met_from[targets[e]] = start
        found = 0
        for e in range(starts[start], starts[start + 1]):
            for f in range(starts[targets[e]], starts[targets[e] + 1]):
                end = targets[f]
                if met_from[end] == start or found == most:
                    continue
                met_from[end] = start
                if count < len(paths):
                    paths[count, 0], paths[count, 1] = start, relations[e]
                    paths[count, 2], paths[count, 3] = relations[f], end
                found += 1
                count += 1
    return count
