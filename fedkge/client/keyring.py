"""A client's identity and the roster it trusts, on its own disk.

`fedkge keys new FOLDER` makes an identity and prints its public half, which goes, line by
line and client 0 first, into everybody's `roster.txt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedkge.crypto import Identity, Roster
from fedkge.errors import DataError
from fedkge.storage import staged

__all__ = ["Keyring", "create_identity"]

IDENTITY = "identity.key"
ROSTER = "roster.txt"


@dataclass(frozen=True)
class Keyring:
    """Who this client is, and who all clients are."""

    identity: Identity
    roster: Roster

    @classmethod
    def load(cls, folder: Path, client: int) -> Keyring:
        """Read both; a roster that has another identity in this client's place is refused."""
        try:
            identity = Identity((folder / IDENTITY).read_bytes())
            roster = Roster.from_text((folder / ROSTER).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(
                f"{folder}: no identity and roster there ({error}); make an identity with "
                "'fedkge keys new FOLDER' and put everybody's public keys into roster.txt"
            ) from error
        if client >= len(roster) or roster.identities[client] != identity.public:
            raise DataError(
                f"{folder / ROSTER}: line {client + 1} is not this client's public key "
                f"{identity.public.hex()}; give every client the same roster, client 0 first"
            )
        return cls(identity, roster)


def create_identity(folder: Path) -> bytes:
    """A new identity in a folder, readable by its owner alone; its public half is returned."""
    path = folder / IDENTITY
    if path.exists():
        public = Identity(path.read_bytes()).public.hex()
        raise DataError(
            f"{path} exists, and its public key is {public}; a client keeps its identity, so use that, or "
            "choose another folder"
        )
    identity = Identity.generate()
    with staged(path, private=True) as partial:
        partial.write_bytes(identity.export_secret())
    return identity.public
