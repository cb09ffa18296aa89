"""Whatever bytes come, the only way out of reading them is an error of fedkge's own (finding 11)."""

from __future__ import annotations

import importlib.util
import json
import resource
import struct
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fedkge.errors import MessageError
from fedkge.exchange import LARGEST, Download, Table, Upload, decode, encode

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fuzz_messages.py"


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    """The command that does the same for minutes."""
    spec = importlib.util.spec_from_file_location("fuzz_messages", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_messages"] = module
    spec.loader.exec_module(module)
    return module


def test_20_000_changed_messages_are_read_or_refused(fuzz: ModuleType) -> None:
    tally = fuzz.Tally()
    fuzz.fuzz_decode(tally, np.random.default_rng(16), 20_000)
    assert tally.foreign == {}
    assert tally.sent == 20_000
    assert 5_000 < tally.refused < 19_900  # some changes are harmless, or the changes were too coarse
    assert tally.slowest < 2


def test_clients_in_every_state_refuse_changed_messages(fuzz: ModuleType, tmp_path: Path) -> None:
    tally = fuzz.Tally()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fuzz.fuzz_clients(tally, np.random.default_rng(16), lambda: tally.sent >= 1_500, tmp_path, each=20)
    assert tally.foreign == {}
    assert tally.refused > 1_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024  # KB


def test_a_server_survives_clients_that_change_their_replies(fuzz: ModuleType, tmp_path: Path) -> None:
    tally = fuzz.Tally()
    fuzz.fuzz_server(tally, np.random.default_rng(16), lambda: tally.sent >= 40, tmp_path)
    assert tally.foreign == {}
    assert tally.sent >= 40


def with_header(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<4sI", b"FKX1", len(text)) + text + body


FINE = {"round": 1, "client": 2, "metadata": {}, "tables": []}
ROW = struct.pack("<if", 0, 1.0)


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ({**FINE, "round": -1}, b""),
        ({**FINE, "round": True}, b""),
        ({**FINE, "round": 1.0}, b""),
        ({**FINE, "round": 2**40}, b""),
        ({**FINE, "client": "2"}, b""),
        ({**FINE, "client": None}, b""),
        ({**FINE, "metadata": []}, b""),
        ({**FINE, "tables": {}}, b""),
        ({**FINE, "tables": [["entity", 1, 1]]}, ROW),
        ({**FINE, "tables": [["entity", 1, 1, "float64"]]}, ROW),
        ({**FINE, "tables": [["entity", 1, 1, "float32", "rows"]]}, ROW),
        ({**FINE, "tables": [["entity", -1, 1, "float32"]]}, b""),
        ({**FINE, "tables": [["entity", 0, 2**70, "float32"]]}, b""),
        ({**FINE, "tables": [["entity", 2**60, 2**10, "float32"]]}, b""),
        ({**FINE, "tables": [["entity", 1, 1, "float32"]] * 2}, ROW * 2),
        ({**FINE, "tables": [[f"t{n}", 0, 1, "float32"] for n in range(999)]}, b""),
        ({**FINE, "protocol": [["masked", -8], ["advert", 8]]}, b""),
        ({**FINE, "protocol": [["masked", 2**62]]}, b""),
        ({**FINE, "protocol": [[["masked"], 0]]}, b""),
        ({**FINE, "metadata": {"a": json.loads("[" * 40 + "]" * 40)}}, b""),
        (b'{"round":' + b"[" * 200_000 + b"]" * 200_000 + b"}", b""),
        (b'{"round":1,"client":2,"tables":[],"metadata":{"loss":NaN}}', b""),
        (b'{"round":1,"client":2,"tables":[],"metadata":{"loss":1e999}}', b""),
        (b'{"round":1,"client":2,"tables":[],"metadata":{"name":"\\ud800"}}', b""),
        (b'{"round":1,"client":' + b"9" * 5000 + b',"tables":[],"metadata":{}}', b""),
        (b'"text"', b""),
    ],
)
def test_headers_that_lie_are_refused(header: object, body: bytes) -> None:
    assert decode(with_header(FINE), Upload).client == 2
    with pytest.raises(MessageError):
        decode(with_header(header, body), Upload)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1.01 * LARGEST, -1.01 * LARGEST])
@pytest.mark.parametrize("kind", [Upload, Download])
def test_rows_beyond_what_float32_can_add_to_are_refused(kind: type, value: float) -> None:
    """Finding 2 began with a broadcast of 1e8, whose steps vanish in rounding."""
    who = {"client": 0} if kind is Upload else {}
    rows = np.array([[0.0, 1.0], [value, 0.0]])
    with pytest.raises(MessageError, match="not finite, or beyond"):
        decode(encode(kind(round=1, tables={"entity": Table(np.arange(2), rows)}, **who)), kind)
    rows[1, 0] = np.sign(value) * LARGEST if np.isfinite(value) else 0.0
    assert decode(encode(kind(round=1, tables={"entity": Table(np.arange(2), rows)}, **who)), kind).round == 1


@pytest.mark.parametrize("ids", [[0, 0], [-1, 0], [5, 5]])
def test_row_numbers_are_distinct_and_count_from_zero(ids: list[int]) -> None:
    with pytest.raises(MessageError, match="negative, or occur twice"):
        decode(encode(Download(1, {"entity": Table(np.array(ids), np.ones((2, 1)))})), Download)


def test_a_small_message_cannot_ask_for_much_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for length, width in ((2**30, 0), (2**31, 2**20), (2**20, 2**20)):
        with pytest.raises(MessageError):
            decode(with_header({**FINE, "tables": [["entity", length, width, "float32"]]}), Upload)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024  # KB


def test_what_a_message_does_not_say_cannot_be_read() -> None:
    message = decode(encode(Download(1, metadata={"sum": {"round": 1}})), Download)
    for read in (
        lambda: message.metadata["next"],
        lambda: message.metadata["sum"]["purpose"],
        lambda: message.protocol["keys"],
        lambda: message.tables["entity"],
    ):
        with pytest.raises(MessageError, match="says nothing of"):
            read()
