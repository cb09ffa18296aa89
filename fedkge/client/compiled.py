"""How kernels are compiled: once, without the interpreter lock, kept on disk.

The copy on disk is renewed when the file of the *outer* function changes, and at no other time. So a compiled
function calls compiled functions of its own file only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from numba import njit

__all__ = ["compiled"]

P = ParamSpec("P")
R = TypeVar("R")

# Sums may be reordered, so that they run in vector registers; NaN and infinity keep their meaning.
_FASTMATH = {"reassoc", "contract", "arcp", "nsz"}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of arrays; x / 0 is infinite, because a check would stop vectorising."""
    options: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": _FASTMATH, "error_model": "numpy"}
    return cast(Callable[P, R], njit(**options)(function))
