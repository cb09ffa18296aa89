"""What a client keeps to itself for secure sums: its journal, its open sessions, its last answer.

All of it is in the journal's file, which is whole and on disk before an answer leaves the client.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fedkge.client.journal_file import JournalFile
from fedkge.client.keyring import Keyring, allowed_runs
from fedkge.client.policy import Policy
from fedkge.crypto import Journal, SecureAggregationClient, Session
from fedkge.errors import DataError, MessageError, RefusedError

__all__ = ["PastSums", "Secrets"]

_MOST_SESSIONS = 4  # the one that is summed, the one that is prepared, and their failed attempts

Messages = dict[str, bytes]


@dataclass
class PastSums:
    """What a client put into the sums of a run, by the number of a round."""

    scored: dict[str, int] = field(
        default_factory=dict
    )  # the round it trained last -> the round of the scores
    masked: dict[str, str] = field(default_factory=dict)  # round -> digest of its step
    revealed: dict[str, str] = field(default_factory=dict)

    def score(self, trained: int, round: int) -> None:
        """Scores of the same rows in two sums would differ by whoever is in one of them alone."""
        if self.scored.setdefault(str(trained), round) != round:
            raise RefusedError(
                f"scores of round {round} are asked for, and this client has trained nothing since it gave "
                f"those of round {self.scored[str(trained)]}"
            )

    def mask(self, round: int, digest: str) -> None:
        """A round whose step was unmasked is summed again, after a resume, with the same step alone."""
        if self.revealed.get(str(round), digest) != digest:
            raise RefusedError(f"round {round} was summed with another step; one round has one step")
        self.masked[str(round)] = digest

    def reveal(self, round: int) -> None:
        self.revealed[str(round)] = self.masked.pop(str(round), self.revealed.get(str(round), ""))


class Secrets:
    """One client's memory of its secure sums in one run, and its identity's journal of all runs.

    `durable` if the process may vanish between two messages; `synced` if the machine may lose power.
    """

    def __init__(
        self, folder: Path, client: int, run: str, policy: Policy, durable: bool, synced: bool = True
    ) -> None:
        self.keyring = Keyring.load(folder, client)
        self.client = client
        self.run = run
        self.durable = durable
        self.seconds = 0.0  # of cryptography since it was last told
        self.notes: Messages = {}  # secrets of the union, by table
        self.tables = b""  # digest of the shared rows that the run's first step was made of
        self.sums = PastSums()
        self._machines: dict[bytes, SecureAggregationClient] = {}
        self._stored: Messages = {}  # sessions that another process began
        self._answered = ""
        self._answer: Messages = {}
        self._file = JournalFile(folder, synced)
        try:
            self._load(folder, policy)
        except BaseException:
            self.close()  # an error may be kept for long, and this with it
            raise

    def _load(self, folder: Path, policy: Policy) -> None:
        stored = dict(self._file.entries)
        try:
            self.journal = Journal.from_bytes(stored.pop("journal")) if "journal" in stored else Journal()
            self._runs: list[str] = json.loads(stored.pop("runs", b"[]"))
        except (MessageError, ValueError) as error:
            raise _unreadable(folder, error) from error
        policy.check_run(self.run, self._runs, allowed_runs(folder))
        self._others = {
            name: content for name, content in stored.items() if not name.startswith(f"{self.run} ")
        }
        for name in (name for name in stored if name not in self._others):
            _, kind, *rest = name.split(" ", 2)
            if kind == "session":
                self._stored[rest[0]] = stored[name]
            elif kind == "note":
                self.notes[rest[0]] = stored[name]
            elif kind == "answer":
                self._answer[rest[0]] = stored[name]
            elif kind == "answered":
                self._answered = stored[name].decode()
            elif kind == "tables":
                self.tables = stored[name]
            elif kind == "sums":
                self.sums = _past_sums(stored[name], folder)

    def answered(self, question: str) -> Messages | None:
        """The answer to the last question, if this is that question again: it is the same, to the bit."""
        return self._answer if question == self._answered else None

    def settle(self, question: str, answer: Mapping[str, bytes]) -> Messages:
        """Write everything down; only then may the answer leave."""
        self._answered, self._answer = question, dict(answer)
        self._runs = list(dict.fromkeys([*self._runs, self.run]))
        own = {
            "sums": json.dumps(vars(self.sums)).encode(),
            **({"tables": self.tables} if self.tables else {}),
        }
        if self.durable:
            own["answered"] = question.encode()
            own |= {f"answer {name}": message for name, message in answer.items()}
            own |= {f"note {name}": note for name, note in self.notes.items()}
            own |= {f"session {name}": stored for name, stored in self._stored.items()}
            own |= {f"session {id.hex()}": each.export_secrets() for id, each in self._machines.items()}
        content = {"journal": self.journal.to_bytes(), "runs": json.dumps(self._runs).encode()}
        own = {f"{self.run} {name}": value for name, value in own.items()}
        self._file.write({**self._others, **content, **own})
        return self._answer

    def pin(self, tables: bytes) -> None:
        """The first step of a run settles which rows are shared: steps over others could be subtracted."""
        if self.tables not in (b"", tables):
            raise RefusedError(
                f"run '{self.run}' was begun with other shared rows; to unite anew, begin a new run"
            )
        self.tables = tables

    def machine(self, session: Session) -> SecureAggregationClient:
        """This client in a session, as far as it has come."""
        if session.id not in self._machines:
            machine = SecureAggregationClient(session, self.client, self.keyring.identity, self.journal)
            stored = self._stored.pop(session.id.hex(), None)
            if stored is not None:
                machine.restore_secrets(stored)
            self._machines[session.id] = machine
            while len(self._machines) > _MOST_SESSIONS:
                del self._machines[next(iter(self._machines))]
        return self._machines[session.id]

    def end_session(self, session: Session) -> None:
        """A session that is over needs no secrets any more."""
        self._machines.pop(session.id, None)

    def forget_sessions(self) -> None:
        """The server began anew; the journal stays."""
        self._machines, self._stored, self.notes = {}, {}, {}

    def close(self) -> None:
        """Let another process use the identity."""
        self._file.close()

    @contextmanager
    def timed(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start


def _past_sums(stored: bytes, folder: Path) -> PastSums:
    try:
        return PastSums(**json.loads(stored))
    except (TypeError, ValueError) as error:
        raise _unreadable(folder, error) from error


def _unreadable(folder: Path, error: Exception) -> DataError:
    return DataError(
        f"{folder}: this identity's journal cannot be read ({error}); use the version of fedkge that wrote "
        "it, or make a new identity"
    )
