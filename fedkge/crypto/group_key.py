"""A key that all clients have and the server has not: each sends a fresh part to every other, sealed (K0)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from fedkge.crypto.aggregation.advertisement import (
    Advertisement,
    advertise,
    read_advertisement,
    read_keys,
    write_keys,
)
from fedkge.crypto.channels import OVERHEAD, channel_info, open_envelope, seal_envelope
from fedkge.crypto.entropy import OPERATING_SYSTEM, Entropy
from fedkge.crypto.keys import KEY_SIZE, EphemeralKey, Identity, derive_key
from fedkge.crypto.roster import Roster
from fedkge.crypto.wire import SERVER, Kind, Reader, Writer, sent_by
from fedkge.errors import DropoutError, RefusedError

__all__ = ["GroupKeyClient", "GroupKeyServer", "group_key_id"]

ENVELOPE_SIZE = OVERHEAD + KEY_SIZE


def group_key_id(roster: Roster, run: str) -> bytes:
    """The digest that binds the messages of one key agreement together."""
    return hashlib.sha256(b"fedkge group key" + roster.digest + run.encode()).digest()


class GroupKeyClient:
    """advertise → seal(keys) → combine(delivery); all clients of the roster must take part."""

    def __init__(
        self,
        roster: Roster,
        run: str,
        index: int,
        identity: Identity,
        *,
        _entropy: Entropy = OPERATING_SYSTEM,
    ) -> None:
        self._roster, self._index, self._identity, self._entropy = roster, index, identity, _entropy
        self._id = group_key_id(roster, run)
        self._channel = EphemeralKey.generate(_entropy=_entropy)
        self._part = _entropy(KEY_SIZE)
        self._channel_keys: dict[int, bytes] = {}

    def advertise(self) -> bytes:
        return advertise(self._id, self._index, self._identity, [self._channel])

    def seal(self, keys: bytes) -> bytes:
        """One's part of the key, to every other client; a second list of keys is refused."""
        if self._channel_keys:
            raise RefusedError("this client has sealed its part of the group key already")
        found = read_keys(keys, self._id, self._index, self._roster, [self._channel.public])
        if len(found) != len(self._roster):
            raise DropoutError(f"{len(found)} of {len(self._roster)} clients: a group key needs all of them")
        self._channel_keys = {
            v: self._channel.agree(public, channel_info(self._id, self._index, v), f"client {v}")
            for v, (public,) in found.items()
            if v != self._index
        }
        writer = Writer(Kind.GROUP_SEAL, self._id, self._index)
        for v, key in sorted(self._channel_keys.items()):
            writer.raw(seal_envelope(key, self._id, self._index, v, self._part, _entropy=self._entropy))
        return writer.finish()

    def combine(self, delivery: bytes) -> bytes:
        """K = HKDF(k_1 ‖ … ‖ k_n)."""
        reader = Reader(delivery, Kind.GROUP_DELIVERY, self._id, SERVER)
        envelopes = {u: reader.raw(ENVELOPE_SIZE) for u in sorted(self._channel_keys)}
        reader.finish()
        parts = {self._index: self._part}
        for u, envelope in envelopes.items():
            parts[u] = open_envelope(self._channel_keys[u], self._id, u, self._index, envelope)
        return derive_key(b"".join(parts[u] for u in sorted(parts)), b"fedkge group key" + self._id)

    def export_secrets(self) -> bytes:
        """The client's state, for its own file and never for a message."""
        writer = Writer(Kind.GROUP_STATE, self._id, self._index)
        writer.raw(self._channel.export_secret()).raw(self._part)
        channels = sorted(self._channel_keys)
        return writer.numbers(channels, 2).raw(b"".join(self._channel_keys[v] for v in channels)).finish()

    def restore_secrets(self, stored: bytes) -> None:
        reader = Reader(stored, Kind.GROUP_STATE, self._id, self._index)
        channel, part = EphemeralKey(reader.raw(KEY_SIZE)), reader.raw(KEY_SIZE)
        channel_keys = {v: reader.raw(KEY_SIZE) for v in reader.indices(len(self._roster))}
        reader.finish()
        self._channel, self._part, self._channel_keys = channel, part, channel_keys


class GroupKeyServer:
    """Carries keys and envelopes, and can open none of them."""

    def __init__(self, roster: Roster, run: str) -> None:
        self._roster = roster
        self._id = group_key_id(roster, run)

    def announce_keys(self, replies: Mapping[int, bytes]) -> bytes:
        self._require_all(replies)
        found: dict[int, Advertisement] = {}
        for u, reply in replies.items():
            with sent_by(u):
                found[u] = read_advertisement(reply, self._id, u, self._roster, num_keys=1)
        return write_keys(self._id, found)

    def deliver(self, replies: Mapping[int, bytes]) -> dict[int, bytes]:
        self._require_all(replies)
        envelopes = {u: self._read_envelopes(u, reply) for u, reply in replies.items()}
        return {
            v: Writer(Kind.GROUP_DELIVERY, self._id, SERVER)
            .raw(b"".join(envelopes[u][v] for u in sorted(envelopes) if u != v))
            .finish()
            for v in envelopes
        }

    def _read_envelopes(self, client: int, reply: bytes) -> dict[int, bytes]:
        with sent_by(client):
            reader = Reader(reply, Kind.GROUP_SEAL, self._id, client)
            found = {v: reader.raw(ENVELOPE_SIZE) for v in range(len(self._roster)) if v != client}
            reader.finish()
            return found

    def _require_all(self, replies: Mapping[int, bytes]) -> None:
        missing = sorted(set(range(len(self._roster))) - set(replies))
        if missing:
            raise DropoutError(
                f"clients {missing} did not reply: a group key needs every client of the roster"
            )
