"""Who holds what, and which shared row is whose: the plain union, in which the server sees every label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["PlainUnion"]


@dataclass(frozen=True)
class PlainUnion:
    """Shared row numbers of one table; labels are sorted, so that the order of arrival does not matter."""

    labels: tuple[str, ...]
    rows: Mapping[int, NDArray[np.int32]]  # client -> the shared row of each of its labels, in its own order

    @classmethod
    def of(cls, held: Mapping[int, Sequence[str]]) -> PlainUnion:
        labels = tuple(sorted({label for own in held.values() for label in own}))
        number = {label: place for place, label in enumerate(labels)}
        return cls(
            labels,
            {
                client: np.array([number[label] for label in own], dtype=np.int32)
                for client, own in held.items()
            },
        )
