"""Parties for the protocol tests: fixed identities, repeatable entropy, and a round driven to its end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.crypto import Identity, Journal, Roster, SecureAggregationClient, SecureAggregationServer, Session
from fedkge.crypto.rings import FIELD61, WORD32, Ring

RINGS = (WORD32, FIELD61)
R0, R1, R2, R3 = range(4)  # the last message a client sends before it drops out
NOTHING = -1


def stream(*seed: object) -> Callable[[int], bytes]:
    """Entropy that repeats: SHA-256 in counter mode over the seed."""
    pool, counter = bytearray(), 0

    def draw(size: int) -> bytes:
        nonlocal counter
        while len(pool) < size:
            pool.extend(hashlib.sha256(repr((seed, counter)).encode()).digest())
            counter += 1
        drawn = bytes(pool[:size])
        del pool[:size]
        return drawn

    return draw


@cache
def identity(index: int) -> Identity:
    return Identity.generate(_entropy=stream("identity", index))


@cache
def roster(num_clients: int) -> Roster:
    return Roster.of(identity(index).public for index in range(num_clients))


def make_session(num_clients: int, length: int = 8, **changes: Any) -> Session:
    settings: dict[str, Any] = {"run": "run", "round": 1, "purpose": "delta", **changes}
    return Session(roster(num_clients), length=length, **settings)


def make_clients(
    session: Session, journals: Sequence[Journal] | None = None, seed: object = 0
) -> list[SecureAggregationClient]:
    kept = journals or [Journal() for _ in range(session.num_clients)]
    return [
        SecureAggregationClient(session, u, identity(u), kept[u], _entropy=stream(seed, u, session.id))
        for u in range(session.num_clients)
    ]


def random_vectors(num_clients: int, length: int, ring: Ring, seed: int = 0) -> list[NDArray[Any]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, ring.modulus, length, dtype=ring.dtype) for _ in range(num_clients)]


def exact_sum(vectors: Sequence[NDArray[Any]], ring: Ring) -> list[int]:
    """The oracle: whole numbers, reduced at the end."""
    return [sum(int(vector[i]) for vector in vectors) % ring.modulus for i in range(len(vectors[0]))]


class Round:
    """One session with all its parties, step by step; every message is kept as the server saw it."""

    def __init__(
        self,
        session: Session,
        vectors: Sequence[NDArray[Any]],
        last: Sequence[int] | None = None,
        journals: Sequence[Journal] | None = None,
        seed: object = 0,
    ) -> None:
        self.session, self.vectors = session, vectors
        self.last = last or [R3] * session.num_clients
        self.clients = make_clients(session, journals, seed)
        self.server = SecureAggregationServer(session)
        self.transcript: list[bytes] = []

    def _send(self, client: int, message: bytes) -> None:
        self.transcript.append(message)
        self.server.collect(client, message)

    def _present(self, stage: int) -> list[int]:
        return [u for u, last in enumerate(self.last) if last >= stage]

    def keys(self) -> bytes:
        for u in self._present(R0):
            self._send(u, self.clients[u].advertise())
        return self.server.announce_keys()

    def deliveries(self) -> dict[int, bytes]:
        keys = self.keys()
        for u in self._present(R1):
            self._send(u, self.clients[u].share_keys(keys))
        return self.server.deliver_shares()

    def survivors(self) -> bytes:
        deliveries = self.deliveries()
        for u in self._present(R2):
            self._send(u, self.clients[u].mask(deliveries[u], self.vectors[u]))
        return self.server.announce_survivors()

    def request(self) -> bytes:
        request = self.survivors()
        if self.server.needs_consent:
            for u in self._present(R3):
                self._send(u, self.clients[u].consent(request))
            request = self.server.announce_quorum()
        return request

    def run(self) -> NDArray[Any]:
        request = self.request()
        for u in self._present(R3):
            self._send(u, self.clients[u].unmask(request))
        return self.server.total()
