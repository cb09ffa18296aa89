"""How kernels are compiled: for speed, and so that a check of numbers never stops a loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from fedkge.compilation import compile_kept

__all__ = ["compiled", "inlined"]

P = ParamSpec("P")
R = TypeVar("R")

_PACKAGE = Path(__file__).parent
# Sums may be reordered, so that they run in vector registers; NaN and infinity keep their meaning.
_FASTMATH = {"reassoc", "contract", "arcp", "nsz"}
_OPTIONS: dict[str, Any] = {"fastmath": _FASTMATH, "error_model": "numpy"}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of arrays; x / 0 is infinite, because a check would stop vectorising."""
    return cast(Callable[P, R], compile_kept(function, _PACKAGE, **_OPTIONS))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that becomes part of its caller: tests of what is constant there cost nothing."""
    return cast(Callable[P, R], compile_kept(function, _PACKAGE, **_OPTIONS, forceinline=True))
