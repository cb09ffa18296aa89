"""How much of a study is run."""

from __future__ import annotations

from typing import Literal

__all__ = ["Scale"]

Scale = Literal["quick", "full"]  # quick: few cells and epochs, to see the shape; full: the paper's
