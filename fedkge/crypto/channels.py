"""Sealed envelopes between clients, carried by the server: AES-256-GCM over session, sender and recipient."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedkge.crypto.entropy import OPERATING_SYSTEM, Entropy
from fedkge.errors import TamperError

__all__ = ["OVERHEAD", "channel_info", "open_envelope", "pair", "seal_envelope"]

NONCE_SIZE = 12
OVERHEAD = NONCE_SIZE + 16


def pair(first: int, second: int) -> bytes:
    """Two client numbers, in the order given."""
    return first.to_bytes(2, "little") + second.to_bytes(2, "little")


def channel_info(session: bytes, first: int, second: int) -> bytes:
    """What the key of a channel is derived for; the same on both ends."""
    return b"fedkge channel" + session + pair(min(first, second), max(first, second))


def seal_envelope(
    key: bytes,
    session: bytes,
    sender: int,
    recipient: int,
    content: bytes,
    *,
    _entropy: Entropy = OPERATING_SYSTEM,
) -> bytes:
    """Nonce and ciphertext; only the recipient can open it, and only as this sender's in this session."""
    nonce = _entropy(NONCE_SIZE)
    return nonce + AESGCM(key).encrypt(nonce, content, session + pair(sender, recipient))


def open_envelope(key: bytes, session: bytes, sender: int, recipient: int, envelope: bytes) -> bytes:
    """The content, or an error that names the sender."""
    nonce, ciphertext = envelope[:NONCE_SIZE], envelope[NONCE_SIZE:]
    try:
        return AESGCM(key).decrypt(nonce, ciphertext, session + pair(sender, recipient))
    except InvalidTag:
        raise TamperError(
            f"the envelope from client {sender} to client {recipient} does not open: "
            "it was altered on the way, or sealed for another session or recipient"
        ) from None
