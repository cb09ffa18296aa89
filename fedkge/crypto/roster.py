"""Who takes part: the pinned identities, in an order that numbers the clients 0 … n − 1."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from fedkge.crypto.keys import KEY_SIZE, verify_signature
from fedkge.errors import SettingError

__all__ = ["MIN_CLIENTS", "Roster", "default_threshold"]

MIN_CLIENTS = 3  # a sum over two tells each the other's vector
MAX_CLIENTS = 1000


def default_threshold(num_clients: int) -> int:
    """⌊2n/3⌋ + 1: any two quorums then share a third of the clients."""
    return 2 * num_clients // 3 + 1


@dataclass(frozen=True)
class Roster:
    """The Ed25519 public keys of all clients; whoever sets them decides who the clients are."""

    identities: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if not MIN_CLIENTS <= len(self.identities) <= MAX_CLIENTS:
            raise SettingError(
                f"a roster of {len(self.identities)} clients: secure aggregation needs {MIN_CLIENTS} to "
                f"{MAX_CLIENTS}, because a sum over two tells each the other's vector"
            )
        for index, identity in enumerate(self.identities):
            if len(identity) != KEY_SIZE:
                raise SettingError(
                    f"client {index}: an Ed25519 identity has {KEY_SIZE} bytes, not {len(identity)}"
                )
            first = self.identities.index(identity)
            if first != index:
                raise SettingError(
                    f"clients {first} and {index} have the same identity; give each its own key"
                )

    @classmethod
    def of(cls, identities: Iterable[bytes]) -> Roster:
        return cls(tuple(identities))

    @classmethod
    def from_text(cls, text: str) -> Roster:
        """One public key per line in hexadecimal, client 0 first."""
        try:
            return cls.of(bytes.fromhex(line) for line in text.split())
        except ValueError as error:
            raise SettingError(
                f"a roster has one public key per line in hexadecimal, client 0 first ({error})"
            ) from None

    def to_text(self) -> str:
        return "".join(f"{identity.hex()}\n" for identity in self.identities)

    def __len__(self) -> int:
        return len(self.identities)

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(b"fedkge roster" + b"".join(self.identities)).digest()

    def verify(self, index: int, signature: bytes, message: bytes) -> None:
        """Raise unless client `index` signed the message."""
        verify_signature(self.identities[index], signature, message, f"client {index}")
