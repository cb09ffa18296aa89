"""What an adversary can do with what it saw; honest code never imports this package."""

from __future__ import annotations

from fedkge.attacks.attack import PROTOCOLS, Attack, Protocol
from fedkge.attacks.findings import Finding
from fedkge.attacks.membership.in_federation import Membership
from fedkge.attacks.reconstruct import Procrustes, Reconstruction
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import View

__all__ = ["ATTACKS", "PROTOCOLS", "Attack", "Finding", "Protocol", "Truth", "View"]

ATTACKS: dict[str, type[Attack]] = {
    "reconstruction": Reconstruction,
    "procrustes": Procrustes,
    "membership": Membership,
}
