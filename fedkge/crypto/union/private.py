"""The union that shows the server pseudonyms and their number, and nothing about any one client (K0 to K4).

Each step carries a part of the key agreement and a part of the secure aggregation of the tables, so the
first try takes four exchanges, or five where the clients sign the survivors. A table that does not peel is
sent again with twice the cells, freshly masked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedkge.crypto.aggregation import SecureAggregationClient, SecureAggregationServer
from fedkge.crypto.group_key import GroupKeyServer
from fedkge.crypto.keys import derive_key
from fedkge.crypto.union.conversation import Replies, UnionServer
from fedkge.crypto.union.hashed import KeyedUnionClient
from fedkge.crypto.union.listing import Listing, PseudonymListing
from fedkge.crypto.union.pseudonyms import Pseudonyms
from fedkge.crypto.union.table import SALT_SIZE, TableShape, TableTooSmallError, fill_table, list_table
from fedkge.crypto.union.union_session import UnionSession, read_parts, write_parts
from fedkge.crypto.wire import SERVER, Kind, Reader, Writer, sent_by
from fedkge.errors import MessageError, ProtocolError, RefusedError, SettingError, TamperError

__all__ = ["PrivateUnionClient", "PrivateUnionServer"]

CONFIRMATION_SIZE = 16
MAX_EXPECTED = 1 << 21  # a table of 68 MB per client


def write_opening(session: bytes, attempt: int, shape: TableShape) -> bytes:
    writer = Writer(Kind.UNION_OPEN, session, SERVER).number(attempt, 4).raw(shape.salt)
    return writer.number(shape.num_cells, 4).number(shape.num_positions, 1).finish()


def read_opening(message: bytes, session: UnionSession) -> tuple[int, TableShape]:
    reader = Reader(message, Kind.UNION_OPEN, session.id, SERVER)
    attempt, salt = reader.number(4), reader.raw(SALT_SIZE)
    cells, positions = reader.number(4), reader.number(1)
    reader.finish()
    if cells > session.max_cells:
        raise RefusedError(
            f"the server asks for a table of {cells} cells, and this client makes none of more than "
            f"{session.max_cells} (`max_cells = {session.max_cells}`, which its operator sets)"
        )
    try:
        return attempt, TableShape(salt, cells, positions)
    except SettingError as error:
        raise MessageError(f"UNION_OPEN: {error}") from None


class PrivateUnionServer(UnionServer):
    """Learns the pseudonyms of the union and their number."""

    listing: PseudonymListing
    no_rows: ClassVar[Listing] = PseudonymListing(Pseudonyms.empty())
    max_expected: int = MAX_EXPECTED  # beyond it, a table that does not peel is taken for false

    def _begin(self) -> None:
        self.survivors: tuple[int, ...] = ()
        self._sum: SecureAggregationServer
        self._group = GroupKeyServer(self.session.roster, self.session.run)
        self._needs_key = self.session.generation == 0
        self._ask_first()

    def _ask_first(self) -> None:
        self._open()

    def _open(self) -> None:
        self._shape = TableShape.expecting(self._expected, self._entropy(SALT_SIZE))
        self._sum = SecureAggregationServer(self.session.aggregation(self._shape, self._attempt))
        self._ask_all(write_opening(self.session.id, self._attempt, self._shape), self._on_adverts)

    def _split(self, replies: Replies, kind: Kind) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """What the key agreement gets, and what the secure aggregation."""
        first, second = {}, {}
        for u, reply in replies.items():
            first[u], second[u] = self._parts(u, reply, kind, count=2)
        return first, second

    def collect(self, replies: Replies) -> None:
        before = vars(self).get("_sum")
        if before is None:
            super().collect(replies)
            return
        self._sum = before.clone()
        try:
            super().collect(replies)
        except ProtocolError:
            self._sum = before
            raise

    def _collect(self, messages: Replies) -> None:
        for u, message in messages.items():
            with sent_by(u):
                self._sum.collect(u, message)

    def _on_adverts(self, replies: Replies) -> None:
        group, adverts = self._split(replies, Kind.UNION_OPEN)
        group_keys = self._group.announce_keys(group) if self._needs_key else b""
        self._collect(adverts)
        keys = self._sum.announce_keys()
        request = write_parts(Kind.UNION_KEYS, self.session.id, SERVER, group_keys, keys)
        self._ask(dict.fromkeys(adverts, request), self._on_shares)

    def _on_shares(self, replies: Replies) -> None:
        group, shares = self._split(replies, Kind.UNION_KEYS)
        envelopes = self._group.deliver(group) if self._needs_key else {}
        self._collect(shares)
        requests = {
            u: write_parts(Kind.UNION_TABLE, self.session.id, SERVER, envelopes.get(u, b""), delivery)
            for u, delivery in self._sum.deliver_shares().items()
        }
        self._ask(requests, self._on_tables)

    def _on_tables(self, replies: Replies) -> None:
        confirmations, tables = self._split(replies, Kind.UNION_TABLE)
        self._compare(confirmations)
        self._collect(tables)
        survivors = self._sum.announce_survivors()
        if self._sum.needs_consent:
            request = write_parts(Kind.UNION_CONSENT, self.session.id, SERVER, survivors)
            self._ask(dict.fromkeys(tables, request), self._on_consents)
        else:
            self._ask_to_reveal(tables, survivors)

    def _on_consents(self, replies: Replies) -> None:
        self._collect(self._single_parts(replies, Kind.UNION_CONSENT))
        self._ask_to_reveal(replies, self._sum.announce_quorum())

    def _ask_to_reveal(self, clients: Iterable[int], survivors: bytes) -> None:
        request = write_parts(Kind.UNION_REVEAL, self.session.id, SERVER, survivors)
        self._ask(dict.fromkeys(clients, request), self._on_reveals)

    def _compare(self, confirmations: Replies) -> None:
        """Raise if the clients hold different keys: somebody sent different parts to different clients."""
        holders: dict[bytes, list[int]] = {}
        for u, confirmation in confirmations.items():
            holders.setdefault(confirmation, []).append(u)
        if len(holders) > 1:
            groups = "; ".join(str(group) for group in holders.values())
            raise TamperError(
                f"the clients do not hold one key, but one per group: {groups}; nothing was united"
            )

    def _on_reveals(self, replies: Replies) -> None:
        self._collect(self._single_parts(replies, Kind.UNION_REVEAL))
        total = self._sum.total()
        try:
            found = list_table(self._shape, total)
        except TableTooSmallError:
            self._enlarge()
            return
        self.listing, self.survivors = self.listing.append(found), self._sum.survivors
        self._finish()

    def _enlarge(self) -> None:
        if 2 * self._expected > self.max_expected:
            raise TamperError(
                f"no table for up to {self._expected} items peels: a client's table is false, or the union "
                "is larger than that; then raise max_expected"
            )
        self._attempt, self._expected, self._needs_key = self._attempt + 1, 2 * self._expected, False
        self._open()


class PrivateUnionClient(KeyedUnionClient):
    """Sends a table of its pseudonyms under masks that only the sum over all clients sheds."""

    answers: ClassVar[dict[Kind, str]] = {
        Kind.UNION_OPEN: "advertise",
        Kind.UNION_KEYS: "share_keys",
        Kind.UNION_TABLE: "send_table",
        Kind.UNION_CONSENT: "consent",
        Kind.UNION_REVEAL: "unmask",
    }

    def _prepare(self) -> None:
        super()._prepare()
        self._opening = b""
        self._machine: SecureAggregationClient | None = None

    def advertise(self, request: bytes) -> bytes:
        """K1: the shape of the table; begin the key agreement, if there is no key, and the aggregation."""
        machine = self._machine_for(request)
        group = b"" if self._named else self._group.advertise()
        advert = machine.advertise()
        self._opening, self._machine = request, machine
        return write_parts(Kind.UNION_OPEN, self.session.id, self.index, group, advert)

    @property
    def _named(self) -> bool:
        return bool(self._key) or self._pseudonyms is not None

    def _machine_for(self, opening: bytes) -> SecureAggregationClient:
        attempt, shape = read_opening(opening, self.session)
        session = self.session.aggregation(shape, attempt)
        return SecureAggregationClient(
            session, self.index, self._identity, self._journal, _entropy=self._entropy
        )

    def share_keys(self, request: bytes) -> bytes:
        """K0: one's part of the group key to all others, beside the shares of the aggregation."""
        group_keys, keys = self._two(request, Kind.UNION_KEYS)
        seal = b"" if self._named else self._group.seal(group_keys)
        shares = self._running().share_keys(keys)
        return write_parts(Kind.UNION_KEYS, self.session.id, self.index, seal, shares)

    def send_table(self, request: bytes) -> bytes:
        """K2: the table of the client's pseudonyms, masked."""
        delivery, shares = self._two(request, Kind.UNION_TABLE)
        self._take_key(delivery)
        _, shape = read_opening(self._opening, self.session)
        masked = self._running().mask(shares, self._table(shape))
        return write_parts(Kind.UNION_TABLE, self.session.id, self.index, self._confirmation(), masked)

    def _table(self, shape: TableShape) -> NDArray[np.uint64]:
        return fill_table(shape, self.pseudonyms(), _entropy=self._entropy)

    def _confirmation(self) -> bytes:
        purpose = b"fedkge confirmation" + self.session.id
        return derive_key(self._key, purpose)[:CONFIRMATION_SIZE] if self._key else b""

    def consent(self, request: bytes) -> bytes:
        """Sign whose tables are summed, in a union with a consistency round."""
        (survivors,) = read_parts(request, Kind.UNION_CONSENT, self.session.id, count=1)
        consent = self._running().consent(survivors)
        return write_parts(Kind.UNION_CONSENT, self.session.id, self.index, consent)

    def unmask(self, request: bytes) -> bytes:
        """K3: the shares that unmask the sum of the tables."""
        (survivors,) = read_parts(request, Kind.UNION_REVEAL, self.session.id, count=1)
        return write_parts(Kind.UNION_REVEAL, self.session.id, self.index, self._running().unmask(survivors))

    def _two(self, request: bytes, kind: Kind) -> tuple[bytes, bytes]:
        first, second = read_parts(request, kind, self.session.id, count=2)
        return first, second

    def _running(self) -> SecureAggregationClient:
        if self._machine is None:
            raise RefusedError("the union has not been opened yet")
        return self._machine

    def _machines(self) -> list[object]:
        return [*super()._machines(), *([self._machine] if self._machine else [])]

    def _secrets(self) -> list[bytes]:
        machine = self._machine.export_secrets() if self._machine else b""
        return [self._group.export_secrets(), self._opening, machine]

    def _restore(self, secrets: list[bytes]) -> None:
        group, self._opening, machine = secrets
        self._group.restore_secrets(group)
        if machine:
            self._machine = self._machine_for(self._opening)
            self._machine.restore_secrets(machine)
