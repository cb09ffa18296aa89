"""A client's identity, the roster it trusts, and the runs its operator allowed, on its own disk.

`fedkge keys new FOLDER` makes an identity and prints its public half, which goes, line by
line and client 0 first, into everybody's `roster.txt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedkge.client.journal_file import IDENTITY, JournalFile, require_private
from fedkge.client.policy import POLICY, Policy
from fedkge.crypto import Identity, Roster
from fedkge.errors import DataError
from fedkge.storage import staged

__all__ = ["Keyring", "allow_run", "allowed_runs", "create_identity"]

ROSTER = "roster.txt"
RUNS = "runs.txt"


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
        require_private(folder / IDENTITY)
        if client >= len(roster) or roster.identities[client] != identity.public:
            raise DataError(
                f"{folder / ROSTER}: line {client + 1} is not this client's public key "
                f"{identity.public.hex()}; give every client the same roster, client 0 first"
            )
        return cls(identity, roster)


def create_identity(folder: Path) -> bytes:
    """A new identity, its empty journal and a commented policy in a folder; its public half is returned.

    Key and journal can be read by their owner alone.
    """
    path = folder / IDENTITY
    if path.exists():
        public = Identity(path.read_bytes()).public.hex()
        raise DataError(
            f"{path} exists, and its public key is {public}; a client keeps its identity, so use that, or "
            "choose another folder"
        )
    identity = Identity.generate()
    JournalFile.create(folder)
    if not (folder / POLICY).exists():
        with staged(folder / POLICY) as partial:
            partial.write_text(Policy().to_toml(), encoding="utf-8")
    with staged(path, private=True, durable=True) as partial:
        partial.write_bytes(identity.export_secret())
    return identity.public


def allow_run(folder: Path, run: str) -> None:
    """The operator's consent to one more run of this identity."""
    if not (folder / IDENTITY).exists():
        raise DataError(f"{folder}: no identity there; give the folder that 'fedkge keys new' made")
    runs = [*allowed_runs(folder), run]
    with staged(folder / RUNS, durable=True) as partial:
        partial.write_text("".join(f"{name}\n" for name in dict.fromkeys(runs)), encoding="utf-8")


def allowed_runs(folder: Path) -> tuple[str, ...]:
    """The runs that the operator consented to, one per line of runs.txt."""
    path = folder / RUNS
    try:
        return tuple(path.read_text(encoding="utf-8").split()) if path.exists() else ()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); write the name of one run per line") from None
