"""Sessions of secure aggregation over the messenger: each is prepared while the one before it is finished.

A sum takes two exchanges. The first brings the masked vectors and the keys of the next sum, the second
unmasks and deals the next sum's shares. One between them has the clients sign over whom the sum goes, with
privacy.consistency, or if clients dropped out since the shares were delivered and the threshold is below
n − 1. Where the next sum is not prepared by every client (at the start, after a dropout, after a resume), two
more exchanges prepare it anew.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.agreement import Acted
from fedkge.crypto import Plan, SecureAggregationServer, Session
from fedkge.errors import DropoutError, ProtocolError, TamperError
from fedkge.exchange import Download, Upload
from fedkge.server.messenger import Messenger

__all__ = ["Sessions", "Sum", "Total"]

_ATTEMPTS_PER_START = 2**16
_ACCUSED = re.compile(r"client (\d{1,4}) (?:to client|dealt)")  # in what a client says of another's envelope


@dataclass(frozen=True)
class Sum:
    """What is to be summed."""

    purpose: str
    round: int | None


@dataclass(frozen=True, eq=False)
class Total:
    """A sum, and over whom."""

    words: NDArray[np.uint32]
    survivors: tuple[int, ...]
    metadata: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # what each said in the open
    veils: Mapping[int, bytes] = field(default_factory=dict)  # keys that uncover thin rows, see covers


class Sessions:
    """The server's side of all sums of a run; `start` counts how often the run was begun or resumed."""

    def __init__(self, messenger: Messenger, start: int) -> None:
        self.messenger = messenger
        self.plan: Plan
        self.acted = Acted()
        self.last: tuple[str, int | None, list[int]] | None = None  # the last sum: purpose, round, survivors
        self.seconds = 0.0
        self.first_attempt = start * _ATTEMPTS_PER_START  # clients never open a session twice
        self._attempt = self.first_attempt
        self._ready: SecureAggregationServer | None = None
        self._deliveries: Mapping[int, bytes] = {}
        self.culprits: set[int] = set()  # clients that spoilt the last sum
        self.excluded: set[int] = set()  # clients that are not asked, until a sum succeeds without them

    def prepare(self, wanted: Sum, phase: str, news: Download) -> None:
        """Keys and shares of a sum, in two exchanges; `news` is told on the way."""
        server = self._open(wanted)
        metadata = {"next": _named(server.session)}
        needs_all = server.session.threshold == server.session.num_clients
        clients = [client for client in self.messenger.clients if needs_all or client not in self.excluded]
        round = news.round
        common = replace(news, metadata={**news.metadata, **metadata})
        replies = self.messenger.ask(dict.fromkeys(clients, common), "query.advertise", phase, round)
        self._collect(server, replies, "advert", phase, round)
        keys = Download(round, metadata=metadata, protocol={"keys": self._timed(server.announce_keys)})
        replies = self.messenger.ask(
            {client: keys for client in clients if client in replies}, "query.share", phase, round
        )
        self._collect(server, replies, "shares", phase, round)
        self._deliver(server)

    def sum(
        self,
        wanted: Sum,
        clients: Sequence[int],
        download: Download,
        kind: str,
        phase: str,
        following: Sum | None = None,
    ) -> Total:
        """Ask for vectors, unmask their sum; a DropoutError means that nothing was summed."""
        round, self.culprits = download.round, set()
        server = self._prepared(wanted, round)
        self._ready = None  # whatever happens, these masks are used up
        upcoming = self._open(following) if following else None
        metadata = {
            "sum": _named(server.session),
            "next": _named(upcoming.session) if upcoming else None,
            "last": self.last,
        }
        asked = [client for client in clients if client in self._deliveries]
        common = replace(download, metadata={**download.metadata, **metadata})
        with self.clock():
            self.acted.broadcast(download.tables)
            server.bind(self.acted.binding(server.session, common.metadata))
        replies = self.messenger.ask(
            dict.fromkeys(asked, common),
            kind,
            phase,
            round,
            {client: {"delivery": self._deliveries[client]} for client in asked},
        )
        self._note_accused(server.session)
        self._collect(server, replies, "masked", phase, round)
        said = {client: upload.metadata for client, upload in replies.items()}
        if upcoming:
            self._collect(upcoming, replies, "advert", phase, round)
        named = self._timed(server.announce_survivors)
        survivors = server.survivors
        if server.needs_consent:
            request = Download(round, metadata=metadata, protocol={"survivors": named})
            named, survivors = self._agree(server, request)
        protocol = {"survivors": named}
        if upcoming and not upcoming.waiting_for:
            protocol["keys"] = self._timed(upcoming.announce_keys)
        request = Download(round, metadata=metadata, protocol=protocol)
        # Clients may all refuse: then this sum is lost, and the run goes on.
        replies = self.messenger.ask(
            dict.fromkeys(survivors, request), "query.unmask", "unmask", round, fewest=0
        )
        self._collect(server, replies, "reveal", "unmask", round)
        veils = {client: up.protocol["veil"] for client, up in replies.items() if "veil" in up.protocol}
        total = Total(self._unmasked(server, round), server.survivors, said, veils)
        self.last = wanted.purpose, wanted.round, [*server.survivors]
        if upcoming and "keys" in protocol:
            self._collect(upcoming, replies, "shares", "unmask", round)
            if not upcoming.waiting_for:
                self._deliver(upcoming)
        return total

    def _unmasked(self, server: SecureAggregationServer, round: int) -> NDArray[np.uint32]:
        """The sum; without enough true shares it is lost, since no other survivors may be unmasked now."""
        try:
            words: NDArray[np.uint32] = self._timed(server.total)
        except TamperError as error:
            self.culprits, self.excluded = set(), self.excluded | set(server.culprits)
            raise DropoutError(f"{error}; nothing was unmasked") from error
        finally:
            for client in server.culprits:
                self.messenger.blame(client, "dealt or revealed a false share", "unmask", round)
        return words

    def _note_accused(self, session: Session) -> None:
        """Whose envelopes did not open, if more clients say so than may drop out."""
        accused = Counter(
            int(client) for why in self.messenger.failed.values() for client in set(_ACCUSED.findall(why))
        )
        tolerated = session.num_clients - session.threshold
        self.culprits |= {client for client, accusers in accused.items() if accusers > tolerated}

    def _agree(self, server: SecureAggregationServer, request: Download) -> tuple[bytes, tuple[int, ...]]:
        """All survivors' signatures over who they are, and who signed."""
        asked = dict.fromkeys(server.survivors, request)
        replies = self.messenger.ask(asked, "query.consent", "unmask", request.round, fewest=0)
        self._collect(server, replies, "consent", "unmask", request.round)
        signers = tuple(client for client in server.survivors if client not in server.waiting_for)
        return self._timed(server.announce_quorum), signers

    def _prepared(self, wanted: Sum, round: int) -> SecureAggregationServer:
        ready = self._ready.session if self._ready else None
        if ready is None or (ready.purpose, ready.round) != (wanted.purpose, wanted.round):
            self.prepare(wanted, "setup", Download(round))
        if self._ready is None:
            raise DropoutError("no sum is prepared")
        return self._ready

    def _open(self, wanted: Sum) -> SecureAggregationServer:
        self._attempt += 1
        return SecureAggregationServer(self.plan.session(wanted.purpose, wanted.round, self._attempt))

    def _deliver(self, server: SecureAggregationServer) -> None:
        self._deliveries = self._timed(server.deliver_shares)
        self._ready = server

    def _collect(
        self,
        server: SecureAggregationServer,
        replies: Mapping[int, Upload],
        message: str,
        phase: str,
        round: int,
    ) -> None:
        """Take what is good; whoever sends anything else has dropped out."""
        for client, upload in replies.items():
            try:
                with self.clock():
                    server.collect(client, upload.protocol.get(message, b""))
            except ProtocolError as error:
                self.culprits.add(client)
                self.messenger.blame(client, error, phase, round)

    def _timed(self, step: Callable[[], Any]) -> Any:
        with self.clock():
            return step()

    @contextmanager
    def clock(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start


def _named(session: Session) -> dict[str, Any]:
    return {"purpose": session.purpose, "round": session.round, "attempt": session.attempt}
