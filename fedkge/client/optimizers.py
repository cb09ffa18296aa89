"""Optimisers that update some rows of a table in place; their state leaves and enters as numpy arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedkge.client.arrays import Floats, Ids
from fedkge.client.compiled import compiled
from fedkge.errors import DataError, UnknownNameError

__all__ = ["OPTIMIZERS", "SGD", "Adagrad", "Adam", "LazyAdam", "Optimizer", "State", "build_optimizer"]

State = dict[str, NDArray[Any]]


class Optimizer(ABC):
    """Moves the rows of named tables against their gradients."""

    dense: ClassVar[bool]  # whether a row without a gradient moves too
    moments: ClassVar[tuple[str, ...]] = ()  # the arrays kept per table, each as large as the table

    def __init__(self, tables: Mapping[str, Floats], learning_rate: float) -> None:
        self.tables = tables
        self.learning_rate = learning_rate
        self.steps = 0
        self.kept = {name: [np.zeros_like(table) for _ in self.moments] for name, table in tables.items()}

    def begin_step(self) -> None:
        """Count a step; the updates that follow belong to it."""
        self.steps += 1

    @abstractmethod
    def update(self, name: str, rows: Ids, gradient: Floats) -> None:
        """Move tables[name][rows] (r, w) against gradient (r, w)."""

    def state(self) -> State:
        """Everything that a later step depends on, besides the tables."""
        arrays: State = {"steps": np.array(self.steps, dtype=np.int64)}
        for name, kept in self.kept.items():
            for moment, array in zip(self.moments, kept, strict=True):
                arrays[f"{name}.{moment}"] = array.copy()
        return arrays

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from an exported state."""
        expected = {"steps"} | {f"{name}.{moment}" for name in self.tables for moment in self.moments}
        if set(state) != expected:
            raise DataError(
                f"the state of a {type(self).__name__} has {', '.join(sorted(expected))}, "
                f"not {', '.join(sorted(state))}; resume with the optimizer that wrote it"
            )
        for name, kept in self.kept.items():
            for moment, array in zip(self.moments, kept, strict=True):
                given = state[f"{name}.{moment}"]
                if given.shape != array.shape:
                    raise DataError(
                        f"optimizer state {name}.{moment} has shape {given.shape}, the table {array.shape}; "
                        "resume with the model that wrote it"
                    )
                array[:] = given
        self.steps = int(state["steps"])


class Adam(Optimizer):
    """Kingma and Ba (2015), every row at every step, as torch.optim.Adam and the FedR authors' code do."""

    dense = True
    moments = ("mean", "variance")
    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def update(self, name: str, rows: Ids, gradient: Floats) -> None:
        mean, variance = self.kept[name]
        numbers = (self.steps, self.learning_rate, self.beta1, self.beta2, self.epsilon)
        _adam(self.tables[name], mean, variance, rows, gradient, *numbers)


class LazyAdam(Adam):
    """Adam that leaves rows without a gradient alone, as torch.optim.SparseAdam does."""

    dense = False


class Adagrad(Optimizer):
    """Duchi, Hazan and Singer (2011)."""

    dense = False
    moments = ("sum",)
    epsilon = 1e-10

    def update(self, name: str, rows: Ids, gradient: Floats) -> None:
        (total,) = self.kept[name]
        rate, epsilon = np.float32(self.learning_rate), np.float32(self.epsilon)
        _adagrad(self.tables[name], total, rows, gradient, rate, epsilon)


class SGD(Optimizer):
    """Plain stochastic gradient descent: no momentum, no decay."""

    dense = False

    def update(self, name: str, rows: Ids, gradient: Floats) -> None:
        _sgd(self.tables[name], rows, gradient, np.float32(self.learning_rate))


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "Adam": Adam,
    "LazyAdam": LazyAdam,
    "Adagrad": Adagrad,
    "SGD": SGD,
}


def build_optimizer(name: str, tables: Mapping[str, Floats], learning_rate: float) -> Optimizer:
    """The optimiser of that name, or an error with the nearest one."""
    if name not in OPTIMIZERS:
        raise UnknownNameError("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name](tables, learning_rate)


@compiled
def _adam(
    table: Floats,
    mean: Floats,
    variance: Floats,
    rows: Ids,
    gradient: Floats,
    steps: int,
    learning_rate: float,
    beta1: float,
    beta2: float,
    tiny: float,
) -> None:
    rate = np.float32(learning_rate / (1 - beta1**steps))
    correction = np.float32(1 / np.sqrt(1 - beta2**steps))
    epsilon = np.float32(tiny)
    # 1 − β is rounded after the subtraction: in float32, 1 − 0.999 is wrong in the fifth digit.
    keep_mean, take_mean = np.float32(beta1), np.float32(1 - beta1)
    keep_variance, take_variance = np.float32(beta2), np.float32(1 - beta2)
    for i in range(rows.shape[0]):
        x, m, v, g = table[rows[i]], mean[rows[i]], variance[rows[i]], gradient[i]
        for k in range(g.shape[0]):
            m[k] = keep_mean * m[k] + take_mean * g[k]
            v[k] = keep_variance * v[k] + take_variance * g[k] * g[k]
            x[k] -= rate * m[k] / (np.sqrt(v[k]) * correction + epsilon)


@compiled
def _adagrad(
    table: Floats, total: Floats, rows: Ids, gradient: Floats, rate: np.float32, epsilon: np.float32
) -> None:
    for i in range(rows.shape[0]):
        x, s, g = table[rows[i]], total[rows[i]], gradient[i]
        for k in range(g.shape[0]):
            s[k] += g[k] * g[k]
            x[k] -= rate * g[k] / (np.sqrt(s[k]) + epsilon)


@compiled
def _sgd(table: Floats, rows: Ids, gradient: Floats, rate: np.float32) -> None:
    for i in range(rows.shape[0]):
        x, g = table[rows[i]], gradient[i]
        for k in range(g.shape[0]):
            x[k] -= rate * g[k]
