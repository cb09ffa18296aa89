"""Random generators by purpose: one seed, and who draws, when and for what."""

from __future__ import annotations

from typing import Literal

import numpy as np

__all__ = ["generator"]

Purpose = Literal["train", "sample", "dropout"]
_PURPOSES: tuple[Purpose, ...] = ("train", "sample", "dropout")
SERVER = 2**31  # no client has this number


def generator(seed: int, purpose: Purpose, round: int, client: int = SERVER) -> np.random.Generator:
    """A generator that depends on its arguments alone, so that every engine and every resumed run agree."""
    return np.random.default_rng(
        np.random.SeedSequence(seed, spawn_key=(client, round, _PURPOSES.index(purpose)))
    )
