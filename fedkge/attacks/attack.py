"""The contract of an attack: it turns a View into findings, and leaves the truth to scoring."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import numpy as np

from fedkge.attacks.findings import Finding
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import View

__all__ = ["PROTOCOLS", "Attack", "Protocol"]

Protocol = Literal["paper", "rigorous"]
PROTOCOLS: tuple[Protocol, ...] = ("paper", "rigorous")


class Attack(ABC):
    """One way to attack a View; what computes the attack is apart from what scores it."""

    every_round: ClassVar[bool] = False  # whether it needs adversary.record = "every"

    @abstractmethod
    def assess(self, view: View, truth: Truth, protocol: Protocol, rng: np.random.Generator) -> list[Finding]:
        """Attack every other client; the truth serves to grant candidates and to score."""
