"""The one seam through which secrets are drawn: the operating system, or bytes that a test vector fixes."""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["OPERATING_SYSTEM", "Entropy"]

Entropy = Callable[[int], bytes]  # how many bytes → that many bytes

OPERATING_SYSTEM: Entropy = os.urandom
