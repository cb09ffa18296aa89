"""A game: was this released by the network with the edge, or by the one without? ε bounds who can tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.intervals import proportion
from fedkge.client.privacy.normals import SECRET_BYTES, Keystream
from fedkge.errors import SettingError

__all__ = ["GameResult", "Statistic", "ceiling", "play", "verdict"]

# Releases once, from the network with the edge or without, and says how much it looks like the former.
Statistic = Callable[[bool, Keystream], float]
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class GameResult:
    """What a threshold that was chosen on other draws tells, and the ε that this proves at least."""

    claimed: float
    delta: float
    hits: int  # releases with the edge that were told so
    alarms: int  # releases without it that were told to have it
    draws: int  # of either network
    at_least: float  # with 95 % confidence

    @property
    def refuted(self) -> bool:
        """Whether the claim is proven wrong."""
        return self.at_least > self.claimed


def ceiling(draws: int, delta: float = 0.0) -> float:
    """The ε that so many draws of either network prove at most: every one of them was told right."""
    everything = np.ones(draws)
    return verdict(everything, np.zeros(draws), (0.5, True), 0.0, delta).at_least


def play(statistic: Statistic, claimed: float, draws: int, seed: int, delta: float = 0.0) -> GameResult:
    """Release so many times from either network to choose a threshold, and as often to test it."""
    if draws < 2:
        raise SettingError(f"{draws} draws: a game needs 2 at least of either network")
    rng = np.random.default_rng(seed)

    def released(joined: bool) -> Scores:
        streams = (Keystream(rng.bytes(SECRET_BYTES)) for _ in range(draws))
        return np.array([statistic(joined, stream) for stream in streams])

    threshold = best_threshold(released(True), released(False), delta)
    return verdict(released(True), released(False), threshold, claimed, delta)


def best_threshold(joined: Scores, without: Scores, delta: float) -> tuple[float, bool]:
    """The threshold that proves most, and whether scores above it are told to have the edge."""
    values = np.unique(np.concatenate([joined, without]))
    middles = np.concatenate([(values[1:] + values[:-1]) / 2, values[-1:]])
    if len(middles) > 200:
        middles = middles[np.linspace(0, len(middles) - 1, 200).astype(int)]
    choices = [(float(value), above) for value in middles for above in (True, False)]
    return max(choices, key=lambda choice: verdict(joined, without, choice, 0.0, delta).at_least)


def verdict(
    joined: Scores, without: Scores, threshold: tuple[float, bool], claimed: float, delta: float = 0.0
) -> GameResult:
    """What scores of either network prove: hits ≤ e^ε alarms + δ, both ends by Clopper and Pearson."""
    value, above = threshold
    hits = int((joined > value).sum() if above else (without <= value).sum())
    alarms = int((without > value).sum() if above else (joined <= value).sum())
    draws = min(len(joined), len(without))
    low, high = proportion(hits, draws)[0], proportion(alarms, draws)[1]
    at_least = log((low - delta) / high) if low - delta > high else 0.0
    return GameResult(claimed, delta, hits, alarms, draws, at_least)
