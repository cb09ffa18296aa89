"""How kernels are compiled: once, without the interpreter lock, kept on disk.

Kernels call kernels of other files, which numba's copy on disk would not see change. So a copy is good only
as long as every file of this package that has a part in kernels is what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from numba import njit

__all__ = ["compiled", "inlined"]

P = ParamSpec("P")
R = TypeVar("R")

# Sums may be reordered, so that they run in vector registers; NaN and infinity keep their meaning.
_FASTMATH = {"reassoc", "contract", "arcp", "nsz"}


_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": _FASTMATH, "error_model": "numpy"}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of arrays; x / 0 is infinite, because a check would stop vectorising."""
    return cast(Callable[P, R], _stamped(njit(**_OPTIONS)(function)))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that becomes part of its caller: tests of what is constant there cost nothing."""
    return cast(Callable[P, R], _stamped(njit(**_OPTIONS, forceinline=True)(function)))


def _stamped(dispatcher: Any) -> Any:
    file = dispatcher._cache._cache_file  # numba has no public way to say what else a kernel depends on
    file._source_stamp = (file._source_stamp, kernels_digest())
    return dispatcher


@cache
def kernels_digest() -> str:
    """Of all files of this package that compile, or say what to compile."""
    digest = sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        text = path.read_bytes()
        if b"numba" in text or b"compiled" in text:
            digest.update(str(len(text)).encode() + b"\n" + text)
    return digest.hexdigest()
