"""Optimisers that update some rows of a table in place; their state leaves and enters as numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.descent import Descent, Moving, Rule, move
from fedkge.errors import DataError, SettingError, UnknownNameError

__all__ = [
    "OPTIMIZERS",
    "SGD",
    "Adagrad",
    "Adam",
    "LazyAdam",
    "Optimizer",
    "State",
    "build_optimizer",
]

State = dict[str, NDArray[Any]]


class Optimizer:
    """Moves rows of named parameters, each (n, w), against their gradients; `descent` says how.

    Weight decay is L2, as torch has it: a multiple of each row is added to its gradient.
    """

    descent: ClassVar[Descent]
    moves_all: ClassVar[bool] = False  # whether a row without a gradient moves too
    decays: ClassVar[bool] = True  # whether it knows weight decay
    moments: ClassVar[tuple[str, ...]] = ()  # the arrays kept per table, each as large as the table
    beta1: ClassVar[float] = 0.0
    beta2: ClassVar[float] = 0.0
    epsilon: ClassVar[float] = 0.0

    def __init__(self, tables: Mapping[str, Floats], learning_rate: float, weight_decay: float = 0.0) -> None:
        self.tables = tables
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.dense = self.moves_all or weight_decay > 0  # whether a step moves every row
        self.steps = 0
        self.kept = {name: [np.zeros_like(table) for _ in self.moments] for name, table in tables.items()}
        none = np.empty((0, 0), dtype=np.float32)
        self.moving = {
            name: Moving(table, *self.kept[name], *[none] * (2 - len(self.moments)))
            for name, table in tables.items()
        }

    def begin_step(self) -> None:
        """Count a step; the updates that follow belong to it."""
        self.steps += 1

    @property
    def rule(self) -> Rule:
        """What `move` does at this step."""
        betas = self.beta1, self.beta2
        descent, rate = int(self.descent), self.learning_rate
        return Rule(descent, self.steps, rate, *betas, self.epsilon, self.weight_decay)

    @final
    def update(self, name: str, rows: Ids, gradient: Floats) -> None:
        """Move tables[name][rows] (r, w) against gradient (r, w)."""
        move(self.rule, self.moving[name], rows, gradient)

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

    descent = Descent.ADAM
    moves_all = True
    moments = ("mean", "variance")
    beta1, beta2, epsilon = 0.9, 0.999, 1e-8


class LazyAdam(Adam):
    """Adam that leaves rows without a gradient alone, as SparseAdam of torch does; ε stands as in Adam."""

    moves_all = False
    decays = False


class Adagrad(Optimizer):
    """Duchi, Hazan and Singer (2011)."""

    descent = Descent.ADAGRAD
    moments = ("sum",)
    epsilon = 1e-10


class SGD(Optimizer):
    """Plain stochastic gradient descent, without momentum."""

    descent = Descent.SGD


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "Adam": Adam,
    "LazyAdam": LazyAdam,
    "Adagrad": Adagrad,
    "SGD": SGD,
}


def build_optimizer(
    name: str, tables: Mapping[str, Floats], learning_rate: float, weight_decay: float = 0.0
) -> Optimizer:
    """The optimiser of that name, or an error with the nearest one."""
    if name not in OPTIMIZERS:
        raise UnknownNameError("optimizer", name, OPTIMIZERS)
    if weight_decay > 0 and not OPTIMIZERS[name].decays:
        raise SettingError(
            f"training.weight_decay: {name} leaves rows without a gradient alone, and a decay moves all; set "
            'training.optimizer = "Adam", or training.weight_decay = 0.0'
        )
    return OPTIMIZERS[name](tables, learning_rate, weight_decay)
