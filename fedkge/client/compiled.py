"""How kernels are compiled: once, without the interpreter lock, kept on disk.

The copy on disk is renewed when the file of the *outer* function changes, and at no other time. So a compiled
function calls compiled functions of its own file only.
"""

from __future__ import annotations

from collections.abc import Callable
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
    return cast(Callable[P, R], njit(**_OPTIONS)(function))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that becomes part of its caller: tests of what is constant there cost nothing."""
    return cast(Callable[P, R], njit(**_OPTIONS, forceinline=True)(function))
