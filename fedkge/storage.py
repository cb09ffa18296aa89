"""Files that are whole or absent, and errors that say which folder is full or closed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkge.errors import StorageError

__all__ = ["storage_errors", "write_atomically"]


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turn what the operating system says about a disk into one clear line."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write below {folder}: {error.strerror or error}; free space or choose another folder "
            "(what was written before stays valid)"
        ) from error


def write_atomically(target: Path, write: Callable[[Path], object]) -> None:
    """Write beside the target, then move it there: a crash leaves the old file or the new one, never half."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    partial = Path(name)
    try:
        write(partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
