"""Numba's compiler with a signature that type checkers can follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

__all__ = ["compiled"]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile on first use, keep the machine code on disk, and release the GIL while it runs."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))
