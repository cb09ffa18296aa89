"""The only words that client and server share: tables, and messages up and down, as exact bytes.

A message is a header in JSON (round, client, metadata, the shape of each table) and then the little-endian
arrays and the messages of the cryptographic protocols. Nothing else crosses between a client and the server,
so the length of these bytes is the cost. Whoever reads them may meet any bytes at all: all sizes are checked
before anything is made of them, and a MessageError is the only way out.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import MessageError

__all__ = ["LARGEST", "Download", "Fields", "Precision", "Table", "Upload", "decode", "encode"]

Precision = Literal["float32", "float16"]

_MAGIC = b"FKX1"
_HEADER = struct.Struct("<4sI")
_ARRAYS = (("ids", "<i4"), ("rows", "<f4"), ("holders", "<i4"), ("weights", "<f4"))
_ROW_TYPES = {"float32": "<f4", "float16": "<f2"}

LARGEST = 1e6  # of a number in a row: rows stay far below, and float32 would absorb the steps of larger ones
_MOST_HEADER = 1 << 26  # bytes: the names of a million labels, in the open
_MOST_PARTS = 256  # tables or protocol messages
_MOST_DEPTH = 16  # of what JSON nests
_MOST_NUMBER = 1 << 31  # of rounds, clients and rows
_MOST_WIDTH = 1 << 20


class Fields(dict[str, Any]):
    """What a peer said, by name; what it did not say cannot be read."""

    def __missing__(self, key: str) -> NoReturn:
        raise MessageError(f"the message says nothing of '{key}'")


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
        specs = [_spec(*spec) for spec in _parts(header, "tables")]
        sizes = [(name, _whole(size, len(body))) for name, size in _parts(header, "protocol")]
        expected = sum(spec.num_bytes for spec in specs) + sum(size for _, size in sizes)
        if expected != len(body):
            raise ValueError(f"{len(body)} bytes follow the header, which speaks of {expected}")
        place, tables = 0, {}
        for spec in specs:
            tables[spec.name] = spec.read(body[place : place + spec.num_bytes])
            place += spec.num_bytes
        protocol = Fields()
        for name, size in sizes:
            protocol[name] = bytes(body[place : place + size])
            place += size
        who = {} if kind is Download else {"client": _whole(header["client"])}
        metadata, round = header["metadata"], _whole(header["round"])
        if not isinstance(metadata, Fields):
            raise ValueError("its metadata have no names")
        return kind(round=round, tables=Fields(tables), metadata=metadata, protocol=protocol, **who)
    except (MessageError, TypeError, ValueError, RecursionError, struct.error) as error:
        raise MessageError(f"{len(raw)} bytes are not a {kind.__name__} ({error})") from error


def _split(raw: bytes) -> tuple[Fields, memoryview]:
    magic, length = _HEADER.unpack_from(raw)
    if magic != _MAGIC:
        raise ValueError("they do not start with FKX1; do both sides run the same version?")
    stop = _HEADER.size + length
    if length > _MOST_HEADER or stop > len(raw):
        raise ValueError(f"a header of {length} bytes")
    text = raw[_HEADER.size : stop]
    header = json.loads(text, object_hook=Fields, parse_float=_finite, parse_constant=_finite)
    _check_depth(header)
    if not isinstance(header, Fields):
        raise ValueError("a header without names")
    if b"\\u" in text:  # half of a surrogate pair is no text, and could not be written down
        json.dumps(header, ensure_ascii=False).encode()
    return header, memoryview(raw)[stop:]


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:20]} is not a number")
    return number


def _check_depth(header: object) -> None:
    """Raise for JSON nested deeper than any message of ours: others may follow it recursively."""
    level: list[Any] = [[header]]
    for _ in range(_MOST_DEPTH):
        inner = (node.values() if isinstance(node, dict) else node for node in level)
        level = [child for children in inner for child in children if isinstance(child, (dict, list))]
        if not level:
            return
    raise ValueError(f"a header nested deeper than {_MOST_DEPTH}")


def _whole(number: object, most: int = _MOST_NUMBER) -> int:
    if type(number) is not int or not 0 <= number <= most:
        raise ValueError(f"{number!r:.40} where a whole number from 0 to {most} is expected")
    return number


def _parts(header: Fields, key: str) -> list[list[Any]]:
    """Descriptions of parts, each a list that begins with its own name."""
    parts = header.get(key, []) if key == "protocol" else header[key]
    if not isinstance(parts, list) or len(parts) > _MOST_PARTS:
        raise ValueError(f"its {key} are no list of up to {_MOST_PARTS}")
    names = [part[0] for part in parts if isinstance(part, list) and part and isinstance(part[0], str)]
    if len(names) < len(parts) or len(set(names)) < len(names):
        raise ValueError(f"its {key} have no names of their own")
    return parts


@dataclass(frozen=True)
class _Spec:
    """What a header says of a table."""

    name: str
    length: int
    width: int
    row_type: str
    extras: tuple[str, ...]

    @property
    def num_bytes(self) -> int:
        return self.length * (4 + self.width * np.dtype(self.row_type).itemsize + 4 * len(self.extras))

    def read(self, body: memoryview) -> Table:
        place = 0

        def take(count: int, dtype: str) -> NDArray[Any]:
            nonlocal place
            array = np.frombuffer(body, dtype, count, place)
            place += array.nbytes
            return array

        ids = take(self.length, "<i4")
        rows = take(self.length * self.width, self.row_type).reshape(self.length, self.width)
        extras = {key: take(self.length, dict(_ARRAYS)[key]) for key in self.extras}
        if (not (np.diff(ids) > 0).all() and len(np.unique(ids)) < len(ids)) or ids.min(initial=0) < 0:
            raise ValueError(f"row numbers of '{self.name}' are negative, or occur twice")
        if not float(np.abs(rows).max(initial=0.0)) <= LARGEST:  # not so for NaN either
            raise ValueError(
                f"rows of '{self.name}' are not finite, or beyond {LARGEST:g}: training diverged; lower "
                "training.learning_rate"
            )
        if not all((array >= 0).all() and (array < _MOST_NUMBER).all() for array in extras.values()):
            raise ValueError(f"{' or '.join(extras)} of '{self.name}' are no counts")
        return Table(ids, rows, **extras)


def _spec(name: str, length: object, width: object, precision: object, *extras: object) -> _Spec:
    if not isinstance(precision, str) or precision not in _ROW_TYPES:
        raise ValueError(f"numbers of the kind {precision!r:.40}")
    if extras not in ((), ("holders",), ("weights",), ("holders", "weights")):
        raise ValueError(f"'{name:.40}' has {extras!s:.40} beside its rows")
    known = tuple(str(extra) for extra in extras)
    return _Spec(name, _whole(length), _whole(width, _MOST_WIDTH), _ROW_TYPES[precision], known)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array = array.view()
    array.flags.writeable = False
    return array
