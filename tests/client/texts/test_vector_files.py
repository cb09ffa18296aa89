"""Files of vectors that are not what they say: features and word vectors, one clear line each."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy

from fedkge.client.texts import text_encoder
from fedkge.datasets.features import find
from fedkge.errors import DataError

LABELS, ROWS = np.array(["ann", "bob"]), np.arange(6, dtype=np.float32).reshape(2, 3)


def rows_of_features(path: Path) -> list[list[float]]:
    return [row.tolist() for row in find(str(path)).vectors.values()]


def rows_of_words(path: Path) -> list[list[float]]:
    return text_encoder(f"glove:{path}").encode(["ann", "bob"], lambda done: None).tolist()


READERS = {"features": (rows_of_features, "labels", "rows"), "words": (rows_of_words, "words", "vectors")}
Reader = tuple[Callable[[Path], list[list[float]]], str, str]


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Reader:
    return READERS[request.param]


def content(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    stream = io.BytesIO()
    npy.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def zipped(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, raw in members.items():
            archive.writestr(f"{name}.npy", raw)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("rows", [ROWS, ROWS.astype(">f8"), np.asfortranarray(ROWS), ROWS.astype(np.int8)])
def test_rows_are_those_that_numpy_wrote(reader: Reader, tmp_path: Path, save: Any, rows: np.ndarray) -> None:
    read, labels, name = reader
    save(tmp_path / "v.npz", **{labels: LABELS, name: rows})
    assert read(tmp_path / "v.npz") == ROWS.tolist()


def test_an_npy_by_the_name_of_an_npz_is_refused(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "v.npz").write_bytes(content(ROWS))
    with pytest.raises(DataError, match=r"v\.npz: expected an \.npz with .*not a zip file"):
        reader[0](tmp_path / "v.npz")


def test_every_truncated_file_is_refused(reader: Reader, tmp_path: Path) -> None:
    read, labels, name = reader
    np.savez(tmp_path / "whole.npz", **{labels: LABELS, name: ROWS})
    raw = (tmp_path / "whole.npz").read_bytes()
    for size in range(0, len(raw), 13):
        (tmp_path / f"{size}.npz").write_bytes(raw[:size])
        with pytest.raises(DataError, match=rf"{size}\.npz: expected an \.npz with") as caught:
            read(tmp_path / f"{size}.npz")
        assert "\n" not in str(caught.value)


def test_every_damaged_byte_is_refused_or_of_no_matter(reader: Reader, tmp_path: Path) -> None:
    read, labels, name = reader
    np.savez_compressed(tmp_path / "whole.npz", **{labels: LABELS, name: ROWS})
    raw, rng = (tmp_path / "whole.npz").read_bytes(), np.random.default_rng(0)
    refused = 0
    for number in range(150):
        damaged = bytearray(raw)
        damaged[int(rng.integers(len(raw)))] ^= int(rng.integers(1, 256))
        (tmp_path / f"{number}.npz").write_bytes(damaged)
        try:
            assert read(tmp_path / f"{number}.npz") == ROWS.tolist()
        except DataError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((2**35, 2), "<f4"),
        ((2**62, 2**62), "<f4"),
        ((2, 3), "<f8"),
        ((2, 2), "<f4"),
        ((2**40,), "<U0"),
        ((6,), "|O"),
    ],
)
@pytest.mark.parametrize("place", [1, 2])
def test_a_header_is_held_against_what_stands_behind_it(
    reader: Reader, tmp_path: Path, shape: tuple[int, ...], dtype: str, place: int
) -> None:
    read, *names = reader
    members = {names[0]: content(LABELS), names[1]: content(ROWS)}
    members[names[place - 1]] = header(shape, dtype) + bytes(24)
    path = zipped(tmp_path / "v.npz", members)
    tracemalloc.start()
    with pytest.raises(DataError, match="its header says"):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


@pytest.mark.parametrize("raw", [b"", b"text", header((2, 3))[:-30], b"\x93NUMPY\x03\x00" + bytes(90)])
def test_what_is_no_array_is_refused(reader: Reader, tmp_path: Path, raw: bytes) -> None:
    read, labels, name = reader
    with pytest.raises(DataError, match=r"v\.npz: expected an \.npz with"):
        read(zipped(tmp_path / "v.npz", {labels: content(LABELS), name: raw}))


def test_what_unpacks_to_more_than_is_read_is_refused(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, labels, name = reader
    monkeypatch.setattr("fedkge.datasets.formats.npz._MOST", 2**20)
    members = {labels: content(LABELS), name: content(np.zeros((2, 2**20), dtype=np.float32))}
    read(zipped(tmp_path / "stored.npz", members))
    with pytest.raises(DataError, match=r"unpacks to 8,388,736 bytes; at most 1,048,576 are read"):
        read(zipped(tmp_path / "packed.npz", members, zipfile.ZIP_DEFLATED))


@pytest.mark.parametrize(
    ("words", "vectors", "message"),
    [
        (np.array("ann"), ROWS, "'words' are <U3 of shape"),
        (np.array([1, 2]), ROWS, "'words' are int64"),
        (LABELS, ROWS[0], "'vectors' of shape"),
        (LABELS, np.float32(1), "'vectors' of shape"),
        (LABELS, ROWS[:1], "'vectors' of shape"),
        (LABELS[:0], ROWS[:0], "no word vectors"),
        (LABELS, ROWS[:, :0], "no word vectors"),
        (LABELS, ROWS.astype(str), "the vectors are <U32; give numbers"),
        (LABELS, np.where(ROWS == 4, np.nan, ROWS), "vector of 'bob' holds something other than finite"),
        (LABELS, np.where(ROWS == 1, -np.inf, ROWS), "vector of 'ann' holds"),
        (LABELS, np.where(ROWS == 4, 1e300, ROWS.astype(np.float64)), "vector of 'bob' holds"),
        (LABELS, np.where(ROWS == 4, np.inf, ROWS).astype(np.float16), "vector of 'bob' holds"),
    ],
)
def test_word_vectors_are_finite_numbers(
    tmp_path: Path, words: np.ndarray, vectors: np.ndarray, message: str
) -> None:
    np.savez(tmp_path / "v.npz", words=words, vectors=vectors)
    with pytest.raises(DataError, match=message):
        text_encoder(f"glove:{tmp_path / 'v.npz'}")


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e99"])
def test_word_vectors_of_text_are_finite_numbers(tmp_path: Path, number: str) -> None:
    (tmp_path / "v.txt").write_text(f"ann 1 2\nbob 3 {number}\n", encoding="utf-8")
    with pytest.raises(DataError, match="vector of 'bob' holds something other than finite numbers; remove"):
        text_encoder(f"glove:{tmp_path / 'v.txt'}")
