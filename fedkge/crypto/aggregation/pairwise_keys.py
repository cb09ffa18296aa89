"""What both sides derive from the session's secrets: mask keys, commitments, statements to sign."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fedkge.crypto.channels import pair
from fedkge.crypto.keys import EphemeralKey, derive_key

__all__ = ["commitment", "pairwise_mask_key", "pairwise_sign", "self_mask_key", "survivor_statement"]


def pairwise_mask_key(key: EphemeralKey, session: bytes, mine: int, other: int, public: bytes) -> bytes:
    """The key of the mask that cancels between two clients; the same on both ends."""
    info = b"fedkge mask" + session + pair(min(mine, other), max(mine, other))
    return key.agree(public, info, f"client {other}")


def pairwise_sign(mine: int, other: int) -> int:
    """The lower client adds the common mask, the higher one subtracts it."""
    return 1 if mine < other else -1


def self_mask_key(seed: bytes, session: bytes, index: int) -> bytes:
    """The key of the mask that only the survivors' shares can take off again."""
    return derive_key(seed, b"fedkge self mask" + session + index.to_bytes(2, "little"))


def commitment(seed: bytes, session: bytes, index: int) -> bytes:
    """Binds a client to its seed before anyone drops out."""
    return hashlib.sha256(b"fedkge seed" + session + index.to_bytes(2, "little") + seed).digest()


def survivor_statement(session: bytes, survivors: Sequence[int]) -> bytes:
    """What a client signs in the consistency round: for whom, and for nobody else, it will unmask."""
    return b"fedkge survivors" + session + b"".join(index.to_bytes(2, "little") for index in survivors)
