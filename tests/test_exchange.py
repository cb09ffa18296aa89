"""Messages survive their bytes, their size is what it should be, and damaged bytes are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.errors import MessageError
from fedkge.exchange import Download, Table, Upload, decode, encode

metadata = st.dictionaries(
    st.text(max_size=5), st.integers() | st.text(max_size=5) | st.booleans(), max_size=3
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    n, d = draw(st.integers(0, 5)), draw(st.integers(0, 4))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    extras = {
        "holders": rng.integers(0, 9, n) if draw(st.booleans()) else None,
        "weights": rng.random(n) if draw(st.booleans()) else None,
    }
    return Table(rng.permutation(n), rng.normal(size=(n, d)), **extras)


def same(first: Table, second: Table) -> bool:
    pairs = [(getattr(first, key), getattr(second, key)) for key in ("ids", "rows", "holders", "weights")]
    return all((a is None and b is None) or np.array_equal(a, b) for a, b in pairs)


@given(st.dictionaries(st.text(max_size=6), tables(), max_size=3), metadata, st.integers(0, 2**31))
def test_a_message_survives_its_bytes(named: dict[str, Table], said: dict[str, object], round: int) -> None:
    up = decode(encode(Upload(round, 7, named, said)), Upload)
    down = decode(encode(Download(round, named, said)), Download)
    assert (up.round, up.client, down.round) == (round, 7, round)
    for message in (up, down):
        assert message.metadata == said
        assert message.tables.keys() == named.keys()
        assert all(same(message.tables[name], table) for name, table in named.items())


def test_the_size_is_the_arrays_and_a_short_header() -> None:
    table = Table(np.arange(237), np.zeros((237, 128)))
    raw = len(encode(Upload(12, 3, {"relation": table})))
    assert 237 * (4 + 4 * 128) < raw < 237 * (4 + 4 * 128) + 120
    assert len(encode(Upload(12, 3, {"relation": table}), "float16")) < 237 * (4 + 2 * 128) + 120


def test_half_precision_rounds_rows_and_nothing_else() -> None:
    table = Table(np.array([70_000]), np.array([[0.1, -3.0]]), weights=np.array([1e-6]))
    back = decode(encode(Download(1, {"entity": table}), "float16"), Download).tables["entity"]
    assert back.ids[0] == 70_000
    assert back.weights is not None
    assert back.weights[0] == np.float32(1e-6)
    np.testing.assert_array_equal(back.rows, np.array([[0.1, -3.0]], dtype=np.float16).astype(np.float32))


def test_protocol_messages_travel_as_they_are_and_cost_nothing_where_there_are_none() -> None:
    messages = {"masked": bytes(range(256)), "advert": b"", "reveal": b"\0"}
    tables = {"relation": Table(np.arange(2), np.ones((2, 3)))}
    back = decode(encode(Download(3, tables, protocol=messages)), Download)
    assert back.protocol == messages
    assert back.tables["relation"].rows.tolist() == np.ones((2, 3)).tolist()
    assert b"protocol" not in encode(Download(3, tables))


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_cut_or_lengthened_bytes_are_refused(place: int, byte: int) -> None:
    tables = {"entity": Table(np.arange(3), np.ones((3, 2)))}
    raw = encode(Upload(1, 2, tables, protocol={"masked": b"some bytes", "advert": b""}))
    with pytest.raises(MessageError):
        decode(raw[: place % len(raw)], Upload)
    with pytest.raises(MessageError):
        decode(raw + bytes([byte]), Upload)


@pytest.mark.parametrize("raw", [b"", b"nonsense", b"FKX1\xff\xff\xff\xff", b"FKX1\x02\x00\x00\x00{}"])
def test_other_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(MessageError):
        decode(raw, Upload)


def test_a_table_is_frozen_and_consistent() -> None:
    table = Table(np.arange(2), np.ones((2, 3)))
    with pytest.raises(ValueError, match="read-only"):
        table.rows[0, 0] = 2
    with pytest.raises(MessageError, match="lengths"):
        Table(np.arange(2), np.ones((3, 3)))
