"""The contract of a mechanism that releases vertex rows of a network in which edges are private."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedkge.client.privacy.normals import Keystream
from fedkge.errors import SettingError

__all__ = ["EdgeMechanism", "Rows", "laplace", "uniform_directions"]

Rows = NDArray[np.float64]  # (n, k)


@dataclass(frozen=True)
class EdgeMechanism(ABC):
    """Releases rows of the vertices of an undirected network.

    Two networks are neighbours if they have the same vertices and one of them has one edge more. What is
    learnt from the rows afterwards, such as a classifier, is outside: it may read whatever else it reads.
    """

    epsilon: float

    name: ClassVar[str]
    guaranteed: ClassVar[bool] = False  # else its ε is claimed
    assumed: ClassVar[tuple[str, ...]] = ("the vertices, and so how many there are, are public",)
    doubts: ClassVar[tuple[str, ...]] = ()  # why its ε is only a claim

    def __post_init__(self) -> None:
        if not (isfinite(self.epsilon) and self.epsilon > 0):
            raise SettingError(f"{self.name}: epsilon = {self.epsilon}: expected a finite number above 0")

    @property
    def standing(self) -> str:
        """What its ε is worth."""
        return "guaranteed" if self.guaranteed else "claimed"

    @property
    def delta(self) -> float:
        """With which probability the bound may fail; 0: never."""
        return 0.0

    @abstractmethod
    def rows(self, adjacency: Any, dim: int, stream: Keystream) -> Rows:
        """What is released, (n, dim).

        Args:
            adjacency: (n, n) symmetric, ones where an edge is, in CSR.
            dim: the width of a row.
            stream: where all randomness comes from; it must be secret.
        """


def laplace(stream: Keystream, count: int, scale: float) -> NDArray[np.float64]:
    """Laplace numbers: an exponential one with either sign."""
    uniforms = stream.uniforms(2 * count)
    signs = np.where(uniforms[count:] > 0.5, 1.0, -1.0)
    noise: NDArray[np.float64] = -scale * np.log(uniforms[:count]) * signs
    return noise


def uniform_directions(stream: Keystream, count: int, width: int) -> Rows:
    """(count, width) points on the unit sphere."""
    normals = stream.normals(count * width).reshape(count, width)
    directions: Rows = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    return directions
