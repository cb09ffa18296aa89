"""What both sides derive from the session's secrets: mask keys, commitments, statements to sign."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from fedkge.crypto.channels import pair
from fedkge.crypto.keys import EphemeralKey, derive_key

__all__ = [
    "BINDING_SIZE",
    "UNBOUND",
    "bound_key",
    "commitment",
    "delivery_statement",
    "pairwise_mask_key",
    "pairwise_sign",
    "self_mask_key",
    "survivor_statement",
]

BINDING_SIZE = 32
UNBOUND = bytes(BINDING_SIZE)  # the binding of a sum before which nobody was told anything


def pairwise_mask_key(key: EphemeralKey, session: bytes, mine: int, other: int, public: bytes) -> bytes:
    """What two clients have in common for their mask, before they know what they will have acted on."""
    info = b"fedkge mask" + session + pair(min(mine, other), max(mine, other))
    return key.agree(public, info, f"client {other}")


def bound_key(key: bytes, binding: bytes) -> bytes:
    """The key of the mask that cancels between two clients, if both acted on the same (HKDF-Expand)."""
    return hmac.digest(key, b"fedkge bound mask" + binding + b"\1", "sha256")


def pairwise_sign(mine: int, other: int) -> int:
    """The lower client adds the common mask, the higher one subtracts it."""
    return 1 if mine < other else -1


def self_mask_key(seed: bytes, session: bytes, index: int, binding: bytes) -> bytes:
    """The key of the mask that only the survivors' shares can take off again."""
    return derive_key(seed, b"fedkge self mask" + session + index.to_bytes(2, "little") + binding)


def commitment(seed: bytes, session: bytes, index: int) -> bytes:
    """Binds a client to its seed before anyone drops out."""
    return hashlib.sha256(b"fedkge seed" + session + index.to_bytes(2, "little") + seed).digest()


def delivery_statement(session: bytes, binding: bytes, opened: Sequence[int]) -> bytes:
    """What a client signs with its vector: what it acted on, and whose envelopes it opened (its own too)."""
    return b"fedkge delivery" + session + binding + _listed(opened)


def survivor_statement(
    session: bytes, binding: bytes, opened: Sequence[int], survivors: Sequence[int]
) -> bytes:
    """What a client signs in the consistency round: for whom, and for nobody else, it will unmask."""
    return b"fedkge survivors" + session + binding + _listed(opened) + _listed(survivors)


def _listed(clients: Sequence[int]) -> bytes:
    return b"".join(number.to_bytes(2, "little") for number in (len(clients), *clients))
