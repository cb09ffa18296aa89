"""Arrays of an `.npz`, read by what the file has and not by what it says: a header can name any size."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedkge.errors import DataError

__all__ = ["read_npz"]

_MOST = 2**32  # bytes of an array that is packed; one that is not is no longer than its file


def read_npz(raw: bytes, origin: str, names: Sequence[str], what: str) -> list[NDArray[Any]]:
    """Arrays by name, of numbers or texts.

    Args:
        origin: what an error message calls the file.
        what: it should be, as "an .npz with 'labels' (n,)".
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            return [_array(archive, f"{name}.npy") for name in names]
    except Exception as error:  # damaged archives and headers raise anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{origin}: expected {what}, without pickled objects ({reason})") from error


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED and info.file_size > _MOST:
        raise ValueError(f"{name} unpacks to {info.file_size:,} bytes; at most {_MOST:,} are read")
    with archive.open(info) as stream:
        shape, dtype = _header(stream, name)
        values = info.file_size - stream.tell()
    count = prod(shape)
    if dtype.hasobject or dtype.itemsize == 0 or count * dtype.itemsize != values:
        raise ValueError(f"{name} has {values:,} bytes of values, and its header says {count:,} of {dtype}")
    array: NDArray[Any] = npy.read_array(io.BytesIO(archive.read(info)), allow_pickle=False)
    return array


def _header(stream: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{name} is of the format {version[0]}.{version[1]}, not 1.0 or 2.0")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(stream)
    if any(size < 0 for size in shape):
        raise ValueError(f"{name} has the shape {shape}")
    return shape, dtype
