"""Signed public keys, which open every key exchange: the server cannot put its own keys in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedkge.crypto.keys import KEY_SIZE, SIGNATURE_SIZE, EphemeralKey, Identity, refuse_low_order
from fedkge.crypto.roster import Roster
from fedkge.crypto.wire import SERVER, Kind, Reader, Writer
from fedkge.errors import TamperError

__all__ = ["Advertisement", "advertise", "read_advertisement", "read_keys", "write_keys"]

Advertisement = tuple[tuple[bytes, ...], bytes]  # public keys, and the owner's signature over them


def _statement(session: bytes, index: int, keys: Sequence[bytes]) -> bytes:
    return b"fedkge keys" + session + index.to_bytes(2, "little") + b"".join(keys)


def advertise(session: bytes, index: int, identity: Identity, keys: Sequence[EphemeralKey]) -> bytes:
    """u→S: my public keys for this session, signed."""
    public = [key.public for key in keys]
    writer = Writer(Kind.ADVERTISE, session, index).raw(b"".join(public))
    return writer.raw(identity.sign(_statement(session, index, public))).finish()


def read_advertisement(
    message: bytes, session: bytes, index: int, roster: Roster, num_keys: int
) -> Advertisement:
    """What client `index` advertised; a key that is forged or can hold no secret raises."""
    reader = Reader(message, Kind.ADVERTISE, session, index)
    found = _read_entry(reader, num_keys)
    reader.finish()
    _verify(session, index, found, roster)
    for key in found[0]:
        refuse_low_order(key, f"client {index}")
    return found


def write_keys(session: bytes, advertisements: Mapping[int, Advertisement]) -> bytes:
    """S→all: everybody's keys, with the signatures they came with."""
    writer = Writer(Kind.KEYS, session, SERVER).numbers(sorted(advertisements), 2)
    for index in sorted(advertisements):
        keys, signature = advertisements[index]
        writer.raw(b"".join(keys)).raw(signature)
    return writer.finish()


def read_keys(
    message: bytes, session: bytes, index: int, roster: Roster, own_keys: Sequence[bytes]
) -> dict[int, tuple[bytes, ...]]:
    """Everybody's keys, once the signatures fit, no key occurs twice, and one's own are unchanged."""
    reader = Reader(message, Kind.KEYS, session, SERVER)
    found = {client: _read_entry(reader, len(own_keys)) for client in reader.indices(len(roster))}
    reader.finish()
    if index not in found or found[index][0] != tuple(own_keys):
        raise TamperError(f"the server's list does not show client {index} with the keys it advertised")
    everything = [key for keys, _ in found.values() for key in keys]
    if len(set(everything)) != len(everything):
        raise TamperError("two public keys in the server's list are the same")
    for client, entry in found.items():
        if client != index:
            _verify(session, client, entry, roster)
    return {client: keys for client, (keys, _) in found.items()}


def _read_entry(reader: Reader, num_keys: int) -> Advertisement:
    keys = tuple(reader.raw(KEY_SIZE) for _ in range(num_keys))
    return keys, reader.raw(SIGNATURE_SIZE)


def _verify(session: bytes, index: int, entry: Advertisement, roster: Roster) -> None:
    keys, signature = entry
    roster.verify(index, signature, _statement(session, index, keys))
