"""Noise on every row of the vocabulary at every confidential step: which rows moved is itself a secret."""

from __future__ import annotations

from collections.abc import Mapping
from math import expm1

import numpy as np

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.gaussian import Debts, collect_debts
from fedkge.client.privacy.normals import Keystream
from fedkge.client.training.negatives import Batch
from fedkge.client.training.optimizers import Optimizer
from fedkge.experiment import DPSettings, TrainingSettings

__all__ = ["DenseNoise", "LazyNoise", "choose_noise"]

_WORTH = 0.5  # lazy noise saves if a step reads less than this share of the entities


class DenseNoise:
    """Added to the gradient of every row, whatever the optimiser makes of it."""

    name = "dense"
    dense = True  # whether a confidential step moves every row

    def __init__(self, stream: Keystream) -> None:
        self.stream = stream

    def add(self, gradient: Floats, deviation: float) -> None:
        """Add noise of that deviation to gradients (r, w) of a confidential step."""
        self.stream.add_normals(gradient, deviation)

    def before(self, batch: Batch) -> None:
        """Make the rows that a batch is about to read what they should be."""

    def after(self, deviation: float, learning_rate: float) -> None:
        """A confidential step is over."""

    def flush(self) -> None:
        """Make every row what it should be: the model is about to be released."""


class LazyNoise(DenseNoise):
    """A row is paid what it owes when it is next read, and not before.

    Under plain gradient descent the noise of steps that did not read a row adds up, and the sum of normal
    numbers is one normal number: a row owes √(Σ (λ · deviation)²) · N(0, 1) over the confidential steps since
    it was last paid. Exact in distribution for SGD, and for no optimiser with a memory.
    """

    name = "lazy"
    dense = False

    def __init__(self, stream: Keystream, tables: Mapping[str, Floats]) -> None:
        super().__init__(stream)
        self.tables = tables
        self.variance = 0.0  # that every row has been charged with since the beginning
        self._named = {name: np.zeros(len(table), dtype=np.bool_) for name, table in tables.items()}
        self.paid: dict[str, Debts] = {name: np.zeros(len(table)) for name, table in tables.items()}

    def add(self, gradient: Floats, deviation: float) -> None:
        """Nothing yet: the rows of this step owe like all others."""

    def before(self, batch: Batch) -> None:
        self._settle("entity", batch.anchors, batch.candidates.reshape(-1))
        if "relation" in self.tables:
            self._settle("relation", batch.relations, batch.relations[:0])

    def after(self, deviation: float, learning_rate: float) -> None:
        self.variance += (learning_rate * deviation) ** 2

    def flush(self) -> None:
        for name, table in self.tables.items():
            every = np.arange(len(table), dtype=np.int32)
            self._settle(name, every, every[:0])

    def _settle(self, name: str, first: Ids, second: Ids) -> None:
        """Pay the rows named in either list, each once."""
        paid, named = self.paid[name], self._named[name]
        rows = np.empty(min(len(first) + len(second), len(paid)) + 1, dtype=np.int32)
        since = np.empty(len(rows))
        count = collect_debts(first, second, paid, self.variance, named, rows, since)
        self._pay(name, rows[:count], since[:count])

    def _pay(self, name: str, rows: Ids, since: Debts) -> None:
        deviations = np.sqrt(self.variance - since).astype(np.float32)
        self.stream.add_to_rows(self.tables[name], rows, deviations)


def choose_noise(
    dp: DPSettings,
    settings: TrainingSettings,
    optimizer: Optimizer,
    stream: Keystream,
    tables: Mapping[str, Floats],
) -> tuple[DenseNoise, str]:
    """Lazy where that is exact and saves; and why not, where it was asked for."""
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
        return LazyNoise(stream, tables), ""
    return DenseNoise(stream), ""
