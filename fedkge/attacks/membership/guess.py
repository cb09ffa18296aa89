"""What an attack says about the triples it was asked about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Guess", "Values"]

Values = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Guess:
    """How sure it is that each triple was trained on, and its yes or no."""

    certainty: Values  # (n,) higher: more likely a member; the order is all that counts
    member: Bools  # (n,)
