"""Which values follow a key (true tails of a head and relation, true heads of a tail), as compressed rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.triple_keys import distinct

__all__ = ["Lookup"]


@dataclass(frozen=True, eq=False)
class Lookup:
    """The sorted, distinct values of every (entity, relation) key, stored as one array and its offsets."""

    keys: NDArray[np.int64]  # (k,) entity * num_relations + relation, ascending
    offsets: NDArray[np.int64]  # (k + 1,) values[offsets[i]:offsets[i + 1]] belong to keys[i]
    values: NDArray[np.int32]  # (m,)
    num_relations: int

    @classmethod
    def build(
        cls,
        entity: NDArray[np.int32],
        relation: NDArray[np.int32],
        value: NDArray[np.int32],
        num_relations: int,
    ) -> Lookup:
        width = int(value.max(initial=0)) + 1
        flat = (entity.astype(np.int64) * num_relations + relation) * width + value  # (n,)
        flat = distinct(flat)
        owner = flat // width
        starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])) if len(owner) else owner
        offsets = np.append(starts, len(flat)).astype(np.int64)
        return cls(owner[starts], offsets, (flat - owner * width).astype(np.int32), num_relations)

    def spans(
        self, entity: NDArray[np.int32], relation: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where in `values` the values of each key start and stop (empty for an unknown key)."""
        wanted = entity.astype(np.int64) * self.num_relations + relation
        row = np.searchsorted(self.keys, wanted)
        inside = np.minimum(row, max(len(self.keys) - 1, 0))
        known = self.keys[inside] == wanted if len(self.keys) else np.zeros(len(wanted), dtype=bool)
        starts = np.where(known, self.offsets[inside], 0)
        stops = np.where(known, self.offsets[np.minimum(inside + 1, len(self.keys))], 0)
        return starts, stops

    def of(self, entity: int, relation: int) -> NDArray[np.int32]:
        """The values of one key, ascending."""
        start, stop = self.spans(np.array([entity], dtype=np.int32), np.array([relation], dtype=np.int32))
        return self.values[start[0] : stop[0]]
