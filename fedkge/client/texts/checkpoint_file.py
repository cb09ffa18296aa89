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
from fedkge.datasets.formats.pickle_reader import Admitted, PickleReader, checked_key, next_pickle
from fedkge.errors import DataError

__all__ = ["StoredTensor", "read_checkpoint"]

_MAGIC = 0x1950A86A20F9469CFC6C  # with which the older format begins
_DTYPES = {"FloatStorage": "<f4", "HalfStorage": "<f2", "DoubleStorage": "<f8", "LongStorage": "<i8"}
_MOST_NUMBERS = 2**31  # of one tensor
_MOST_AXES = 8
_MOST_VIEWS = 4  # of a number that is stored once: weights may be tied
_MOST_BYTES = 2**22  # of a pickle without its tensors; Flair's have some thousand

Classes = Mapping[tuple[str, str], type]


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


def read_checkpoint(path: Path, classes: Classes) -> dict[str, Any]:
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


class _Reader(PickleReader):
    """Admits what rebuilds tensors and the given stand-ins, and nothing else."""

    def __init__(self, raw: bytes, classes: Classes) -> None:
        names = {
            ("collections", "OrderedDict"): _ordered,
            ("torch._utils", "_rebuild_tensor_v2"): self.rebuilt,
            ("_codecs", "encode"): _encoded,
            **{
                (module, name): code
                for name, code in _DTYPES.items()
                for module in ("torch", "torch.cuda")  # where they were when they were written
            },
            **classes,
        }
        fills = {OrderedDict: _ignored, **dict.fromkeys(classes.values(), _filled)}
        super().__init__(raw, Admitted(names, fills))
        self.storages: dict[str, Storage] = {}
        self.numbers = 0  # of all tensors

    def persistent_load(self, pid: Any) -> Storage:
        known = type(pid) is tuple and len(pid) in (5, 6) and all(type(part) is str for part in pid[:4])
        if (
            not known or pid[1] not in _DTYPES.values() or pid[5:] not in ((), (None,))
        ):  # or a part of another
            raise pickle.UnpicklingError("it has a storage of an unknown kind")
        return self.storages.setdefault(pid[2], Storage(np.dtype(pid[1])))

    def rebuilt(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: object) -> StoredTensor:
        """A tensor whose rows lie one after the other, as those of layers do."""
        sizes = all(type(each) is tuple and len(each) <= _MOST_AXES for each in (shape, strides))
        numbers = (offset, *shape, *strides) if sizes else (None,)
        if not isinstance(storage, Storage) or not all(
            type(each) is int and 0 <= each <= _MOST_NUMBERS for each in numbers
        ):
            raise pickle.UnpicklingError("it has a tensor without a storage")
        dense = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        if prod(shape) > _MOST_NUMBERS or list(strides) != dense:
            raise pickle.UnpicklingError("it has a tensor that is not stored row after row")
        self.numbers += prod(shape)
        return StoredTensor(storage, offset, shape)

    def check_numbers(self) -> None:
        """Refuse tensors that show the same numbers time and again: each would take memory of its own."""
        stored = sum(len(storage.numbers) for storage in self.storages.values())
        if self.numbers > _MOST_VIEWS * stored:
            raise pickle.UnpicklingError(
                f"its tensors have {self.numbers:,} numbers, where it stores {stored:,}"
            )


def _ordered(items: Any = ()) -> OrderedDict[Any, Any]:
    """How older protocols write one: with a list of pairs."""
    return OrderedDict((checked_key(key), value) for key, value in items)


def _ignored(target: object, state: object) -> None:
    """What modules note beside their weights, such as versions."""
    del target, state


def _filled(target: object, state: Any) -> None:
    """The attributes of a stand-in."""
    if type(state) is not dict or not all(type(name) is str for name in state):
        raise pickle.UnpicklingError("it fills an object with something other than attributes by name")
    vars(target).update(state)


def _encoded(text: Any, encoding: Any) -> bytes:
    """How older protocols write bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("it has an encoding other than latin1")
    return text.encode("latin1")


def _of_zip(path: Path, classes: Classes) -> object:
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        name = next(name for name in members if name.endswith("data.pkl"))
        budget = path.stat().st_size  # stored members lie side by side

        def read(member: str) -> bytes:
            nonlocal budget
            info = members[member]
            budget -= info.file_size
            if info.compress_type != zipfile.ZIP_STORED or budget < 0:
                raise pickle.UnpicklingError(
                    f"its member '{' '.join(member.split())[:60]}' is packed, and torch packs none"
                )
            return archive.read(info)

        if members[name].file_size > _MOST_BYTES:
            raise pickle.UnpicklingError(f"its data.pkl is longer than {_MOST_BYTES:,} bytes")
        reader = _Reader(next_pickle(io.BytesIO(read(name))), classes)
        content: object = reader.load()
        for key, storage in reader.storages.items():
            storage.numbers = np.frombuffer(read(f"{name[: -len('.pkl')]}/{key}"), storage.dtype)
    reader.check_numbers()
    return content


def _of_stream(path: Path, classes: Classes) -> object:
    with path.open("rb") as stream:
        magic, _, _ = (_plain(stream) for _ in ("magic", "version", "machine"))
        if magic != _MAGIC:
            raise ValueError("no checkpoint")
        reader = _Reader(next_pickle(stream, _MOST_BYTES), classes)
        content: object = reader.load()
        for key in dict.fromkeys(map(checked_key, _plain(stream))):
            storage = reader.storages[key]
            count = int.from_bytes(stream.read(8), "little")
            if count * storage.dtype.itemsize > path.stat().st_size - stream.tell():
                raise ValueError("it ends before its numbers do")
            raw = stream.read(count * storage.dtype.itemsize)
            storage.numbers = np.frombuffer(raw, storage.dtype, count)
    reader.check_numbers()
    return content


def _plain(stream: IO[bytes]) -> Any:
    return _Reader(next_pickle(stream, _MOST_BYTES), {}).load()
