"""What all parties of a union agree on, and the two shapes its messages have."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from fedkge.crypto.rings import FIELD61
from fedkge.crypto.roster import Roster
from fedkge.crypto.session import Session
from fedkge.crypto.union.table import MAX_CELLS, TableShape
from fedkge.crypto.wire import SERVER, Kind, Reader, Writer
from fedkge.errors import MessageError

__all__ = ["UnionSession", "read_parts", "write_parts"]


@dataclass(frozen=True)
class UnionSession:
    """One union of one kind of identifier; `generation` counts the later ones, whose items append."""

    roster: Roster
    run: str
    name: str  # of the table whose labels are united
    generation: int = 0
    threshold: int = 0  # 0 stands for ⌊2n/3⌋ + 1
    signed: bool = False  # whether the sum of the tables has a consistency round
    helpers: tuple[int, ...] = ()  # through whom queries pass, in this order, if pseudonyms are oblivious
    budget: int = 0  # how many names a client may have looked up
    max_cells: int = MAX_CELLS  # of a table that a client fills: its own limit, which nobody need share

    @cached_property
    def id(self) -> bytes:
        settings = (self.run, self.name, self.generation, self.threshold, self.signed)
        text = repr((self.roster.digest.hex(), *settings, self.helpers, self.budget))
        return hashlib.sha256(b"fedkge union" + text.encode()).digest()

    @property
    def num_clients(self) -> int:
        return len(self.roster)

    def aggregation(self, shape: TableShape, attempt: int) -> Session:
        """The secure aggregation that sums the tables; every attempt must have the same survivors."""
        return Session(
            self.roster,
            self.run,
            self.generation,
            f"union of {self.name}",
            shape.num_words,
            ring=FIELD61,
            threshold=self.threshold,
            signed=self.signed,
            attempt=attempt,
            context=shape.salt + bytes([shape.num_positions]),
        )


def write_parts(kind: Kind, session: bytes, sender: int, *parts: bytes) -> bytes:
    """A message made of other messages."""
    writer = Writer(kind, session, sender).number(len(parts), 2)
    for part in parts:
        writer.blob(part)
    return writer.finish()


def read_parts(
    message: bytes, kind: Kind, session: bytes, sender: int = SERVER, *, count: int
) -> list[bytes]:
    """The messages that a message is made of, which must be `count`."""
    reader = Reader(message, kind, session, sender)
    num_parts = reader.number(2)
    if num_parts != count:
        raise MessageError(f"{kind.name}: {num_parts} parts came where {count} are expected")
    parts = [reader.blob() for _ in range(count)]
    reader.finish()
    return parts
