"""Numba's compiler with a signature that type checkers can follow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from fedkge.compilation import compile_kept

__all__ = ["compiled"]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile on first use, keep the machine code on disk, and release the GIL while it runs."""
    return cast(F, compile_kept(function, Path(__file__).parent))
