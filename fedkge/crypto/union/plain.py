"""The union in the clear: the server learns every identifier and who holds it. For comparison only."""

from __future__ import annotations

from typing import ClassVar

from fedkge.crypto.union.conversation import Replies, UnionClient, UnionRows, UnionServer
from fedkge.crypto.union.listing import Listing, NameListing, read_names, write_names
from fedkge.crypto.union.pseudonyms import normalize
from fedkge.crypto.union.union_session import read_parts, write_parts
from fedkge.crypto.wire import SERVER, Kind, sent_by

__all__ = ["PlainUnionClient", "PlainUnionServer"]


class PlainUnionServer(UnionServer):
    """One step: all identifiers of all clients."""

    listing: NameListing
    no_rows: ClassVar[Listing] = NameListing(())

    def _begin(self) -> None:
        self._ask_all(write_parts(Kind.UNION_IDS, self.session.id, SERVER), self._on_ids)

    def _on_ids(self, replies: Replies) -> None:
        self._require_all(replies)
        held = [
            self._names_in(u, packed) for u, packed in self._single_parts(replies, Kind.UNION_IDS).items()
        ]
        self.listing = self.listing.append(name for names in held for name in names)
        self._finish()

    def _names_in(self, client: int, packed: bytes) -> list[str]:
        with sent_by(client):
            return read_names(packed)


class PlainUnionClient(UnionClient):
    """Sends its identifiers as they are."""

    answers: ClassVar[dict[Kind, str]] = {Kind.UNION_IDS: "send_ids"}

    def _prepare(self) -> None:
        self._names = [normalize(identifier).decode() for identifier in self._identifiers]

    def send_ids(self, request: bytes) -> bytes:
        read_parts(request, Kind.UNION_IDS, self.session.id, count=0)
        return write_parts(Kind.UNION_IDS, self.session.id, self.index, write_names(sorted(set(self._names))))

    def finish(self, listing: bytes) -> UnionRows:
        union = NameListing.from_bytes(listing, self.session.id)
        return UnionRows(union.rows(self._names), union.num_rows, union.digest)

    def _secrets(self) -> list[bytes]:
        return []

    def _restore(self, secrets: list[bytes]) -> None:
        """Nothing is kept."""
