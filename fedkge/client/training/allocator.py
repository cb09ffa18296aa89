"""The memory allocator of the process, told to keep what a step frees: the next step asks for it again.

Without this, glibc gives memory back to the system after each step and gets it again a page at a time: 76 a
step of TransE on a client of DDB14, which took about 6 % of its time with two clients in two threads.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of options in glibc's malloc.h
_KEPT_BYTES = 64 << 20  # of each thread, at most
_LARGE_BYTES = 32 << 20  # what is as large as this goes back at once, as before


@cache
def keep_freed_memory() -> None:
    """For the rest of the process; nothing happens where the allocator is another one."""
    if sys.platform != "linux":
        return
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(_MMAP_THRESHOLD, _LARGE_BYTES)
        choose(_TRIM_THRESHOLD, _KEPT_BYTES)
