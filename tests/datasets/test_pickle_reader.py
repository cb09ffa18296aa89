"""Pickles that nobody trusts: what they may make, and what is refused before any of it is made."""

from __future__ import annotations

import io
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.datasets import load
from fedkge.datasets.formats.pickle_reader import Admitted, PickleReader, next_pickle
from fedkge.errors import DataError


class Held:
    """What a pickle may fill."""

    kind = "untouched"


def fill(target: Any, state: Any) -> None:
    vars(target).update(state)


def rebuilt(*values: Any) -> Any:
    return list(values)


ADMITTED = Admitted({("a", "Held"): Held, ("a", "rebuilt"): rebuilt}, {Held: fill})
HELD, REBUILT = b"ca\nHeld\n", b"ca\nrebuilt\n"


def made(raw: bytes, most: int | None = None) -> Any:
    return PickleReader(next_pickle(io.BytesIO(raw), most), ADMITTED).load()


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
KEYS = st.text() | st.integers() | st.binary()
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.lists(inner).map(tuple),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([2, 3, 4, 5]))
def test_plain_values_are_what_python_wrote(value: Any, protocol: int) -> None:
    raw = pickle.dumps(value, protocol)
    if b"_codecs" not in raw and b"bytes" not in raw:  # how protocol 2 writes bytes
        assert made(raw) == value


@pytest.mark.parametrize("protocol", range(6))
def test_long_lists_and_dicts_are_not_deep(protocol: int) -> None:
    value = [{number: (number, [str(number)]) for number in range(5_000)}] * 3 + [list(range(5_000))]
    assert made(pickle.dumps(value, protocol)) == value


def test_pickles_in_a_row_are_read_one_by_one() -> None:
    stream = io.BytesIO(pickle.dumps([1], 2) + pickle.dumps("two", 4) + b"tail")
    assert [made(next_pickle(stream, 1000)) for _ in range(2)] == [[1], "two"]
    assert stream.read() == b"tail"


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hundred_values_within_values_are_enough(protocol: int) -> None:
    value: Any = 1
    for depth in range(1, 120):
        value = (value,) if depth % 2 else [value]
        raw = pickle.dumps(value, protocol)
        if depth < 100:
            assert made(raw) == value
    with pytest.raises(pickle.UnpicklingError, match="more than 100 values within values"):
        made(raw)


HOSTILE = {
    "nested key": (b"}" + b")" + b"\x85" * 3_000_000 + b"K\x01s.", "values within values"),
    "nested by memo": (b")" + b"q\x00h\x00\x85" * 500_000 + b".", "values within values"),
    "marks": (b"(" * 3_000_000 + b"." * 10, "values within values"),
    "memo": (b"}r" + struct.pack("<I", 2**26) + b".", "keeps a value as number 67,108,864"),
    "text memo": (b"}p99999999\n.", "keeps a value as number 99,999,999"),
    "tuple as a key": (b"}K\x01\x85K\x02s.", "a key that is a tuple"),
    "tuples as keys": (b"}(K\x01\x85K\x02u.", "a key that is a tuple"),
    "tuples as keys of old": (b"(K\x01\x85K\x02d.", "a key that is a tuple"),
    "global": (b"cos\nsystem\n(X\x04\x00\x00\x00exittR.", r"asks for os\.system"),
    "instance": (b"(ios\nsystem\n.", "opcode INST"),
    "set": (b"\x8f(K\x01\x90.", "opcode EMPTY_SET"),
    "doubled": (b"K\x012\x86.", "opcode DUP"),
    "extension": (b"\x82\x01.", "opcode EXT1"),
    "called number": (b"K\x01)R.", "calls what is no function"),
    "call without a tuple": (REBUILT + b"]R.", "calls what is no function"),
    "class filled": (HELD + b"}X\x04\x00\x00\x00kindK\x01sb.", "sets attributes of a type"),
    "class filled by slots": (HELD + b"N}X\x04\x00\x00\x00kindK\x01s\x86b.", "sets attributes of a type"),
    "function filled": (REBUILT + b"}X\x04\x00\x00\x00kindK\x01sb.", "sets attributes of a function"),
    "instance of a function": (REBUILT + b")\x81.", "an instance of what is no class"),
    "instance of arguments": (HELD + b"K\x01\x85\x81.", "an instance of what is no class"),
    "function as a list": (REBUILT + b"K\x01a.", "fills a function like a list"),
    "list as a dict": (b"]K\x00K\x01s.", "fills a list like a dict"),
    "long": (b"X" + struct.pack("<I", 100) + b"a" * 100 + b".", "longer than 64 bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused(name: str) -> None:
    raw, words = HOSTILE[name]
    with pytest.raises(pickle.UnpicklingError, match=words):
        made(b"\x80\x02" + raw, 64 if name == "long" else None)
    assert Held.kind == "untouched"


@pytest.mark.parametrize(
    "raw", [b"", b"\x80\x02", b"\x80\x02s.", b"\x80\x02(K\x01)s.", b"\x80\x02h\x05.", b"\xff"]
)
def test_damaged_pickles_raise(raw: bytes) -> None:
    with pytest.raises((ValueError, LookupError)):
        made(raw)


def test_only_an_instance_of_an_admitted_class_is_filled() -> None:
    held = made(b"\x80\x02" + HELD + b")\x81}X\x04\x00\x00\x00kindK\x01sb.")
    assert (type(held), held.kind, Held.kind) == (Held, 1, "untouched")
    assert made(b"\x80\x02" + REBUILT + b"K\x01K\x02\x86R.") == [1, 2]
    with pytest.raises(pickle.UnpicklingError, match=r"collections\.OrderedDict"):
        made(pickle.dumps(OrderedDict(a=1), 2))


@pytest.mark.parametrize("name", ["nested key", "memo", "function filled"])
def test_hostile_splits_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    raw = HOSTILE[name][0].replace(REBUILT, b"cnumpy.core.multiarray\n_reconstruct\n")
    (tmp_path / "split.pkl").write_bytes(b"\x80\x02" + raw)
    with pytest.raises(DataError, match=r"split\.pkl: not a FedE split: it ") as caught:
        load(str(tmp_path / "split.pkl"))
    assert "\n" not in str(caught.value)
