"""How much of a study is run."""

from __future__ import annotations

from typing import Literal, get_args

from fedkge.errors import UnknownNameError

__all__ = ["Scale", "scale_named"]

Scale = Literal["quick", "full"]  # quick: few cells and epochs, to see the shape; full: the paper's


def scale_named(name: str) -> Scale:
    """A scale as a user writes it."""
    scales: tuple[Scale, ...] = get_args(Scale)
    for scale in scales:
        if scale == name:
            return scale
    raise UnknownNameError("scale", name, scales)
