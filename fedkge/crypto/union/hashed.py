"""The union of keyed hashes, sent directly: the server learns no identifier, but who holds which hash."""

from __future__ import annotations

from typing import ClassVar

from fedkge.crypto.group_key import GroupKeyClient, GroupKeyServer
from fedkge.crypto.keys import derive_key
from fedkge.crypto.union.conversation import Replies, UnionClient, UnionRows, UnionServer
from fedkge.crypto.union.listing import Listing, PseudonymListing
from fedkge.crypto.union.pseudonyms import WIRE, Pseudonyms, pseudonyms_under
from fedkge.crypto.union.union_session import read_parts, write_parts
from fedkge.crypto.wire import SERVER, Kind, Reader, Writer, sent_by
from fedkge.errors import RefusedError

__all__ = ["HashedUnionClient", "HashedUnionServer", "KeyedUnionClient"]


class HashedUnionServer(UnionServer):
    """Three steps: keys, envelopes, pseudonyms; later generations need the last alone."""

    listing: PseudonymListing
    no_rows: ClassVar[Listing] = PseudonymListing(Pseudonyms.empty())

    def _begin(self) -> None:
        session = self.session
        self._group = GroupKeyServer(session.roster, session.run)
        if session.generation == 0:
            self._ask_all(write_parts(Kind.UNION_OPEN, session.id, SERVER), self._on_adverts)
        else:
            self._ask_all(write_parts(Kind.UNION_IDS, session.id, SERVER, b""), self._on_ids)

    def _on_adverts(self, replies: Replies) -> None:
        adverts = self._single_parts(replies, Kind.UNION_OPEN)
        keys = self._group.announce_keys(adverts)
        self._ask_all(write_parts(Kind.UNION_KEYS, self.session.id, SERVER, keys), self._on_seals)

    def _on_seals(self, replies: Replies) -> None:
        delivery = self._group.deliver(self._single_parts(replies, Kind.UNION_KEYS))
        requests = {
            u: write_parts(Kind.UNION_IDS, self.session.id, SERVER, part) for u, part in delivery.items()
        }
        self._ask(requests, self._on_ids)

    def _on_ids(self, replies: Replies) -> None:
        self._require_all(replies)
        held = [self._read_pseudonyms(u, reply) for u, reply in replies.items()]
        self.listing = self.listing.append(Pseudonyms.concatenate(held))
        self._finish()

    def _read_pseudonyms(self, client: int, reply: bytes) -> Pseudonyms:
        with sent_by(client):
            reader = Reader(reply, Kind.UNION_IDS, self.session.id, client)
            packed = reader.array(WIRE)
            reader.finish()
            return Pseudonyms.of_wire(packed)


class KeyedUnionClient(UnionClient):
    """What hashed and private clients share: the group key, and the pseudonyms under it."""

    def _prepare(self) -> None:
        session = self.session
        self._group = GroupKeyClient(
            session.roster, session.run, self.index, self._identity, _entropy=self._entropy
        )
        self._pseudonyms: Pseudonyms | None = None

    def pseudonyms(self) -> Pseudonyms:
        """The client's identifiers as the union names them."""
        if self._pseudonyms is None:
            key = self._derive(b"fedkge pseudonyms" + self.session.name.encode())
            self._pseudonyms = pseudonyms_under(key, self._identifiers)
        return self._pseudonyms

    def row_secret(self, name: str) -> bytes:
        return self._derive(b"fedkge rows" + name.encode())

    def _derive(self, purpose: bytes) -> bytes:
        if not self._key:
            raise RefusedError("no group key: run the first generation, or restore the key it gave")
        return derive_key(self._key, purpose)

    def finish(self, listing: bytes) -> UnionRows:
        union = PseudonymListing.from_bytes(listing, self.session.id)
        return UnionRows(union.rows(self.pseudonyms()), union.num_rows, union.digest)

    def _machines(self) -> list[object]:
        return [self._group]

    def _secrets(self) -> list[bytes]:
        return [self._group.export_secrets()]

    def _restore(self, secrets: list[bytes]) -> None:
        self._group.restore_secrets(secrets[0])

    def _take_key(self, delivery: bytes) -> None:
        if delivery and not self._key:
            self._key = self._group.combine(delivery)


class HashedUnionClient(KeyedUnionClient):
    """Sends its pseudonyms as they are."""

    answers: ClassVar[dict[Kind, str]] = {
        Kind.UNION_OPEN: "advertise",
        Kind.UNION_KEYS: "seal",
        Kind.UNION_IDS: "send_ids",
    }

    def advertise(self, request: bytes) -> bytes:
        read_parts(request, Kind.UNION_OPEN, self.session.id, count=0)
        return write_parts(Kind.UNION_OPEN, self.session.id, self.index, self._group.advertise())

    def seal(self, request: bytes) -> bytes:
        (keys,) = read_parts(request, Kind.UNION_KEYS, self.session.id, count=1)
        return write_parts(Kind.UNION_KEYS, self.session.id, self.index, self._group.seal(keys))

    def send_ids(self, request: bytes) -> bytes:
        (delivery,) = read_parts(request, Kind.UNION_IDS, self.session.id, count=1)
        self._take_key(delivery)
        packed = self.pseudonyms().distinct().to_wire()
        return Writer(Kind.UNION_IDS, self.session.id, self.index).array(packed).finish()
