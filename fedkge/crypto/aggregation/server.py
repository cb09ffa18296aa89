"""The server's side of secure aggregation: it collects, forwards, learns one sum (Bonawitz et al. 2017).

collect(client, message)   takes a reply of the current stage
announce_keys()            ends R0   → one message for all
deliver_shares()           ends R1   → one message per client
announce_survivors()       ends R2   → one message for the survivors
announce_quorum()          ends R2.5 → one message for the survivors   (where `needs_consent`)
total()                    ends R3   → the sum over the survivors
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import combinations, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.crypto.aggregation.advertisement import Advertisement, read_advertisement, write_keys
from fedkge.crypto.aggregation.client import ENVELOPE_SIZE
from fedkge.crypto.aggregation.pairwise_keys import (
    BINDING_SIZE,
    UNBOUND,
    bound_key,
    commitment,
    delivery_statement,
    pairwise_mask_key,
    pairwise_sign,
    self_mask_key,
    survivor_statement,
)
from fedkge.crypto.keys import SIGNATURE_SIZE, EphemeralKey
from fedkge.crypto.masks import add_masks
from fedkge.crypto.session import Session
from fedkge.crypto.shares import PRIME, SHARE_SIZE, combine_shares, lagrange_weights, share_of
from fedkge.crypto.wire import SERVER, Kind, Reader, Writer
from fedkge.errors import DropoutError, MessageError, SettingError, TamperError

__all__ = ["SecureAggregationServer"]

COMMITMENT_SIZE = 32
_MOST_QUORUMS = 1000  # tried before a secret is given up


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
        self._binding = UNBOUND
        self._signatures: dict[int, bytes] = {}  # of the survivors, over what their vectors rest on
        self._consents: dict[int, bytes] = {}
        self._reveals: dict[int, list[int]] = {}  # client → one share per client of U2, ascending

        self.culprits: tuple[int, ...] = ()  # known once the secrets are rebuilt; empty if all shares fit

    def clone(self) -> SecureAggregationServer:
        """A copy that goes on by itself."""
        twin = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (dict, set, np.ndarray)):
                setattr(twin, name, value.copy())
        return twin

    def bind(self, binding: bytes) -> None:
        """Before the first vector: the digest of what the server told all clients that they act on."""
        if self._survivors or len(binding) != BINDING_SIZE:
            raise SettingError(f"a sum is bound before its first vector, and by {BINDING_SIZE} bytes")
        self._binding = binding

    @property
    def needs_consent(self) -> bool:
        """Whether the survivors sign who they are before they unmask."""
        return self.session.needs_consent(sorted(self._commitments), self.survivors)

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
        binding, signature = reader.raw(BINDING_SIZE), reader.raw(SIGNATURE_SIZE)
        masked = reader.array(self.session.ring.dtype, self.session.length)
        reader.finish()
        self.session.ring.check(masked, f"client {client}'s masked vector")
        statement = delivery_statement(self.session.id, binding, sorted(self._commitments))
        self.session.roster.verify(client, signature, statement)
        if binding != self._binding:
            raise TamperError(
                f"client {client} acted on something else than it was told: a message was lost or altered on "
                "the way. Its vector is left out"
            )
        if self._sum is None:
            self._sum = masked.copy()
        else:
            self.session.ring.add(self._sum, masked)
        self._survivors.add(client)
        self._signatures[client] = signature

    def announce_survivors(self) -> bytes:
        """End R2: whose vectors came, and what they signed; unless `needs_consent`, the request to unmask."""
        self._require(ServerStage.VECTORS, len(self._survivors), "sent a masked vector")
        self._stage = ServerStage.CONSENTS if self.needs_consent else ServerStage.REVEALS
        writer = Writer(Kind.SURVIVORS, self.session.id, SERVER).numbers(self.survivors, 2)
        return writer.raw(b"".join(self._signatures[client] for client in self.survivors)).finish()

    def _collect_consent(self, client: int, message: bytes) -> None:
        reader = Reader(message, Kind.CONSENT, self.session.id, client)
        signature = reader.raw(SIGNATURE_SIZE)
        reader.finish()
        opened = sorted(self._commitments)
        statement = survivor_statement(self.session.id, self._binding, opened, self.survivors)
        self.session.roster.verify(client, signature, statement)
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
        """Every owner's secret, where a share is off from another quorum; `culprits` says whose it was."""
        revealers = sorted(self._reveals)
        quorum = revealers[: self.session.threshold]
        weights = lagrange_weights(quorum)
        rebuilt: dict[int, bytes] = {}
        errors: dict[int, str] = {}
        false: list[tuple[int, int]] = []  # owner, revealer
        for position, owner in enumerate(sorted(self._commitments)):
            shares = {client: self._reveals[client][position] for client in revealers}
            try:
                chosen = {client: shares[client] for client in quorum}
                rebuilt[owner] = self._check_secret(owner, combine_shares(chosen, weights))
            except TamperError as error:
                mended = self._mend(owner, shares, [revealer for _, revealer in false])
                if mended is None:
                    errors[owner] = str(error)
                else:
                    rebuilt[owner], strangers = mended
                    false += [(owner, revealer) for revealer in strangers]
        self.culprits = _culprits(false, errors)
        if errors:
            raise TamperError(
                f"{next(iter(errors.values()))}. Either clients {sorted(errors)} dealt false shares, or too "
                "few true ones came to tell who altered theirs"
            )
        return rebuilt

    def _mend(
        self, owner: int, shares: Mapping[int, int], suspects: Sequence[int]
    ) -> tuple[bytes, list[int]] | None:
        """The secret from another quorum, and whose shares are off it; suspects are left out first.

        Liars whose errors cancel in some quorum get the true secret from false shares, and could so frame an
        honest client: only shares off a polynomial that all the others lie on are held against anybody.
        """
        threshold = self.session.threshold
        order = sorted(shares, key=lambda client: (client not in suspects, client))
        left_out = (
            gone for size in range(1, len(order) - threshold + 1) for gone in combinations(order, size)
        )
        mended: bytes | None = None
        for gone in islice(left_out, _MOST_QUORUMS):
            rest = {client: share for client, share in shares.items() if client not in gone}
            quorum = dict(islice(rest.items(), threshold))
            try:
                mended = self._check_secret(owner, combine_shares(quorum))
            except TamperError:
                continue
            if all(share_of(client, quorum) == share for client, share in rest.items()):
                return mended, [client for client in gone if share_of(client, quorum) != shares[client]]
        return None if mended is None else (mended, [])

    def _check_secret(self, owner: int, secret: bytes) -> bytes:
        if owner in self._survivors:
            if commitment(secret, self.session.id, owner) != self._commitments[owner]:
                raise TamperError(f"the seed rebuilt for client {owner} is not the one it committed to")
        elif EphemeralKey(secret).public != self._adverts[owner][0][1]:
            raise TamperError(f"the mask key rebuilt for dropped client {owner} is not the one it advertised")
        return secret

    def _streams(self, owner: int, secret: bytes) -> list[tuple[bytes, int]]:
        """What to add to the sum: minus a survivor's own mask, minus what a dropout left in the others'."""
        session = self.session
        if owner in self._survivors:
            return [(self_mask_key(secret, session.id, owner, self._binding), -1)]
        key = EphemeralKey(secret)
        keys = {
            u: pairwise_mask_key(key, session.id, owner, u, self._adverts[u][0][1]) for u in self.survivors
        }
        return [(bound_key(keys[u], self._binding), -pairwise_sign(u, owner)) for u in self.survivors]

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


def _culprits(false: Sequence[tuple[int, int]], errors: Mapping[int, str]) -> tuple[int, ...]:
    """The fewest parties that explain all false shares between an owner and a revealer.

    A single false share may be the dealer's or the revealer's doing: then it is who sent it here. Several
    secrets that no quorum rebuilds may be one revealer's doing, and name nobody.
    """
    found = set(errors) if len(errors) == 1 else set()
    pairs = set(false)
    while pairs := {pair for pair in pairs if not found & set(pair)}:
        count = Counter(client for pair in sorted(pairs) for client in pair[::-1])
        found.add(max(count, key=count.__getitem__))  # of equals the first, who is a revealer
    return tuple(sorted(found))
