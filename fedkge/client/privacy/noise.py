"""Noise on every row of the vocabulary at every confidential step: which rows moved is itself a secret.

What leaves a client is a multiple of a grid, a power of two far below the noise and far above the last bits
of float32 numbers: those bits would tell what the noise was added to (Mironov, 2012).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import expm1, floor, inf, log2, sqrt

import numpy as np

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.descent import move_carrying
from fedkge.client.kernels.fused import Carried
from fedkge.client.kernels.gaussian import Debts, collect_debts, snap
from fedkge.client.privacy.normals import Keystream
from fedkge.client.privacy.norms import CARRIED
from fedkge.client.training.negatives import Batch
from fedkge.client.training.optimizers import Optimizer
from fedkge.errors import TrainingError
from fedkge.experiment import DPSettings, TrainingSettings

__all__ = ["DenseNoise", "LazyNoise", "choose_noise", "grid_of"]

_WORTH = 0.5  # lazy noise saves if a step reads less than this share of the entities
_FINER = 13  # powers of two between noise and grid: 2¹⁰ float32 numbers of the noise's size share a cell
_CARRIED_UNIT = 2.0**-47  # of a row with its carry, by which one of its numbers is rounded, twice
_GROWTH = 4.0  # what rows may become while they are trained, beside what they may be before


def grid_of(deviation: float) -> float:
    """The grid of what is noised so: the power of two that is 2¹³ times below it."""
    return 2.0 ** max(floor(log2(deviation)) - _FINER, -100)


class DenseNoise:
    """Added to the gradient of every row, whatever the optimiser makes of it.

    A row is rounded only after its gradient was noised, so that it may be of any size.
    """

    name = "dense"
    dense = True  # whether a confidential step moves every row

    def __init__(self, stream: Keystream) -> None:
        self.stream = stream
        self.carried: dict[str, Carried] = {}  # tables whose rows may move before they are noised

    def add(self, gradient: Floats, deviation: float) -> None:
        """Add noise of that deviation to gradients (r, w) of a confidential step."""
        self.stream.add_normals(gradient, deviation)
        snap(gradient, np.float32(grid_of(deviation)))

    def move(self, name: str, rows: Ids, gradient: Floats, learning_rate: float) -> bool:
        """Move rows in a way of its own; or return False, and the optimiser does."""
        del name, rows, gradient, learning_rate
        return False

    def before(self, batch: Batch) -> None:
        """Make the rows that a batch is about to read what they should be."""

    def after(self, deviation: float, learning_rate: float) -> None:
        """A confidential step is over."""

    def iterate(self, tables: Mapping[str, Floats]) -> Mapping[str, Floats]:
        """All rows as they would be released after this step."""
        return tables

    def flush(self) -> None:
        """Make every row what it should be: the model is about to be released."""

    def check(self) -> None:
        """Refuse to release a model whose rows became too large for how they were noised."""


class LazyNoise(DenseNoise):
    """A row is paid what it owes when it is next read, and not before.

    Under plain gradient descent the noise of steps that did not read a row adds up, and the sum of normal
    numbers is one normal number: a row owes √(Σ (λ · deviation)²) · N(0, 1) over the confidential steps since
    it was last paid. Exact in distribution for SGD, and for no optimiser with a memory.

    Rows move before they are noised, so they are kept with 48 bits: a second table carries what float32
    has no room for. Rounding is then part of what one triple may move, as long as rows stay below a limit.
    """

    name = "lazy"
    dense = False

    def __init__(self, stream: Keystream, tables: Mapping[str, Floats], limit: float = inf) -> None:
        super().__init__(stream)
        self.tables = tables
        self.limit = limit  # of the magnitude of a row's numbers
        self.carry = {name: np.zeros_like(table) for name, table in tables.items()}
        self.carried = {name: Carried(table, self.carry[name]) for name, table in tables.items()}
        self.grid = inf
        self.variance = 0.0  # that every row has been charged with since the beginning
        self.paid: dict[str, Debts] = {name: np.zeros(len(table)) for name, table in tables.items()}

    def add(self, gradient: Floats, deviation: float) -> None:
        """Nothing yet: the rows of this step owe like all others."""

    def move(self, name: str, rows: Ids, gradient: Floats, learning_rate: float) -> bool:
        move_carrying(np.float32(learning_rate), self.tables[name], self.carry[name], rows, gradient)
        return True

    def before(self, batch: Batch) -> None:
        self._settle("entity", batch.anchors, batch.candidates.reshape(-1))
        if "relation" in self.tables:
            self._settle("relation", batch.relations, batch.relations[:0])

    def after(self, deviation: float, learning_rate: float) -> None:
        self.variance += (learning_rate * deviation) ** 2
        self.grid = min(self.grid, grid_of(learning_rate * deviation))

    def iterate(self, tables: Mapping[str, Floats]) -> Mapping[str, Floats]:
        """Every row is paid; the grid is that of the copies, so that training goes on with all bits."""
        self._settle_all()
        copies = {name: table.copy() for name, table in tables.items()}
        for name in self.tables:
            snap(copies[name], np.float32(self.grid))
        return copies

    def flush(self) -> None:
        self._settle_all()
        if self.variance:
            for table in self.tables.values():
                snap(table, np.float32(self.grid))

    def _settle_all(self) -> None:
        for name, table in self.tables.items():
            every = np.arange(len(table), dtype=np.int32)
            self._settle(name, every, every[:0])

    def check(self) -> None:
        if _largest(self.tables) > self.limit:
            raise TrainingError(
                f"rows of magnitude {_largest(self.tables):.3g} are too large for lazy noise, which covers "
                f'rounding up to {self.limit:.3g}; set privacy.dp.noise = "dense", or a smaller '
                "training.learning_rate"
            )

    def _settle(self, name: str, first: Ids, second: Ids) -> None:
        """Pay the rows named in either list, each once."""
        paid = self.paid[name]
        rows = np.empty(min(len(first) + len(second), len(paid)), dtype=np.int32)
        since = np.empty(len(rows))
        count = collect_debts(first, second, paid, self.variance, rows, since)
        self._pay(name, rows[:count], since[:count])

    def _pay(self, name: str, rows: Ids, since: Debts) -> None:
        deviations = np.sqrt(self.variance - since).astype(np.float32)
        if len(rows):
            self.stream.add_to_rows(self.tables[name], rows, deviations, self.carry[name])


def choose_noise(
    dp: DPSettings,
    settings: TrainingSettings,
    optimizer: Optimizer,
    stream: Keystream,
    tables: Mapping[str, Floats],
    reach: float = inf,
) -> tuple[DenseNoise, str]:
    """Lazy where that is exact and saves; and why not, where it was asked for.

    Args:
        tables: as they are before training: what anybody may know of them decides.
        reach: how far one triple moves the model in one step, at most.
    """
    exact = not optimizer.moments and not optimizer.dense
    reads = settings.batch_size * (settings.negatives + 2)
    saves = -expm1(-reads / len(tables["entity"])) < _WORTH
    if dp.noise == "lazy" and not exact:
        why = (
            f"privacy.dp.noise: lazy noise is exact for SGD alone, not for {settings.optimizer}; "
            'noise is dense. Set training.optimizer = "SGD" for lazy noise'
        )
        return DenseNoise(stream), why
    if dp.noise == "lazy" or (dp.noise == "auto" and exact and saves):
        limit = _limit(reach, settings.negatives + 3, tables)
        if _largest(tables) * _GROWTH <= limit:
            return LazyNoise(stream, tables, limit), ""
        why = (
            f"privacy.dp.noise: rows above {limit / _GROWTH:.3g} would be rounded by too much; noise is dense"
        )
        return DenseNoise(stream), why
    return DenseNoise(stream), ""


def _limit(reach: float, num_rows: int, tables: Mapping[str, Floats]) -> float:
    """How large rows may be so that rounding the rows of one triple is CARRIED of its reach, at most."""
    width = max(table.shape[1] for table in tables.values())
    return CARRIED * reach / (_CARRIED_UNIT * sqrt(num_rows * width))


def _largest(tables: Mapping[str, Floats]) -> float:
    return max((float(np.abs(table).max(initial=0)) for table in tables.values()), default=0.0)
