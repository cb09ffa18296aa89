"""The random generator of a draw."""

from __future__ import annotations

import numpy as np

from fedkge.errors import SettingError

__all__ = ["generator"]


def generator(seed: int, *words: int) -> np.random.Generator:
    """A generator for a seed and the words that tell this draw from others."""
    if seed < 0:
        raise SettingError(f"seed = {seed}: expected 0 or more")
    return np.random.default_rng([seed, *words])
