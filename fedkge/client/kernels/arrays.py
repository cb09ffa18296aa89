"""The array types that models, kernels and optimisers share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Ids", "Offsets"]

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]
Offsets = NDArray[np.int64]
