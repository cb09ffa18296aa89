"""Compiled functions, kept on disk as long as every file of their package is what it was.

Numba's own copies see changes of the function's file alone, but compiled functions call others, of other
files, and take classes and numbers from them. A copy that cannot be kept is compiled anew by every process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit

__all__ = ["compile_kept"]


def compile_kept(function: Callable[..., Any], package: Path, **options: Any) -> Any:
    """Compile on first use, without the interpreter lock; the copy depends on all files below `package`."""
    for cell in function.__closure__ or ():
        # A file of its own: two processes that write one index at once may mix up what it points to.
        function.__qualname__ += f"_{cell.cell_contents}"
    try:
        dispatcher = njit(nogil=True, cache=True, **options)(function)
        file = dispatcher._cache._cache_file
        # Numba has no public way to say what a copy depends on. It compares this before it reads the rest.
        file._version = f"{file._version} {_digest(package)}"
    except (AttributeError, RuntimeError):  # another numba, or no folder that it may write to
        return njit(nogil=True, **options)(function)
    return dispatcher


@cache
def _digest(package: Path) -> str:
    digest = sha256()
    for path in sorted(package.rglob("*.py")):
        text = path.read_bytes()
        digest.update(f"{path.relative_to(package)} {len(text)}\n".encode() + text)
    return digest.hexdigest()
