"""One thread per client: two clients on two cores must not fight over four threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["one_thread"]

_lock = threading.Lock()
_users = 0
_before = 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to the calling thread; the number of threads is restored when the last user leaves."""
    global _users, _before
    with _lock:
        if _users == 0:
            _before = torch.get_num_threads()
        _users += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                torch.set_num_threads(_before)
