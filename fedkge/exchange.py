"""The only words that client and server share: tables, and messages up and down, as exact bytes.

A message is a header in JSON (round, client, metadata, the shape of each table) and then the little-endian
arrays and the messages of the cryptographic protocols. Nothing else crosses between a client and the server,
so the length of these bytes is the cost.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import MessageError

__all__ = ["Download", "Precision", "Table", "Upload", "decode", "encode"]

Precision = Literal["float32", "float16"]

_MAGIC = b"FKX1"
_HEADER = struct.Struct("<4sI")
_ARRAYS = (("ids", "<i4"), ("rows", "<f4"), ("holders", "<i4"), ("weights", "<f4"))
_ROW_TYPES = {"float32": "<f4", "float16": "<f2"}


@dataclass(frozen=True, eq=False)
class Table:
    """Some rows of a shared table, by their shared row numbers."""

    ids: NDArray[np.int32]  # (n,) distinct
    rows: NDArray[np.float32]  # (n, d)
    holders: NDArray[np.int32] | None = None  # (n,) clients behind each row; absent: one
    weights: NDArray[np.float32] | None = None  # (n,) triples behind each row; never through SecAgg

    def __post_init__(self) -> None:
        for name, dtype in _ARRAYS:
            array = getattr(self, name)
            if array is not None:
                object.__setattr__(self, name, _frozen(np.ascontiguousarray(array, dtype=dtype)))
        lengths = {
            len(array) for array in (self.ids, self.rows, self.holders, self.weights) if array is not None
        }
        if len(lengths) != 1 or self.rows.ndim != 2:
            raise MessageError(f"a table whose arrays have lengths {sorted(lengths)}; all must agree")

    def __len__(self) -> int:
        return len(self.ids)

    def pick(self, ids: NDArray[np.int32]) -> Table:
        """The rows with these numbers, in this order; all must be there and `self.ids` ascending."""
        place = np.searchsorted(self.ids, ids)
        return Table(ids, self.rows[place])


@dataclass(frozen=True, eq=False)
class Download:
    """What the server says to one client."""

    round: int
    tables: Mapping[str, Table] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)  # small things that JSON can say
    protocol: Mapping[str, bytes] = field(default_factory=dict)  # messages of the cryptographic protocols


@dataclass(frozen=True, eq=False)
class Upload:
    """What a client says to the server."""

    round: int
    client: int
    tables: Mapping[str, Table] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, bytes] = field(default_factory=dict)


Message = TypeVar("Message", Upload, Download)


def encode(message: Upload | Download, precision: Precision = "float32") -> bytes:
    """The bytes of a message; rows may travel at half precision."""
    header: dict[str, Any] = {"round": message.round, "metadata": message.metadata, "tables": []}
    if isinstance(message, Upload):
        header["client"] = message.client
    body = []
    for name, table in message.tables.items():
        extras = [key for key in ("holders", "weights") if getattr(table, key) is not None]
        header["tables"].append([name, *table.rows.shape, precision, *extras])
        body += [
            table.ids,
            table.rows.astype(_ROW_TYPES[precision]),
            *(getattr(table, key) for key in extras),
        ]
    if message.protocol:
        header["protocol"] = [[name, len(content)] for name, content in message.protocol.items()]
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    arrays = (array.tobytes() for array in body)
    return b"".join([_HEADER.pack(_MAGIC, len(text)), text, *arrays, *message.protocol.values()])


def decode(raw: bytes, kind: type[Message]) -> Message:
    """The message in these bytes; anything that does not fit exactly is refused."""
    try:
        header, body = _split(raw)
        sizes = header.get("protocol", [])
        end = len(body) - sum(size for _, size in sizes)
        tables = dict(_tables(header["tables"], body[: max(end, 0)]))
        protocol = dict(_protocol(sizes, body[max(end, 0) :]))
        who = {} if kind is Download else {"client": header["client"]}
        metadata = header["metadata"]
        return kind(round=header["round"], tables=tables, metadata=metadata, protocol=protocol, **who)
    except (KeyError, TypeError, ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise MessageError(f"{len(raw)} bytes are not a {kind.__name__} ({error})") from error


def _split(raw: bytes) -> tuple[dict[str, Any], memoryview]:
    magic, length = _HEADER.unpack_from(raw)
    if magic != _MAGIC:
        raise ValueError("they do not start with FKX1; do both sides run the same version?")
    stop = _HEADER.size + length
    return json.loads(raw[_HEADER.size : stop]), memoryview(raw)[stop:]


def _tables(specs: list[list[Any]], body: memoryview) -> Iterator[tuple[str, Table]]:
    place = 0

    def take(count: int, dtype: str) -> NDArray[Any]:
        nonlocal place
        array = np.frombuffer(body, dtype, count, place)
        place += array.nbytes
        return array

    for name, length, width, precision, *extras in specs:
        ids = take(length, "<i4")
        rows = take(length * width, _ROW_TYPES[precision]).reshape(length, width)
        yield name, Table(ids, rows, **{key: take(length, dict(_ARRAYS)[key]) for key in extras})
    if place != len(body):
        raise ValueError(f"{len(body) - place} bytes are left over")


def _protocol(sizes: list[tuple[str, int]], body: memoryview) -> Iterator[tuple[str, bytes]]:
    place = 0
    for name, size in sizes:
        content = bytes(body[place : place + size])
        if size < 0 or len(content) != size:
            raise ValueError(f"protocol message '{name}' is cut short")
        yield name, content
        place += size


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array = array.view()
    array.flags.writeable = False
    return array
