"""The two reconstruction attacks of the registry."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedkge.attacks.assessment import Assessment
from fedkge.attacks.attack import Attack, Protocol
from fedkge.attacks.findings import Finding
from fedkge.attacks.reconstruction.as_published import published
from fedkge.attacks.reconstruction.rigorous import rigorous
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import View

__all__ = ["Procrustes", "Reconstruction"]


class Reconstruction(Attack):
    """Entities by cosine, relations by inverting the query, triples from both (Algorithm 2 of FedR)."""

    name: ClassVar[str] = "reconstruction"
    rotates: ClassVar[bool] = False  # whether two embedding spaces are superposed before rows are compared

    def assess(self, view: View, truth: Truth, protocol: Protocol, rng: np.random.Generator) -> list[Finding]:
        findings: list[Finding] = []
        for target in view.targets:
            assessment = Assessment(self.name, protocol, view, target, findings)
            if protocol == "paper":
                published(assessment, truth, self.rotates)
            else:
                rigorous(assessment, truth, rng, self.rotates)
        return findings


class Procrustes(Reconstruction):
    """Reconstruction after superposing the two embedding spaces, a stronger attacker than the paper's."""

    name = "procrustes"
    rotates = True
