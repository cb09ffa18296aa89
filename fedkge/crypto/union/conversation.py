"""How a union is driven, whatever the mode: the server asks, the clients answer, until the list is known.

while not server.done:
    replies = {u: clients[u].answer(request) for u, request in server.requests.items()}
    server.collect(replies)
rows = {u: clients[u].finish(server.listing_message()) for u in clients}
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedkge.crypto.entropy import OPERATING_SYSTEM, Entropy
from fedkge.crypto.journal import Journal
from fedkge.crypto.keys import Identity
from fedkge.crypto.union.listing import Listing
from fedkge.crypto.union.union_session import UnionSession, read_parts, write_parts
from fedkge.crypto.wire import HEADER_SIZE, Kind, sent_by
from fedkge.errors import DropoutError, MessageError, ProtocolError, RefusedError

__all__ = ["UnionClient", "UnionRows", "UnionServer"]

Replies = Mapping[int, bytes]

DEFAULT_EXPECTED = 8192


@dataclass(frozen=True, eq=False)
class UnionRows:
    """What a client gets out of a union: the shared row of each of its identifiers."""

    rows: NDArray[np.int64]  # (n,) in the order of the client's identifiers
    num_rows: int
    digest: bytes  # bind it as `context` of later sessions: a client shown another list then cannot take part


class UnionServer(ABC):
    """The server's side: one request per client and step."""

    no_rows: ClassVar[Listing]

    def __init__(
        self,
        session: UnionSession,
        *,
        listing: Listing | None = None,  # of the generation before, if this is a later one
        expected: int = DEFAULT_EXPECTED,  # how many items a table should hold; not all modes have one
        attempt: int = 0,  # of the first secure sum; not all modes have one
        _entropy: Entropy = OPERATING_SYSTEM,
    ) -> None:
        self.session = session
        self.listing = listing or self.no_rows
        self._expected, self._attempt, self._entropy = expected, attempt, _entropy
        self.requests: dict[int, bytes] = {}
        self._handle: Callable[[Replies], None] = self._nothing_expected
        self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Ask the first question."""

    @property
    def done(self) -> bool:
        return not self.requests

    def collect(self, replies: Replies) -> None:
        """Take one step's replies; a client that is missing has dropped out."""
        strangers = sorted(set(replies) - set(self.requests))
        if strangers:
            raise MessageError(f"clients {strangers} answer, but were not asked")
        self._handle(replies)

    def listing_message(self) -> bytes:
        """The union, for all clients."""
        if not self.done:
            raise RefusedError("the union is not known yet: collect replies until `done`")
        return self.listing.to_bytes(self.session.id)

    def _ask(self, requests: dict[int, bytes], handle: Callable[[Replies], None]) -> None:
        self.requests, self._handle = requests, handle

    def _ask_all(self, request: bytes, handle: Callable[[Replies], None]) -> None:
        self._ask(dict.fromkeys(range(self.session.num_clients), request), handle)

    def _finish(self) -> None:
        self._ask({}, self._nothing_expected)

    def _nothing_expected(self, replies: Replies) -> None:
        raise MessageError(f"{len(replies)} replies came, but the union is known already")

    def _require_all(self, replies: Replies) -> None:
        missing = sorted(set(self.requests) - set(replies))
        if missing:
            raise DropoutError(f"clients {missing} did not answer; this step of the union needs everybody")

    def _single_parts(self, replies: Replies, kind: Kind) -> dict[int, bytes]:
        """What replies of one part hold."""
        return {u: self._parts(u, reply, kind, count=1)[0] for u, reply in replies.items()}

    def _parts(self, client: int, reply: bytes, kind: Kind, count: int) -> list[bytes]:
        with sent_by(client):
            return read_parts(reply, kind, self.session.id, client, count=count)


class UnionClient(ABC):
    """The client's side: an answer to every request, then its rows."""

    answers: ClassVar[dict[Kind, str]]  # which method answers which request

    def __init__(
        self,
        session: UnionSession,
        index: int,
        identity: Identity,
        journal: Journal,
        identifiers: Sequence[str],
        *,
        key: bytes = b"",  # what the first generation exported, if this is a later one
        _entropy: Entropy = OPERATING_SYSTEM,
    ) -> None:
        self.session, self.index = session, index
        self._identity, self._journal, self._entropy = identity, journal, _entropy
        self._identifiers, self._key = identifiers, key
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Set up what the mode keeps between steps."""

    def answer(self, request: bytes) -> bytes:
        """The reply to whatever the server asks next; after a refusal, another request may follow."""
        if len(request) < HEADER_SIZE or request[5] not in set(self.answers):
            known = ", ".join(kind.name for kind in self.answers)
            raise MessageError(f"not a request of this kind of union; it answers {known}")
        method: Callable[[bytes], bytes] = getattr(self, self.answers[Kind(request[5])])
        before = [(part, dict(vars(part))) for part in (self, *self._machines())]
        try:
            return method(request)
        except ProtocolError:  # a refused step changes nothing, but in the journal
            for part, fields in before:
                vars(part).clear()
                vars(part).update(fields)
            raise

    def _machines(self) -> list[object]:
        """What else changes from step to step, always by new values in its fields."""
        return []

    @abstractmethod
    def finish(self, listing: bytes) -> UnionRows:
        """This client's rows in the union."""

    def row_secret(self, name: str) -> bytes:
        """What the initial rows of a shared parameter come from, where only clients have it.

        A key for all labels, 32 bytes; of oblivious pseudonyms, 32 bytes for each identifier; in the clear
        there is none.
        """
        del name
        return b""

    def export_key(self) -> bytes:
        """The key that later generations need: for the client's own file, and never for a message."""
        return self._key

    def export_secrets(self) -> bytes:
        """All of the client's state but the journal: for its own file, and never for a message."""
        return write_parts(Kind.UNION_STATE, self.session.id, self.index, self._key, *self._secrets())

    def restore_secrets(self, stored: bytes) -> None:
        """Take up a union where `export_secrets` left it."""
        count = 1 + len(self._secrets())
        self._key, *secrets = read_parts(stored, Kind.UNION_STATE, self.session.id, self.index, count=count)
        self._restore(secrets)

    @abstractmethod
    def _secrets(self) -> list[bytes]:
        """What must be kept between the steps, besides the key."""

    @abstractmethod
    def _restore(self, secrets: list[bytes]) -> None:
        """Take back what `_secrets` gave."""
