"""What a client keeps to itself for secure sums: its journal, its open sessions, its last answer.

All of it is in one file that is whole or absent and on disk before an answer leaves the client.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from fedkge.client.keyring import Keyring
from fedkge.crypto import Journal, SecureAggregationClient, Session
from fedkge.errors import DataError
from fedkge.storage import staged

__all__ = ["Secrets"]

_MOST_SESSIONS = 4  # the one that is summed, the one that is prepared, and their failed attempts

Messages = dict[str, bytes]


class Secrets:
    """One client's memory of its secure sums; `durable` if the process may vanish between two messages."""

    def __init__(self, path: Path, keyring: Keyring, client: int, durable: bool) -> None:
        self.path = path
        self.keyring = keyring
        self.client = client
        self.durable = durable
        self.seconds = 0.0  # of cryptography since it was last told
        self.notes: Messages = {}  # secrets of the union, by table
        self._machines: dict[bytes, SecureAggregationClient] = {}
        self._stored: Messages = {}  # sessions that another process began
        self._answered = ""
        self._answer: Messages = {}
        stored = self._load()
        self.journal = Journal.from_bytes(stored["journal"]) if stored else Journal()
        for name, content in stored.items():
            kind, _, rest = name.partition(" ")
            if kind == "session":
                self._stored[rest] = content
            elif kind == "note":
                self.notes[rest] = content
            elif kind == "answer":
                self._answer[rest] = content
            elif kind == "answered":
                self._answered = content.decode()

    def answered(self, question: str) -> Messages | None:
        """The answer to the last question, if this is that question again: it is the same, to the bit."""
        return self._answer if question == self._answered else None

    def settle(self, question: str, answer: Mapping[str, bytes]) -> Messages:
        """Write everything down; only then may the answer leave."""
        self._answered, self._answer = question, dict(answer)
        content = {"journal": self.journal.to_bytes()}
        if self.durable:
            content["answered"] = question.encode()
            content |= {f"answer {name}": message for name, message in answer.items()}
            content |= {f"note {name}": note for name, note in self.notes.items()}
            content |= {f"session {name}": stored for name, stored in self._stored.items()}
            content |= {f"session {id.hex()}": each.export_secrets() for id, each in self._machines.items()}
        arrays = {name: np.frombuffer(value, dtype=np.uint8) for name, value in content.items()}
        with staged(self.path, private=True) as path:
            save_file(arrays, path)
        return self._answer

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

    def close(self, session: Session) -> None:
        """A session that is over needs no secrets any more."""
        self._machines.pop(session.id, None)

    def forget_sessions(self) -> None:
        """The server began anew; the journal stays."""
        self._machines, self._stored, self.notes = {}, {}, {}

    @contextmanager
    def timed(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start

    def _load(self) -> Messages:
        if not self.path.exists():
            return {}
        try:
            return {name: array.tobytes() for name, array in load_file(self.path).items()}
        except (OSError, SafetensorError) as error:
            raise DataError(
                f"{self.path}: the client's journal cannot be read ({error}); without it nothing may be "
                "unmasked: start a new run with a new identity"
            ) from error
