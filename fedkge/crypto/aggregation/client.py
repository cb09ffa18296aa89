"""The client's side of secure aggregation: bytes in, bytes out, one vector (Bonawitz et al. 2017, figure 4).

R0    advertise()            → signed public keys
R1    share_keys(keys)       → sealed shares of the mask key and of the self-mask seed
R2    mask(delivery, vector) → the masked vector, signed with what it rests on and whose shares were opened
R2.5  consent(survivors)     → a signature over the survivors     (where Session.needs_consent)
R3    unmask(request)        → one share per client: the seed of a survivor, the mask key of a dropout
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.crypto.aggregation.advertisement import advertise, read_keys
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
from fedkge.crypto.channels import OVERHEAD, channel_info, open_envelope, seal_envelope
from fedkge.crypto.entropy import OPERATING_SYSTEM, Entropy
from fedkge.crypto.journal import Journal
from fedkge.crypto.keys import KEY_SIZE, SIGNATURE_SIZE, EphemeralKey, Identity
from fedkge.crypto.masks import add_masks
from fedkge.crypto.session import Session
from fedkge.crypto.shares import PRIME, SHARE_SIZE, deal_shares
from fedkge.crypto.wire import SERVER, Kind, Reader, Writer
from fedkge.errors import DropoutError, MessageError, RefusedError, SettingError, TamperError

__all__ = ["ENVELOPE_SIZE", "SecureAggregationClient"]

ENVELOPE_SIZE = OVERHEAD + 2 * SHARE_SIZE
SEED_SIZE = 32


class ClientStage(IntEnum):
    """How far the client has come; every step is taken once and in order."""

    OPENED = 0
    ADVERTISED = 1
    SHARED = 2
    MASKED = 3
    CONSENTED = 4
    DONE = 5


class SecureAggregationClient:
    """One client in one session."""

    def __init__(
        self,
        session: Session,
        index: int,
        identity: Identity,
        journal: Journal,
        *,
        _entropy: Entropy = OPERATING_SYSTEM,
    ) -> None:
        if not 0 <= index < session.num_clients or session.roster.identities[index] != identity.public:
            raise SettingError(f"client {index}'s identity is not the one pinned in the roster")
        self.session = session
        self.index = index
        self._identity = identity
        self._journal = journal
        self._entropy = _entropy
        self._stage = ClientStage.OPENED
        self._keys: tuple[EphemeralKey, ...] = ()  # channel, mask; forgotten once the shares are out
        self._seed = b""
        self._binding = UNBOUND
        self._channel_keys: dict[int, bytes] = {}
        self._mask_keys: dict[int, bytes] = {}
        self._shares: dict[int, tuple[int, int]] = {}  # owner → (mask key, seed), once delivered
        self._consented: tuple[int, ...] = ()
        self.survivors: tuple[int, ...] = ()  # whose sum this client helped to unmask

    def advertise(self) -> bytes:
        """R0: fresh keys for this session; a session that the journal knows is refused."""
        self._require(ClientStage.OPENED)
        self._journal.open(self.session)
        self._keys = tuple(EphemeralKey.generate(_entropy=self._entropy) for _ in range(2))
        self._stage = ClientStage.ADVERTISED
        return advertise(self.session.id, self.index, self._identity, self._keys)

    def share_keys(self, keys: bytes) -> bytes:
        """R1: check everybody's keys, then deal t-of-n shares of the mask key and of a fresh seed."""
        self._require(ClientStage.ADVERTISED)
        session = self.session
        own_keys = [key.public for key in self._keys]
        public_keys = read_keys(keys, session.id, self.index, session.roster, own_keys)
        self._require_quorum(len(public_keys), "advertised keys")
        others = [client for client in public_keys if client != self.index]
        channel, mask = self._keys
        channel_keys = {
            v: channel.agree(public_keys[v][0], channel_info(session.id, self.index, v), f"client {v}")
            for v in others
        }
        mask_keys = {v: pairwise_mask_key(mask, session.id, self.index, v, public_keys[v][1]) for v in others}
        seed = self._entropy(SEED_SIZE)
        dealt = deal_shares(
            [mask.export_secret(), seed], session.threshold, session.num_clients, _entropy=self._entropy
        )
        self._channel_keys, self._mask_keys, self._seed = channel_keys, mask_keys, seed
        self._shares = {self.index: (dealt[self.index][0], dealt[self.index][1])}
        self._keys = ()
        self._stage = ClientStage.SHARED
        return self._write_shares(dealt, others)

    def _write_shares(self, dealt: list[list[int]], others: list[int]) -> bytes:
        writer = Writer(Kind.SHARES, self.session.id, self.index)
        writer.raw(commitment(self._seed, self.session.id, self.index)).number(len(others), 2)
        for v in others:
            content = b"".join(share.to_bytes(SHARE_SIZE, "little") for share in dealt[v])
            envelope = seal_envelope(
                self._channel_keys[v], self.session.id, self.index, v, content, _entropy=self._entropy
            )
            writer.raw(envelope)
        return writer.finish()

    def mask(self, delivery: bytes, vector: NDArray[Any], binding: bytes = UNBOUND) -> bytes:
        """R2: open the others' shares, then hide the vector under one mask per pair and one of one's own.

        `binding` digests what the client acted on. Between clients who differ in it no mask cancels.
        """
        self.session.ring.check(vector, f"client {self.index}'s vector")
        if len(vector) != self.session.length:
            raise SettingError(f"a vector of {len(vector)} words in a session of {self.session.length}")
        return self.mask_in_place(delivery, lambda room: np.copyto(room, vector), binding)

    def mask_in_place(
        self, delivery: bytes, fill: Callable[[NDArray[Any]], object], binding: bytes = UNBOUND
    ) -> bytes:
        """R2 without a copy: `fill` writes the vector over zeros, in the message that it will travel in."""
        self._require(ClientStage.SHARED)
        session = self.session
        if len(binding) != BINDING_SIZE:
            raise SettingError(f"a binding has {BINDING_SIZE} bytes, not {len(binding)}")
        shares = self._open_delivery(delivery)
        streams = [(bound_key(self._mask_keys[v], binding), pairwise_sign(self.index, v)) for v in shares]
        streams.append((self_mask_key(self._seed, session.id, self.index, binding), 1))
        shares |= self._shares
        statement = delivery_statement(session.id, binding, sorted(shares))

        def write(vector: NDArray[Any]) -> None:
            fill(vector)
            session.ring.check(vector, f"client {self.index}'s vector")
            self._journal.mask(session, binding)
            add_masks(vector, session.ring, streams)

        writer = Writer(Kind.MASKED, session.id, self.index).raw(binding).raw(self._identity.sign(statement))
        writer.space(session.length, session.ring.dtype, write)
        self._shares, self._binding = shares, binding
        self._channel_keys, self._mask_keys, self._seed = {}, {}, b""
        self._stage = ClientStage.MASKED
        return writer.finish()

    def _open_delivery(self, delivery: bytes) -> dict[int, tuple[int, int]]:
        session = self.session
        reader = Reader(delivery, Kind.DELIVERY, session.id, SERVER)
        senders = reader.indices(session.num_clients)
        envelopes = {u: reader.raw(ENVELOPE_SIZE) for u in senders}
        reader.finish()
        self._require_quorum(len(senders) + 1, "shared their keys")
        unknown = sorted(set(senders) - set(self._channel_keys))
        if unknown:
            raise TamperError(f"the server delivers shares of clients {unknown}, who advertised no keys")
        return {u: self._open_shares(u, envelope) for u, envelope in envelopes.items()}

    def _open_shares(self, sender: int, envelope: bytes) -> tuple[int, int]:
        key = self._channel_keys[sender]
        content = open_envelope(key, self.session.id, sender, self.index, envelope)
        mask_key = int.from_bytes(content[:SHARE_SIZE], "little")
        seed = int.from_bytes(content[SHARE_SIZE:], "little")
        if max(mask_key, seed) >= PRIME:
            raise TamperError(f"client {sender} dealt a share outside the field")
        return mask_key, seed

    def consent(self, survivors: bytes) -> bytes:
        """R2.5: sign the survivors, so that the server cannot show different ones to different clients."""
        self._require(ClientStage.MASKED)
        named = self._read_request(survivors)
        if not self.session.needs_consent(self._opened, named):
            raise RefusedError(
                "these survivors are unmasked without a consistency round; open the session with signed=True"
            )
        signature = self._identity.sign(self._survivor_statement(named))
        self._consented = named
        self._stage = ClientStage.CONSENTED
        return Writer(Kind.CONSENT, self.session.id, self.index).raw(signature).finish()

    def unmask(self, request: bytes) -> bytes:
        """R3: one share per client, of the seed or of the mask key and never of both; answered once."""
        session = self.session
        if self._stage == ClientStage.CONSENTED:
            survivors = self._read_quorum(request)
        else:
            self._require(ClientStage.MASKED)
            survivors = self._read_request(request)
            if session.needs_consent(self._opened, survivors):
                raise RefusedError(
                    f"client {self.index} unmasks these survivors only after it has consented to them"
                )
        self._journal.reveal(session, survivors)
        writer = Writer(Kind.REVEAL, session.id, self.index).number(len(self._shares), 2)
        for owner in sorted(self._shares):
            mask_key, seed = self._shares[owner]
            writer.raw((seed if owner in survivors else mask_key).to_bytes(SHARE_SIZE, "little"))
        self._shares, self.survivors = {}, survivors
        self._stage = ClientStage.DONE
        return writer.finish()

    @property
    def _opened(self) -> tuple[int, ...]:
        """U2 as this client saw it: whose shares it has, its own among them."""
        return tuple(sorted(self._shares))

    def _survivor_statement(self, survivors: tuple[int, ...]) -> bytes:
        return survivor_statement(self.session.id, self._binding, self._opened, survivors)

    def _read_request(self, request: bytes) -> tuple[int, ...]:
        """The survivors, once all of them have signed the same binding and the same U2 as this client."""
        session = self.session
        reader = Reader(request, Kind.SURVIVORS, session.id, SERVER)
        survivors = self._read_survivors(reader)
        signatures = {survivor: reader.raw(SIGNATURE_SIZE) for survivor in survivors}
        reader.finish()
        statement = delivery_statement(session.id, self._binding, self._opened)
        for survivor, signature in signatures.items():
            if survivor == self.index:
                continue
            try:
                session.roster.verify(survivor, signature, statement)
            except TamperError:
                raise TamperError(
                    f"client {survivor} did not sign what client {self.index} did: the server told them "
                    "different things, delivered different envelopes, or altered the signature"
                ) from None
        return survivors

    def _read_survivors(self, reader: Reader) -> tuple[int, ...]:
        """The survivors, if unmasking them is safe: known, with us among them, and enough."""
        survivors = reader.indices(self.session.num_clients)
        strangers = sorted(set(survivors) - set(self._shares))
        if strangers:
            raise TamperError(f"clients {strangers} are named as survivors but delivered no shares")
        if self.index not in survivors:
            raise TamperError(f"client {self.index} masked its vector, but the server counts it as dropped")
        self._require_quorum(len(survivors), "sent a masked vector")
        return survivors

    def _read_quorum(self, request: bytes) -> tuple[int, ...]:
        session = self.session
        reader = Reader(request, Kind.QUORUM, session.id, SERVER)
        survivors = self._read_survivors(reader)
        signers = reader.indices(session.num_clients)
        signatures = {signer: reader.raw(SIGNATURE_SIZE) for signer in signers}
        reader.finish()
        if survivors != self._consented:
            raise TamperError("the server asks to unmask other survivors than those this client signed")
        if not set(signers) <= set(survivors):
            raise TamperError("a client that is no survivor signed the list of survivors")
        self._require_quorum(len(signers), "signed the survivors")
        statement = self._survivor_statement(survivors)
        for signer, signature in signatures.items():
            session.roster.verify(signer, signature, statement)
        return survivors

    def _require(self, stage: ClientStage) -> None:
        if self._stage != stage:
            done, wanted = self._stage.name.lower(), stage.name.lower()
            raise RefusedError(
                f"client {self.index} is at stage '{done}', and this step follows '{wanted}'; "
                "every step of a session is taken once"
            )

    def _require_quorum(self, count: int, what: str) -> None:
        if count < self.session.threshold:
            raise DropoutError(
                f"{count} clients {what}, fewer than the threshold of {self.session.threshold}"
            )

    def export_secrets(self) -> bytes:
        """All of the client's state, keys and shares included: for its own file, and never for a message."""
        writer = Writer(Kind.CLIENT_STATE, self.session.id, self.index).number(self._stage, 1)
        writer.number(len(self._keys), 1).raw(b"".join(key.export_secret() for key in self._keys))
        writer.blob(self._seed).raw(self._binding).numbers(self._consented, 2)
        for table in (self._channel_keys, self._mask_keys):
            writer.numbers(sorted(table), 2).raw(b"".join(table[v] for v in sorted(table)))
        writer.numbers(sorted(self._shares), 2)
        for owner in sorted(self._shares):
            writer.raw(b"".join(share.to_bytes(SHARE_SIZE, "little") for share in self._shares[owner]))
        return writer.finish()

    def restore_secrets(self, stored: bytes) -> None:
        """Take up a session where `export_secrets` left it; the journal still stands above it."""
        self._require(ClientStage.OPENED)
        reader = Reader(stored, Kind.CLIENT_STATE, self.session.id, self.index)
        stage = _stage_of(reader.number(1))
        keys = tuple(EphemeralKey(reader.raw(KEY_SIZE)) for _ in range(reader.number(1)))
        seed, binding, consented = reader.blob(), reader.raw(BINDING_SIZE), tuple(reader.numbers(2))
        n = self.session.num_clients
        tables = [{v: reader.raw(KEY_SIZE) for v in reader.indices(n)} for _ in range(2)]
        shares = {owner: self._read_stored_shares(reader) for owner in reader.indices(n)}
        reader.finish()
        self._stage, self._keys, self._seed, self._consented = stage, keys, seed, consented
        self._binding = binding
        self._channel_keys, self._mask_keys = tables
        self._shares = shares

    @staticmethod
    def _read_stored_shares(reader: Reader) -> tuple[int, int]:
        return reader.number(SHARE_SIZE), reader.number(SHARE_SIZE)


def _stage_of(number: int) -> ClientStage:
    if number not in set(ClientStage):
        raise MessageError(f"CLIENT_STATE: there is no stage {number}")
    return ClientStage(number)
