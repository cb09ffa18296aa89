"""Membership inference by adversaries that act: they need a run of their own, not a record."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from fedkge.attacks.attack import Attack, Protocol
from fedkge.attacks.findings import Finding
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import View
from fedkge.errors import InputError
from fedkge.experiment import Settings

__all__ = ["ActingAttack", "ActiveMembership", "TamperedMembership"]


class ActingAttack(Attack):
    """An attack that changes what others do; a recorded run shows what they did without it."""

    acts = True
    name: ClassVar[str]  # in ATTACKS

    def assess(self, view: View, truth: Truth, protocol: Protocol, rng: np.random.Generator) -> list[Finding]:
        del view, truth, protocol, rng
        raise InputError(self.refusal(self.name))


class ActiveMembership(ActingAttack):
    """A malicious server pushes triples apart in what it sends, and watches whose training repairs them."""

    name = "active"

    class Options(Settings):
        section = "adversary.options.active"
        strength: float = Field(
            default=0.3, ge=0, allow_inf_nan=False, description="how far rows are moved, in mean lengths"
        )
        first: int = Field(
            default=0, ge=0, description="round from which on it acts in every second one; 0: from half on"
        )

    options: Options


class TamperedMembership(ActingAttack):
    """A malicious client pushes triples apart in one round, and watches whether the others repair them."""

    name = "tampering"

    class Options(Settings):
        section = "adversary.options.tampering"
        strength: float = Field(
            default=0.3, ge=0, allow_inf_nan=False, description="how far rows are moved, in mean lengths"
        )
        round: int = Field(default=0, ge=0, description="in which it tampers; 0: three quarters through")

    options: Options
