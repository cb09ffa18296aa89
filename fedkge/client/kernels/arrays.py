"""The array types that models, kernels and optimisers share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Doubles", "Floats", "Ids", "Offsets", "ScoredRows"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ids = NDArray[np.int32]
Offsets = NDArray[np.int64]


class ScoredRows(NamedTuple):
    """The rows that are scored, whatever they were encoded from."""

    entities: Floats  # (entities, w)
    relations: Floats  # (relations, v); v = 0 where a model has no relations
