"""What an adversary can do with what it saw; honest code never imports this package."""

from __future__ import annotations

from fedkge.attacks.attack import PROTOCOLS, Attack, Protocol
from fedkge.attacks.findings import Finding
from fedkge.attacks.membership.federated.in_federation import Membership
from fedkge.attacks.reconstruction.variants import Procrustes, Reconstruction
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import View
from fedkge.plugins import Registry

__all__ = ["ATTACKS", "PROTOCOLS", "Attack", "Finding", "Protocol", "Truth", "View"]

ATTACKS: Registry[type[Attack]] = Registry(
    "attack",
    "fedkge.attacks",
    {"reconstruction": Reconstruction, "procrustes": Procrustes, "membership": Membership},
)
