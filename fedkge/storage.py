"""Files and folders that are whole, old or absent, and errors that say which place is full or closed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident

from fedkge.errors import StorageError

__all__ = ["staged", "storage_errors", "sync"]


@contextmanager
def storage_errors(place: Path) -> Iterator[None]:
    """Turn what the operating system says about a disk into one clear line."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write {place}: {error.strerror or error}; free space or choose another folder "
            "(what was written before stays valid)"
        ) from error


@contextmanager
def staged(target: Path, private: bool = False, durable: bool = False) -> Iterator[Path]:
    """A path to write to; it takes the target's place at the end, or vanishes when anything goes wrong.

    A private file can be read by its owner alone, from its first byte on. A durable one is on the disk, and
    outlives a power cut, before this returns.
    """
    with storage_errors(target):
        real = target.resolve()  # behind a link, the link stays and its target is replaced
        real.parent.mkdir(parents=True, exist_ok=True)
        partial = real.with_name(f".{real.name}.{os.getpid()}-{get_ident()}.partial")
        try:
            if private:
                partial.touch(mode=0o600)
            yield partial
            if durable:
                sync(partial)
            _swap(partial, real)
            if durable:
                sync(real.parent)  # the name is the folder's
        finally:
            _remove(partial)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _swap(new: Path, target: Path) -> None:
    """Put the new one in place; the old one goes last."""
    if not (new.is_dir() and target.is_dir()):
        new.replace(target)
        return
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    target.rename(old)
    try:
        new.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
