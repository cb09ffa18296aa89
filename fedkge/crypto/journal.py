"""What a client must remember for good: the sessions it opened, what it masked and unmasked, and queries.

Training is deterministic, so the same round summed over two sets of survivors differs by one client's upload.
The journal refuses that. Keep it in an atomic file, and write the file before any message leaves the client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from fedkge.crypto.roster import Roster
from fedkge.crypto.session import Session
from fedkge.crypto.wire import SERVER, Kind, Reader, Writer
from fedkge.errors import RefusedError

__all__ = ["Journal"]

NO_SESSION = bytes(32)
DIGEST_SIZE = 32


class Journal:
    """One client's memory across all rounds and runs."""

    def __init__(self) -> None:
        self._opened: dict[bytes, bool] = {}  # session → masked; a query → answered
        self._bound: dict[bytes, bytes] = {}  # label → what the client had acted on when it masked
        self._revealed: dict[bytes, tuple[int, ...]] = {}  # label → survivors
        self._rosters: dict[str, bytes] = {}  # run → roster

    def open(self, session: Session) -> None:
        """Note a new session; a session is opened once, and only over the roster that the run began with."""
        pinned = self._rosters.get(session.run, session.roster.digest)
        if pinned != session.roster.digest:
            raise RefusedError(
                f"run '{session.run}' began with another roster: sums over changing cohorts form a linear "
                "system that reveals each client; take part in full, or let the operator call accept_roster"
            )
        if session.id in self._opened:
            raise RefusedError(
                "this session was opened before; a replayed session would mask twice under one key. "
                "Raise `attempt` to try a round again"
            )
        self._rosters[session.run] = pinned
        self._opened[session.id] = False

    def mask(self, session: Session, binding: bytes) -> None:
        """Note that the session's masks are used up; another attempt must rest on the same binding."""
        if self._opened.get(session.id, True):
            raise RefusedError(
                "this session has masked a vector already: two vectors under one mask reveal their difference"
            )
        if self._bound.get(session.label, binding) != binding:
            raise RefusedError(
                f"round {session.round} of run '{session.run}' ({session.purpose}) was masked after other "
                "messages than those before this attempt: one round gives one vector; skip the round"
            )
        self._opened[session.id] = True
        self._bound[session.label] = binding

    def reveal(self, session: Session, survivors: Sequence[int]) -> None:
        """Note whose sum is revealed; the same label may never be revealed for others."""
        before = self._revealed.get(session.label)
        if before is not None and before != tuple(survivors):
            raise RefusedError(
                f"round {session.round} of run '{session.run}' ({session.purpose}) was unmasked for clients "
                f"{list(before)}; the difference to a sum over {list(survivors)} would reveal single clients"
            )
        self._revealed[session.label] = tuple(survivors)

    def survivors_of(self, session: Session) -> tuple[int, ...] | None:
        """For whom this client unmasked what the session sums, in whichever attempt; None if it did not."""
        return self._revealed.get(session.label)

    def answer_queries(self, union: bytes, clients: Iterable[int]) -> None:
        """Note that these clients' names were looked up for a union, which happens once."""
        spent = {
            client: hashlib.sha256(b"fedkge query" + union + client.to_bytes(2, "little")).digest()
            for client in clients
        }
        for client, query in spent.items():
            if query in self._opened:
                raise RefusedError(
                    f"client {client} has spent its query budget in this union; "
                    "to unite anew, begin a new run"
                )
        self._opened.update(dict.fromkeys(spent.values(), True))

    def accept_roster(self, run: str, roster: Roster) -> None:
        """The operator's consent to a changed roster: the counts' difference reveals who holds what."""
        self._rosters[run] = roster.digest

    def to_bytes(self) -> bytes:
        writer = Writer(Kind.JOURNAL, NO_SESSION, SERVER)
        writer.number(len(self._opened), 4)
        for session, masked in self._opened.items():
            writer.raw(session).number(masked, 1)
        writer.number(len(self._bound), 4)
        for label, binding in self._bound.items():
            writer.raw(label).raw(binding)
        writer.number(len(self._revealed), 4)
        for label, survivors in self._revealed.items():
            writer.raw(label).numbers(survivors, 2)
        writer.number(len(self._rosters), 4)
        for run, roster in self._rosters.items():
            writer.blob(run.encode()).raw(roster)
        return writer.finish()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Journal:
        reader = Reader(stored, Kind.JOURNAL, NO_SESSION, SERVER)
        journal = cls()
        for _ in range(reader.number(4)):
            session = reader.raw(DIGEST_SIZE)
            journal._opened[session] = bool(reader.number(1))
        for _ in range(reader.number(4)):
            label = reader.raw(DIGEST_SIZE)
            journal._bound[label] = reader.raw(DIGEST_SIZE)
        for _ in range(reader.number(4)):
            label = reader.raw(DIGEST_SIZE)
            journal._revealed[label] = tuple(reader.numbers(2))
        for _ in range(reader.number(4)):
            run = reader.blob().decode(errors="replace")
            journal._rosters[run] = reader.raw(DIGEST_SIZE)
        reader.finish()
        return journal
