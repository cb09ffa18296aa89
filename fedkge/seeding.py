"""Random generators: one seed, and who draws, when and for what."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedkge.errors import SettingError

__all__ = ["draw", "generator"]

Purpose = Literal["train", "sample", "dropout", "start", "scoring"]
_PURPOSES: tuple[Purpose, ...] = ("train", "sample", "dropout", "start", "scoring")
SERVER = 2**31  # no client has this number


def draw(seed: int, *words: int) -> np.random.Generator:
    """A generator for a seed and the words that tell this draw from others."""
    if seed < 0:
        raise SettingError(f"seed = {seed}: expected 0 or more")
    return np.random.default_rng([seed, *words])


def generator(seed: int, purpose: Purpose, round: int, client: int = SERVER) -> np.random.Generator:
    """A generator for one client's part in one round: every engine and every resumed run agree on it."""
    place = (client, round, _PURPOSES.index(purpose))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=place))
