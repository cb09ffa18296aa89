"""One thread for matrix products: their last bits depend on how many there are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

__all__ = ["same_bits"]

_lock = threading.Lock()
_users = 0
_limit: Any = None


@contextmanager
def same_bits() -> Iterator[None]:
    """Keep BLAS to the calling thread; the number of threads is restored when the last user leaves."""
    global _users, _limit
    with _lock:
        if _users == 0:
            _limit = threadpool_limits(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.restore_original_limits()
