"""The server's side of secure aggregation: it collects, forwards, learns one sum (Bonawitz et al. 2017).

collect(client, message)   takes a reply of the current stage
announce_keys()            ends R0   → one message for all
deliver_shares()           ends R1   → one message per client
announce_survivors()       ends R2   → one message for the survivors
announce_quorum()          ends R2.5 → one message for the survivors   (signed sessions only)
total()                    ends R3   → the sum over the survivors
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any

from numpy.typing import NDArray

from fedkge.crypto.aggregation.advertisement import Advertisement, read_advertisement, write_keys
from fedkge.crypto.aggregation.client import ENVELOPE_SIZE
from fedkge.crypto.aggregation.pairwise_keys import (
    commitment,
    pairwise_mask_key,
    pairwise_sign,
    self_mask_key,
    survivor_statement,
)
from fedkge.crypto.keys import SIGNATURE_SIZE, EphemeralKey
from fedkge.crypto.masks import add_masks
from fedkge.crypto.session import Session
from fedkge.crypto.shares import PRIME, SHARE_SIZE, combine_shares, lagrange_weights
from fedkge.crypto.wire import SERVER, Kind, Reader, Writer
from fedkge.errors import DropoutError, MessageError, ProtocolError, TamperError

__all__ = ["SecureAggregationServer"]

COMMITMENT_SIZE = 32


class ServerStage(IntEnum):
    """Which replies the server is collecting."""

    KEYS = 0
    SHARES = 1
    VECTORS = 2
    CONSENTS = 3
    REVEALS = 4
    DONE = 5


class SecureAggregationServer:
    """The server in one session; a reply that raises leaves everything as it was."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._stage = ServerStage.KEYS
        self._adverts: dict[int, Advertisement] = {}
        self._commitments: dict[int, bytes] = {}
        self._envelopes: dict[int, dict[int, bytes]] = {}  # sender → recipient → envelope
        self._sum: NDArray[Any] | None = None  # of the vectors that came
        self._survivors: set[int] = set()
        self._consents: dict[int, bytes] = {}
        self._reveals: dict[int, list[int]] = {}  # client → one share per client of U2, ascending

    @property
    def survivors(self) -> tuple[int, ...]:
        """The clients whose vectors are in the sum."""
        return tuple(sorted(self._survivors))

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """The clients whose reply is still missing at this stage."""
        asked: dict[ServerStage, tuple[Iterable[int], Iterable[int]]] = {
            ServerStage.KEYS: (range(self.session.num_clients), self._adverts),
            ServerStage.SHARES: (self._adverts, self._commitments),
            ServerStage.VECTORS: (self._commitments, self._survivors),
            ServerStage.CONSENTS: (self._survivors, self._consents),
            ServerStage.REVEALS: (self._survivors, self._reveals),
            ServerStage.DONE: ((), ()),
        }
        expected, heard = asked[self._stage]
        return tuple(sorted(set(expected) - set(heard)))

    def collect(self, client: int, message: bytes) -> None:
        """Take the reply of one client, as the transport names it."""
        if client not in self.waiting_for:
            raise MessageError(
                f"no reply of client {client} is expected at stage '{self._stage.name.lower()}': "
                "it replied already, dropped out before, or is not in the roster"
            )
        readers = {
            ServerStage.KEYS: self._collect_keys,
            ServerStage.SHARES: self._collect_shares,
            ServerStage.VECTORS: self._collect_vector,
            ServerStage.CONSENTS: self._collect_consent,
            ServerStage.REVEALS: self._collect_reveal,
        }
        readers[self._stage](client, message)

    def _collect_keys(self, client: int, message: bytes) -> None:
        session = self.session
        self._adverts[client] = read_advertisement(message, session.id, client, session.roster, num_keys=2)

    def announce_keys(self) -> bytes:
        """End R0: the keys of all who came."""
        self._require(ServerStage.KEYS, len(self._adverts), "advertised keys")
        self._stage = ServerStage.SHARES
        return write_keys(self.session.id, self._adverts)

    def _collect_shares(self, client: int, message: bytes) -> None:
        reader = Reader(message, Kind.SHARES, self.session.id, client)
        promised = reader.raw(COMMITMENT_SIZE)
        others = [v for v in sorted(self._adverts) if v != client]
        count = reader.number(2)
        if count != len(others):
            raise MessageError(
                f"SHARES: client {client} sealed {count} envelopes for {len(others)} other clients"
            )
        envelopes = {v: reader.raw(ENVELOPE_SIZE) for v in others}
        reader.finish()
        self._commitments[client], self._envelopes[client] = promised, envelopes

    def deliver_shares(self) -> dict[int, bytes]:
        """End R1: to each client the envelopes that the others sealed for it."""
        self._require(ServerStage.SHARES, len(self._commitments), "shared their keys")
        self._stage = ServerStage.VECTORS
        delivery = {v: self._write_delivery(v) for v in sorted(self._commitments)}
        self._envelopes = {}
        return delivery

    def _write_delivery(self, recipient: int) -> bytes:
        senders = [u for u in sorted(self._commitments) if u != recipient]
        writer = Writer(Kind.DELIVERY, self.session.id, SERVER).numbers(senders, 2)
        return writer.raw(b"".join(self._envelopes[u][recipient] for u in senders)).finish()

    def _collect_vector(self, client: int, message: bytes) -> None:
        reader = Reader(message, Kind.MASKED, self.session.id, client)
        masked = reader.array(self.session.ring.dtype, self.session.length)
        reader.finish()
        self.session.ring.check(masked, f"client {client}'s masked vector")
        if self._sum is None:
            self._sum = masked.copy()
        else:
            self.session.ring.add(self._sum, masked)
        self._survivors.add(client)

    def announce_survivors(self) -> bytes:
        """End R2: whose vectors came; in an unsigned session this is the request to unmask."""
        self._require(ServerStage.VECTORS, len(self._survivors), "sent a masked vector")
        self._stage = ServerStage.CONSENTS if self.session.signed else ServerStage.REVEALS
        return Writer(Kind.SURVIVORS, self.session.id, SERVER).numbers(self.survivors, 2).finish()

    def _collect_consent(self, client: int, message: bytes) -> None:
        reader = Reader(message, Kind.CONSENT, self.session.id, client)
        signature = reader.raw(SIGNATURE_SIZE)
        reader.finish()
        self.session.roster.verify(client, signature, survivor_statement(self.session.id, self.survivors))
        self._consents[client] = signature

    def announce_quorum(self) -> bytes:
        """End R2.5: the signatures that entitle the server to ask for shares."""
        self._require(ServerStage.CONSENTS, len(self._consents), "signed the survivors")
        self._stage = ServerStage.REVEALS
        writer = Writer(Kind.QUORUM, self.session.id, SERVER).numbers(self.survivors, 2)
        signers = sorted(self._consents)
        return writer.numbers(signers, 2).raw(b"".join(self._consents[s] for s in signers)).finish()

    def _collect_reveal(self, client: int, message: bytes) -> None:
        reader = Reader(message, Kind.REVEAL, self.session.id, client)
        count = reader.number(2)
        if count != len(self._commitments):
            raise MessageError(f"REVEAL: client {client} reveals {count} shares of {len(self._commitments)}")
        shares = [reader.number(SHARE_SIZE) for _ in range(count)]
        reader.finish()
        if max(shares) >= PRIME:
            raise TamperError(f"client {client} revealed a share outside the field")
        self._reveals[client] = shares

    def total(self) -> NDArray[Any]:
        """End R3: rebuild every secret, check each against its owner's commitment, and only then unmask."""
        self._require(ServerStage.REVEALS, len(self._reveals), "revealed their shares")
        secrets = self._rebuild_secrets()
        streams = [stream for owner, secret in secrets.items() for stream in self._streams(owner, secret)]
        assert self._sum is not None  # or there would be no quorum of survivors
        total, self._sum = self._sum, None
        add_masks(total, self.session.ring, streams)
        self._stage = ServerStage.DONE
        return total

    def _rebuild_secrets(self) -> dict[int, bytes]:
        quorum = sorted(self._reveals)[: self.session.threshold]
        weights = lagrange_weights(quorum)
        rebuilt = {}
        for position, owner in enumerate(sorted(self._commitments)):
            shares = {client: self._reveals[client][position] for client in quorum}
            rebuilt[owner] = self._rebuild(owner, position, shares, weights)
        return rebuilt

    def _rebuild(self, owner: int, position: int, shares: dict[int, int], weights: Sequence[int]) -> bytes:
        try:
            secret = combine_shares(shares, weights)
            self._check_secret(owner, secret)
        except TamperError as error:
            raise TamperError(f"{error}. {self._blame(owner, position)}") from None
        return secret

    def _check_secret(self, owner: int, secret: bytes) -> None:
        if owner in self._survivors:
            if commitment(secret, self.session.id, owner) != self._commitments[owner]:
                raise TamperError(f"the seed rebuilt for client {owner} is not the one it committed to")
        elif EphemeralKey(secret).public != self._adverts[owner][0][1]:
            raise TamperError(f"the mask key rebuilt for dropped client {owner} is not the one it advertised")

    def _blame(self, owner: int, position: int) -> str:
        """Whose share is off, if leaving one client out mends it."""
        for suspect in sorted(self._reveals):
            rest = [client for client in sorted(self._reveals) if client != suspect][: self.session.threshold]
            if len(rest) < self.session.threshold:
                break
            try:
                self._check_secret(owner, combine_shares({c: self._reveals[c][position] for c in rest}))
            except ProtocolError:
                continue
            return (
                f"The share between clients {owner} and {suspect} is wrong: one dealt or the other altered it"
            )
        return (
            f"Either client {owner} dealt false shares, or too few true ones came to tell who altered theirs"
        )

    def _streams(self, owner: int, secret: bytes) -> list[tuple[bytes, int]]:
        """What to add to the sum: minus a survivor's own mask, minus what a dropout left in the others'."""
        session = self.session
        if owner in self._survivors:
            return [(self_mask_key(secret, session.id, owner), -1)]
        key = EphemeralKey(secret)
        return [
            (
                pairwise_mask_key(key, session.id, owner, u, self._adverts[u][0][1]),
                -pairwise_sign(u, owner),
            )
            for u in self.survivors
        ]

    def _require(self, stage: ServerStage, count: int, what: str) -> None:
        if self._stage != stage:
            raise MessageError(
                f"the server is at stage '{self._stage.name.lower()}', not '{stage.name.lower()}'"
            )
        if count < self.session.threshold:
            raise DropoutError(
                f"{count} of {self.session.num_clients} clients {what}, fewer than the threshold of "
                f"{self.session.threshold}; nothing was unmasked. Raise `attempt` and try the round again"
            )
