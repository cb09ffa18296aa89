"""What an adversary can do with what it saw; honest code never imports this package.

Attacks take seconds to import, so each is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedkge.attacks.findings import Finding
from fedkge.plugins import Registry

if TYPE_CHECKING:
    from fedkge.attacks.attack import PROTOCOLS, Attack, Protocol
    from fedkge.attacks.truth import Truth
    from fedkge.attacks.view import View

__all__ = ["ATTACKS", "PROTOCOLS", "Attack", "Finding", "Protocol", "Truth", "View"]

ATTACKS: Registry[type[Attack]] = Registry(
    "attack",
    "fedkge.attacks",
    {
        "reconstruction": "fedkge.attacks.reconstruction.variants:Reconstruction",
        "procrustes": "fedkge.attacks.reconstruction.variants:Procrustes",
        "naming": "fedkge.attacks.naming.seeded_rows:Naming",
        "membership": "fedkge.attacks.membership.federated.in_federation:Membership",
        "active": "fedkge.attacks.membership.federated.acting:ActiveMembership",
        "tampering": "fedkge.attacks.membership.federated.acting:TamperedMembership",
        "holdings": "fedkge.attacks.holdings.triple_counts:Holdings",
    },
)

_HOMES = {"PROTOCOLS": "attack", "Attack": "attack", "Protocol": "attack", "Truth": "truth", "View": "view"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedkge.attacks' has no attribute '{name}'")
    return getattr(import_module(f"fedkge.attacks.{_HOMES[name]}"), name)
