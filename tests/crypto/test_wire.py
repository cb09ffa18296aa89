"""Messages are read exactly or not at all."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.crypto.wire import HEADER_SIZE, SERVER, Kind, Reader, Writer
from fedkge.errors import MessageError

SESSION = bytes(range(32))


def message() -> bytes:
    writer = Writer(Kind.MASKED, SESSION, 3).number(7, 2).blob(b"abc").numbers([1, 4, 9], 2)
    return writer.array(np.arange(5, dtype="<u4")).finish()


def read(found: bytes) -> tuple[int, bytes, tuple[int, ...], list[int]]:
    reader = Reader(found, Kind.MASKED, SESSION, 3)
    fields = reader.number(2), reader.blob(), reader.indices(10), reader.array("<u4", 5).tolist()
    reader.finish()
    return fields


def test_fields_come_back_as_they_were_written() -> None:
    assert read(message()) == (7, b"abc", (1, 4, 9), [0, 1, 2, 3, 4])


@pytest.mark.parametrize("size", range(len(message())))
def test_a_message_cut_anywhere_is_refused(size: int) -> None:
    with pytest.raises(MessageError):
        read(message()[:size])


def test_bytes_left_over_are_refused() -> None:
    with pytest.raises(MessageError, match="1 bytes are left over"):
        read(message() + b"\0")


@pytest.mark.parametrize(
    ("place", "complaint"),
    [(0, "do not start"), (4, "version"), (5, "kind"), (6, "signed off by"), (8, "another session")],
)
def test_a_changed_header_is_refused_with_its_reason(place: int, complaint: str) -> None:
    changed = bytearray(message())
    changed[place] ^= 1
    with pytest.raises(MessageError, match=complaint):
        read(bytes(changed))


@pytest.mark.parametrize("listed", [[1, 1], [2, 1], [1, 10]])
def test_clients_are_listed_in_order_once_and_in_the_roster(listed: list[int]) -> None:
    found = Writer(Kind.SURVIVORS, SESSION, SERVER).numbers(listed, 2).finish()
    with pytest.raises(MessageError, match=r"twice or out of order|not one of"):
        Reader(found, Kind.SURVIVORS, SESSION, SERVER).indices(10)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_pass_or_crash(body: bytes) -> None:
    with pytest.raises(MessageError):
        read(body)
    with suppress(MessageError):
        read(message()[:HEADER_SIZE] + body)
