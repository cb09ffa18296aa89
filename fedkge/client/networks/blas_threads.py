"""One thread for matrix products: their last bits depend on how many there are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import scipy.linalg  # noqa: F401  (it loads the BLAS that is to be kept to one thread)
from threadpoolctl import ThreadpoolController

__all__ = ["same_bits"]

_lock = threading.Lock()
_users = 0
_limit: Any = None


@cache
def _libraries() -> ThreadpoolController:
    """What is loaded: to look takes milliseconds."""
    return ThreadpoolController()


@contextmanager
def same_bits() -> Iterator[None]:
    """Keep BLAS to the calling thread; the number of threads is restored when the last user leaves."""
    global _users, _limit
    with _lock:
        if _users == 0:
            _limit = _libraries().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.restore_original_limits()
