"""Writing beside the target and moving it there, so that a file or folder is whole, old or absent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkge.errors import DataError

__all__ = ["staged"]


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A path to write to; it takes the target's place at the end, or vanishes when anything goes wrong."""
    try:
        real = target.resolve()  # behind a link, the link stays and its target is replaced
        real.parent.mkdir(parents=True, exist_ok=True)
        partial = real.with_name(f".{real.name}.{os.getpid()}.partial")
        try:
            yield partial
            _swap(partial, real)
        finally:
            _remove(partial)
    except OSError as error:
        raise DataError(
            f"cannot write {target}: {error.strerror or error}; free space or choose another place"
        ) from error


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
