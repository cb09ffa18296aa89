"""The contract of an attack: it turns a View into findings, and leaves the truth to scoring."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import numpy as np

from fedkge.attacks.findings import Finding
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import View
from fedkge.experiment import NoOptions, Settings

__all__ = ["PROTOCOLS", "Attack", "Protocol"]

Protocol = Literal["paper", "rigorous"]
PROTOCOLS: tuple[Protocol, ...] = ("paper", "rigorous")


class Attack(ABC):
    """One way to attack a View; what computes the attack is apart from what scores it.

    Subclass it, write `assess`, and put the class into ATTACKS or behind an entry point "fedkge.attacks".
    """

    every_round: ClassVar[bool] = False  # whether it needs adversary.record = "every"
    acts: ClassVar[bool] = False  # whether it needs a run in which it acts, in place of a recorded one
    Options: ClassVar[type[Settings]] = NoOptions  # the schema of [adversary.options.<name of the attack>]

    def __init__(self, options: Settings | None = None) -> None:
        self.options = self.Options() if options is None else options

    @staticmethod
    def refusal(name: str, experiment: str = "EXPERIMENT.toml") -> str:
        """What to say where an attack that acts is put to a record."""
        return (
            f"attack '{name}' acts in a run of its own, and cannot attack what was recorded of an honest "
            f"one; give it the experiment: fedkge attack {experiment} --attack {name}"
        )

    @abstractmethod
    def assess(self, view: View, truth: Truth, protocol: Protocol, rng: np.random.Generator) -> list[Finding]:
        """Attack every other client.

        Args:
            view: all that the adversary has.
            truth: the clients' graphs, to grant candidates and to score; no guess may depend on it otherwise.
            protocol: "paper" for the published metrics, "rigorous" for those that hold up.
            rng: the only randomness.
        """
