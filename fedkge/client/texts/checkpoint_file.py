"""What torch.save wrote, read without executing anything in it: numbers, texts, tensors, and named stand-ins.

Torch's own careful reader (`weights_only`) does not know the pickles of protocol 4 that newer Flair writes.
Two formats: a zip of a pickle and a file for each storage; before torch 1.6, pickles and storages in a row.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats
from fedkge.errors import DataError

__all__ = ["StoredTensor", "read_checkpoint"]

_MAGIC = 0x1950A86A20F9469CFC6C  # with which the older format begins
_DTYPES = {"FloatStorage": "<f4", "HalfStorage": "<f2", "DoubleStorage": "<f8", "LongStorage": "<i8"}
_MOST_NUMBERS = 2**31  # of one tensor


@dataclass
class Storage:
    """The numbers of one storage, once they are read."""

    dtype: np.dtype[Any]
    numbers: NDArray[Any] = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class StoredTensor:
    """A stretch of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]

    def array(self) -> Floats:
        stretch = self.storage.numbers[self.offset : self.offset + prod(self.shape)]
        return stretch.reshape(self.shape).astype(np.float32)


def read_checkpoint(path: Path, classes: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    """The dict of a checkpoint, its tensors as `StoredTensor`.

    Args:
        classes: stand-ins for classes that a pickle may name beside tensors, by module and name.
    """
    try:
        content = _of_zip(path, classes) if zipfile.is_zipfile(path) else _of_stream(path, classes)
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{path}: refused, {error}; only tensors, numbers and texts are admitted, because a pickle can "
            "execute code"
        ) from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); is it yours to read?"
        ) from error
    except Exception as error:  # damaged opcodes raise anything
        raise DataError(
            f"{path}: damaged, truncated, or not written by torch.save ({error}); fetch it again"
        ) from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a dict of settings and weights, found {type(content).__name__}")
    return content


class _Reader(pickle.Unpickler):
    """Admits what rebuilds tensors and the given stand-ins, and nothing else."""

    def __init__(self, stream: IO[bytes], classes: Mapping[tuple[str, str], Any]) -> None:
        super().__init__(stream, encoding="utf-8")
        self.storages: dict[str, Storage] = {}
        self.admitted: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _rebuilt,
            ("_codecs", "encode"): _encoded,
            **{
                (module, name): code
                for name, code in _DTYPES.items()
                for module in ("torch", "torch.cuda")  # where they were when they were written
            },
            **classes,
        }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.admitted:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return self.admitted[module, name]

    def persistent_load(self, pid: Any) -> Storage:
        known = isinstance(pid, tuple) and len(pid) in (5, 6) and pid[1] in _DTYPES.values()
        if not known or pid[5:] not in ((), (None,)):  # the sixth makes it a part of another one
            raise pickle.UnpicklingError("it has a storage of an unknown kind")
        return self.storages.setdefault(str(pid[2]), Storage(np.dtype(pid[1])))


def _rebuilt(storage: Any, offset: Any, shape: Any, strides: Any, *_: object) -> StoredTensor:
    """A tensor whose rows lie one after the other, as those of layers do."""
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, Storage) or not all(type(each) is int and each >= 0 for each in numbers):
        raise pickle.UnpicklingError("it has a tensor without a storage")
    dense = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if prod(shape) > _MOST_NUMBERS or list(strides) != dense:
        raise pickle.UnpicklingError("it has a tensor that is not stored row after row")
    return StoredTensor(storage, offset, tuple(shape))


def _encoded(text: Any, encoding: Any) -> bytes:
    """How older protocols write bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("it has an encoding other than latin1")
    return text.encode("latin1")


def _of_zip(path: Path, classes: Mapping[tuple[str, str], Any]) -> object:
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        reader = _Reader(io.BytesIO(archive.read(name)), classes)
        content: object = reader.load()
        for key, storage in reader.storages.items():
            storage.numbers = np.frombuffer(archive.read(f"{name[: -len('.pkl')]}/{key}"), storage.dtype)
    return content


def _of_stream(path: Path, classes: Mapping[tuple[str, str], Any]) -> object:
    with path.open("rb") as stream:
        if _Reader(stream, {}).load() != _MAGIC:
            raise ValueError("no checkpoint")
        for _ in ("version", "machine"):
            _Reader(stream, {}).load()
        reader = _Reader(stream, classes)
        content: object = reader.load()
        for key in _Reader(stream, {}).load():
            storage = reader.storages[key]
            count = int.from_bytes(stream.read(8), "little")
            raw = stream.read(count * storage.dtype.itemsize)
            storage.numbers = np.frombuffer(raw, storage.dtype, count)
    return content
