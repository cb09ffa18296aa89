"""The union as everybody gets it: names in row order; later ones append, nothing is sorted again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedkge.crypto.union.pseudonyms import WIRE, Pseudonyms
from fedkge.crypto.wire import SERVER, Kind, Reader, Writer
from fedkge.errors import MessageError, TamperError

__all__ = ["Listing", "NameListing", "PseudonymListing"]

DIGEST_SIZE = 32


class Listing(Protocol):
    """Row numbers 0 … num_rows − 1 and the digest by which parties compare them."""

    @property
    def num_rows(self) -> int: ...

    @property
    def digest(self) -> bytes: ...

    def to_bytes(self, session: bytes) -> bytes: ...


@dataclass(frozen=True, eq=False)
class PseudonymListing:
    """Rows named by pseudonyms."""

    pseudonyms: Pseudonyms

    @property
    def num_rows(self) -> int:
        return len(self.pseudonyms)

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.pseudonyms.to_wire().tobytes()).digest()

    def append(self, items: Pseudonyms) -> PseudonymListing:
        """New pseudonyms in ascending order after the old ones, whose rows stay."""
        fresh = items.distinct()
        fresh = fresh.take(self.pseudonyms.find(fresh) < 0)
        return PseudonymListing(Pseudonyms.concatenate([self.pseudonyms, fresh]))

    def rows(self, wanted: Pseudonyms) -> NDArray[np.int64]:
        """The row of each pseudonym; one that is missing raises."""
        rows = self.pseudonyms.find(wanted)
        missing = int(np.count_nonzero(rows < 0))
        if missing:
            raise TamperError(
                f"{missing} of this client's {len(wanted)} identifiers are not in the union: its table "
                "was left out, or the server's list is not what the tables held"
            )
        return rows

    def to_bytes(self, session: bytes) -> bytes:
        writer = Writer(Kind.UNION_LISTING, session, SERVER).raw(self.digest)
        return writer.array(self.pseudonyms.to_wire()).finish()

    @classmethod
    def from_bytes(cls, message: bytes, session: bytes) -> PseudonymListing:
        reader = Reader(message, Kind.UNION_LISTING, session, SERVER)
        digest = reader.raw(DIGEST_SIZE)
        packed: NDArray[Any] = reader.array(WIRE)
        reader.finish()
        listing = cls(Pseudonyms.of_wire(packed))
        if listing.digest != digest:
            raise TamperError("the union's list does not fit its digest")
        if len(listing.pseudonyms.distinct()) != listing.num_rows:
            raise TamperError("the union's list names a row twice")
        return listing


@dataclass(frozen=True)
class NameListing:
    """Rows named by the identifiers themselves."""

    names: tuple[str, ...]

    @property
    def num_rows(self) -> int:
        return len(self.names)

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(write_names(self.names)).digest()

    def append(self, items: Iterable[str]) -> NameListing:
        return NameListing(self.names + tuple(sorted(set(items) - set(self.names))))

    def rows(self, wanted: Sequence[str]) -> NDArray[np.int64]:
        row_of = {name: row for row, name in enumerate(self.names)}
        missing = sum(name not in row_of for name in wanted)
        if missing:
            raise TamperError(f"{missing} of this client's {len(wanted)} identifiers are not in the union")
        return np.array([row_of[name] for name in wanted], dtype=np.int64)

    def to_bytes(self, session: bytes) -> bytes:
        writer = Writer(Kind.UNION_LISTING, session, SERVER).raw(self.digest)
        return writer.blob(write_names(self.names)).finish()

    @classmethod
    def from_bytes(cls, message: bytes, session: bytes) -> NameListing:
        reader = Reader(message, Kind.UNION_LISTING, session, SERVER)
        digest, packed = reader.raw(DIGEST_SIZE), reader.blob()
        reader.finish()
        if hashlib.sha256(packed).digest() != digest:
            raise TamperError("the union's list does not fit its digest")
        names = read_names(packed)
        if len(set(names)) != len(names):
            raise TamperError("the union's list names a row twice")
        return cls(tuple(names))


def write_names(names: Iterable[str]) -> bytes:
    """Each name's length and its UTF-8 bytes."""
    encoded = [name.encode() for name in names]
    return b"".join(len(name).to_bytes(4, "little") + name for name in encoded)


def read_names(packed: bytes) -> list[str]:
    names, offset = [], 0
    while offset < len(packed):
        end = offset + 4 + int.from_bytes(packed[offset : offset + 4], "little")
        if offset + 4 > len(packed) or end > len(packed):
            raise MessageError("the list of names is cut short")
        try:
            names.append(packed[offset + 4 : end].decode())
        except UnicodeDecodeError:
            raise MessageError(f"name {len(names)} is not UTF-8") from None
        offset = end
    return names
