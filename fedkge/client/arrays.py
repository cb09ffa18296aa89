"""The array types that models, kernels and optimisers share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Ids", "Offsets", "Pairs"]

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]
Offsets = NDArray[np.int64]


class Pairs(NamedTuple):
    """The candidates of a batch, grouped by the table row that they name; a pair is (triple, candidate)."""

    starts: Offsets  # (rows + 1,) the pairs of row i are starts[i]:starts[i + 1]
    places: Ids  # (p,) where the pair stands in the flat (batch, candidates) array
    owners: Ids  # (p,) the triple that the pair belongs to
