"""How kernels are compiled: for speed, and so that each gives the same bits wherever it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from fedkge.compilation import compile_kept

__all__ = ["compiled"]

P = ParamSpec("P")
R = TypeVar("R")

_PACKAGE = Path(__file__).parent
_OPTIONS: dict[str, Any] = {
    # Sums may be reordered, so that they run in vector registers; NaN and infinity keep their meaning.
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
    "error_model": "numpy",
    # Kernels become part of those that call them, where tests of what is constant cost nothing. If they did
    # not, each caller would bring a copy, rounded in its own way, and the one loaded first would serve all.
    "forceinline": True,
}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of arrays; x / 0 is infinite, because a check would stop vectorising."""
    return cast(Callable[P, R], compile_kept(function, _PACKAGE, **_OPTIONS))
