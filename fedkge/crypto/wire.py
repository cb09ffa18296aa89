"""The binary form of every protocol message: a fixed header, fixed-width fields, nothing left over.

    "fdkg"  version u8  kind u8  sender u16  session 32 B  | body

Integers are little-endian. The body starts at byte 40, so vectors in it stay aligned to their words.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import MessageError, ProtocolError

__all__ = ["HEADER_SIZE", "SERVER", "Kind", "Reader", "Writer", "sent_by"]

MAGIC = b"fdkg"
VERSION = 1
SERVER = 0xFFFF  # the sender of what comes from the server
HEADER = struct.Struct("<4sBBH32s")
HEADER_SIZE = HEADER.size


class Kind(IntEnum):
    """What a message is; a reader accepts one kind and no other."""

    ADVERTISE = 1  # R0 u→S
    KEYS = 2  # R1 S→u
    SHARES = 3  # R1 u→S
    DELIVERY = 4  # R2 S→u
    MASKED = 5  # R2 u→S
    SURVIVORS = 6  # R3 S→u
    CONSENT = 7  # R2.5 u→S
    QUORUM = 8  # R2.5 S→u
    REVEAL = 9  # R3 u→S
    CLIENT_STATE = 16
    JOURNAL = 17
    GROUP_SEAL = 32  # K0 u→S
    GROUP_DELIVERY = 33  # K0 S→u
    GROUP_STATE = 34
    UNION_OPEN = 40  # from here on, the server's request and the client's reply share a kind
    UNION_KEYS = 41
    UNION_TABLE = 42
    UNION_REVEAL = 43
    UNION_IDS = 44
    UNION_LISTING = 45
    UNION_STATE = 46
    UNION_CONSENT = 47
    OPRF_POINTS = 56
    OPRF_STATE = 57
    OPRF_QUERY = 58
    OPRF_HELP = 59
    OPRF_ANSWER = 60


@contextmanager
def sent_by(client: int) -> Iterator[None]:
    """Whatever is wrong with what is read here is this client's doing."""
    try:
        yield
    except ProtocolError as error:
        error.culprit = client
        raise


class Writer:
    """Appends fields to one message."""

    def __init__(self, kind: Kind, session: bytes, sender: int) -> None:
        self._message = io.BytesIO()
        self._message.write(HEADER.pack(MAGIC, VERSION, kind, sender, session))

    def number(self, value: int, width: int) -> Writer:
        self._message.write(value.to_bytes(width, "little"))
        return self

    def raw(self, value: bytes) -> Writer:
        self._message.write(value)
        return self

    def blob(self, value: bytes) -> Writer:
        """A field of any length, after its length."""
        return self.number(len(value), 8).raw(value)

    def numbers(self, values: list[int] | tuple[int, ...], width: int) -> Writer:
        self.number(len(values), 4)
        for value in values:
            self.number(value, width)
        return self

    def array(self, values: NDArray[Any]) -> Writer:
        """A vector after its length."""
        return self.space(len(values), values.dtype, lambda room: np.copyto(room, values))

    def space(
        self, length: int, dtype: str | np.dtype[Any], fill: Callable[[NDArray[Any]], object]
    ) -> Writer:
        """A vector after its length, which `fill` writes over zeros in the message itself.

        `fill` must not keep the array: while anybody has it, `finish` copies the whole message.
        """
        self.number(length, 8)
        start, size = self._message.tell(), length * np.dtype(dtype).itemsize
        self._message.seek(start + max(size - 1, 0))
        self._message.write(bytes(min(size, 1)))
        fill(np.frombuffer(self._message.getbuffer()[start : start + size], dtype=dtype))
        return self

    def finish(self) -> bytes:
        return self._message.getvalue()


class Reader:
    """Takes the fields of one message in order and refuses anything that does not fit exactly."""

    def __init__(self, message: bytes, kind: Kind, session: bytes, sender: int) -> None:
        self.name = kind.name
        self._message = message
        self._offset = HEADER_SIZE
        if len(message) < HEADER_SIZE:
            raise MessageError(
                f"{self.name}: {len(message)} bytes are fewer than a header has ({HEADER_SIZE})"
            )
        magic, version, found_kind, found_sender, found_session = HEADER.unpack_from(message)
        if magic != MAGIC:
            raise MessageError(f"{self.name}: the bytes do not start as a protocol message")
        if version != VERSION:
            raise MessageError(
                f"{self.name}: version {version} is not {VERSION}; all parties need the same release"
            )
        if found_kind != kind:
            raise MessageError(f"{self.name}: expected here, but a message of kind {found_kind} came")
        if found_session != session:
            raise MessageError(
                f"{self.name}: belongs to another session; run, round, purpose, roster, threshold, length "
                "and context must be the same for all parties"
            )
        if found_sender != sender:
            raise MessageError(f"{self.name}: signed off by party {found_sender}, but it came from {sender}")

    @classmethod
    def outsider(cls, message: bytes, kind: Kind) -> Reader:
        """For whoever sees the bytes and is no party: session and sender are taken from the header."""
        _, _, _, sender, session = HEADER.unpack_from(message.ljust(HEADER_SIZE, b"\0"))
        return cls(message, kind, session, sender)

    def raw(self, size: int) -> bytes:
        end = self._offset + size
        if end > len(self._message):
            missing = end - len(self._message)
            raise MessageError(f"{self.name}: the message is cut short by {missing} bytes or more")
        piece = self._message[self._offset : end]
        self._offset = end
        return piece

    def number(self, width: int) -> int:
        return int.from_bytes(self.raw(width), "little")

    def blob(self) -> bytes:
        return self.raw(self.number(8))

    def numbers(self, width: int) -> list[int]:
        count = self.number(4)
        piece = self.raw(count * width)
        return [int.from_bytes(piece[i : i + width], "little") for i in range(0, len(piece), width)]

    def indices(self, num_clients: int) -> tuple[int, ...]:
        """Clients in ascending order, each once, all of the roster."""
        found = self.numbers(2)
        if any(low >= high for low, high in pairwise(found)):
            raise MessageError(f"{self.name}: a client is listed twice or out of order")
        if found and found[-1] >= num_clients:
            raise MessageError(
                f"{self.name}: client {found[-1]} is not one of the {num_clients} in the roster"
            )
        return tuple(found)

    def array(self, dtype: str | np.dtype[Any], length: int | None = None) -> NDArray[Any]:
        """A read-only view of a vector; `length` is how many words it must have."""
        count = self.number(8)
        if length is not None and count != length:
            raise MessageError(f"{self.name}: a vector of {count} words came where {length} are expected")
        start = self._offset
        itemsize = np.dtype(dtype).itemsize
        if start + count * itemsize > len(self._message):
            raise MessageError(f"{self.name}: the message is cut short in its vector of {count} words")
        self._offset = start + count * itemsize
        return np.frombuffer(self._message, dtype=dtype, count=count, offset=start)

    def finish(self) -> None:
        left = len(self._message) - self._offset
        if left:
            raise MessageError(f"{self.name}: {left} bytes are left over after the last field")
