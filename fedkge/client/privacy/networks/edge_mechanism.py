"""The contract of a mechanism that releases vertex rows of a network in which edges are private."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedkge.client.privacy.accountant import PureEvent, Spent
from fedkge.client.privacy.networks.released import Released, Rows
from fedkge.client.privacy.normals import Keystream
from fedkge.errors import SettingError

__all__ = ["EdgeMechanism", "EdgeRelease", "Rows", "Walks", "laplace", "uniform_directions"]

Walks = Callable[[Any], Any]  # an adjacency (n, n) to what is factorised of it


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


@dataclass(frozen=True)
class EdgeRelease(EdgeMechanism):
    """One that releases something once, from which models are trained as often as one likes.

    Attributes:
        form: what is released: another network, a matrix, or finished rows.
        learns: whether settings of the model decide what is released.
        dense: whether it takes a number for every pair of vertices.
    """

    form: ClassVar[Literal["network", "matrix", "rows"]] = "matrix"
    learns: ClassVar[bool] = False
    dense: ClassVar[bool] = False
    summary: ClassVar[str]  # what is done to edges, within a sentence of a report

    @property
    def cost(self) -> Spent:
        """What it spends."""
        return PureEvent(self.epsilon)

    @property
    @abstractmethod
    def deviation(self) -> float:
        """Of the noise on a number that one edge moves by one."""

    @abstractmethod
    def release(self, adjacency: Any, walks: Walks, dim: int, stream: Keystream) -> Released:
        """What is released.

        Args:
            adjacency: (n, n) symmetric, ones where an edge is, in CSR.
            walks: what the model factorises where nothing is private.
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
