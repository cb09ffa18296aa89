"""Malicious clients: what they do around the honest client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fedkge.plugins import Registry

if TYPE_CHECKING:
    from flwr.clientapp.typing import Mod

__all__ = ["BEHAVIOURS", "Behaviour"]


class Behaviour(Protocol):
    """What makes a client malicious: it reads a plan, and gives the Flower mod that carries it out.

    A client behaves so if its node config has the behaviour's name with the path of a plan.
    """

    def load(self, path: Path) -> Mod:
        """The mod around the honest ClientApp."""


BEHAVIOURS: Registry[Behaviour] = Registry(
    "behaviour", "fedkge.behaviours", {"tampering": "fedkge.attacks.behaviours.tampering:Tampering"}
)
