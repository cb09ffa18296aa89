"""Long-lived Ed25519 identities, short-lived X25519 keys, and the keys derived from them by HKDF-SHA256."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedkge.crypto.entropy import OPERATING_SYSTEM, Entropy
from fedkge.errors import TamperError

__all__ = [
    "KEY_SIZE",
    "SIGNATURE_SIZE",
    "EphemeralKey",
    "Identity",
    "derive_key",
    "refuse_low_order",
    "verify_signature",
]

KEY_SIZE = 32
SIGNATURE_SIZE = 64

# u-coordinates of the points of order 1, 2, 4 and 8, reduced or not, without the top bit that X25519 ignores
LOW_ORDER_POINTS = frozenset(
    value.to_bytes(KEY_SIZE, "little")
    for value in (
        0,
        1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
        (1 << 255) - 20,
        (1 << 255) - 19,
        (1 << 255) - 18,
    )
)


def refuse_low_order(public: bytes, whose: str) -> None:
    """Raise for a public key with which every secret is the same; cheaper than trying it (RFC 7748 §6.1)."""
    if public[:-1] + bytes([public[-1] & 0x7F]) in LOW_ORDER_POINTS:
        raise TamperError(f"the public key of {whose} is of low order: no secret can come of it")


def derive_key(secret: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 without salt (RFC 5869): 32 bytes for one purpose, named by `info`."""
    return HKDF(SHA256(), KEY_SIZE, salt=None, info=info).derive(secret)


def verify_signature(public: bytes, signature: bytes, message: bytes, whose: str) -> None:
    """Raise unless `public` signed the message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        raise TamperError(
            f"the signature of {whose} does not fit the identity pinned in the roster"
        ) from None


class Identity:
    """A client's Ed25519 key pair; the public half is pinned in every roster, out of band."""

    def __init__(self, secret: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, *, _entropy: Entropy = OPERATING_SYSTEM) -> Identity:
        return cls(_entropy(KEY_SIZE))

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)

    def export_secret(self) -> bytes:
        """The private key itself: keep it with the client, and never in a message."""
        return self._key.private_bytes_raw()


class EphemeralKey:
    """An X25519 key pair for one session."""

    def __init__(self, secret: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, *, _entropy: Entropy = OPERATING_SYSTEM) -> EphemeralKey:
        return cls(_entropy(KEY_SIZE))

    def agree(self, public: bytes, info: bytes, whose: str) -> bytes:
        """The key shared with the owner of `public`; low-order points are refused (RFC 7748 §6.1)."""
        try:
            shared = self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise TamperError(
                f"the public key of {whose} is of low order: no secret can come of it"
            ) from None
        return derive_key(shared, info)

    def export_secret(self) -> bytes:
        """The private key itself: shared out among the clients, or kept in a client's own file."""
        return self._key.private_bytes_raw()
