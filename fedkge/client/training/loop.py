"""Local training: some epochs over one client's triples, on one thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from time import perf_counter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.fused import fused_step
from fedkge.client.kernels.gradients import EntitySums, Objective, RelationSums, triple_gradients
from fedkge.client.kernels.losses import find_loss
from fedkge.client.models.model import Model
from fedkge.client.training.allocator import keep_freed_memory
from fedkge.client.training.autograd import AutogradStep
from fedkge.client.training.negatives import Batch, NegativeSampler
from fedkge.client.training.optimizers import State, build_optimizer
from fedkge.client.training.threads import one_thread
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, TrainingError
from fedkge.experiment import TrainingSettings
from fedkge.strategy import Term

__all__ = ["KernelStep", "Step", "TrainResult", "check_loss", "shuffled", "train"]

_BLOCK = 2**18  # floats of gradients that stay in the cache until they are applied
_EXPLOSION = 1e4  # a loss this many times the first one will not come back


class Step(Protocol):
    """One update of a model from one batch."""

    def __call__(self, batch: Batch) -> float:
        """Move the tables; return the mean loss before the move."""

    def state(self) -> State:
        """The optimiser's state."""


@dataclass(frozen=True)
class TrainResult:
    """What a call of `train` did; the model's tables were changed in place."""

    losses: tuple[float, ...]  # mean loss of each epoch
    steps: int
    triples: int
    seconds: float
    optimizer: State  # pass it to the next call to go on where this one stopped

    @property
    def triples_per_second(self) -> float:
        return self.triples / self.seconds if self.seconds > 0 else 0.0


def train(
    model: Model,
    graph: KnowledgeGraph,
    rng: np.random.Generator,
    settings: TrainingSettings,
    *,
    epochs: int | None = None,
    optimizer: State | None = None,
    term: Term | None = None,
) -> TrainResult:
    """Train a model in place on the train triples of a graph; the same generator gives the same bits."""
    if len(graph.train) == 0:
        raise DataError(f"{graph.name}: no train triples; give the client at least one, or leave it out")
    sampler = NegativeSampler(graph, settings)
    losses: list[float] = []
    steps = 0
    start = perf_counter()
    with one_thread():
        step = build_step(model, settings, optimizer, term)
        for _ in range(settings.local_epochs if epochs is None else epochs):
            total = 0.0
            for places in shuffled(len(graph.train), settings.batch_size, rng):
                loss = step(sampler.batch(places, rng))
                steps += 1
                check_loss(loss, losses[0] if losses else None, steps, settings)
                total += loss * len(places)
            losses.append(total / len(graph.train))
        state = step.state()
    triples = len(graph.train) * len(losses)
    return TrainResult(tuple(losses), steps, triples, perf_counter() - start, state)


def build_step(
    model: Model, settings: TrainingSettings, optimizer: State | None = None, term: Term | None = None
) -> Step:
    """Fused kernels on the processor, plain torch on other devices."""
    if settings.device == "cpu":
        return KernelStep(model, settings, optimizer, term)
    return AutogradStep(model, settings, optimizer, device=settings.device)


class KernelStep:
    """A step through the kernels: fused, or in passes where candidates are mapped or shared."""

    def __init__(
        self,
        model: Model,
        settings: TrainingSettings,
        optimizer: State | None = None,
        term: Term | None = None,
    ) -> None:
        self.term = term
        keep_freed_memory()
        self.model = model
        self.objective = Objective(
            find_loss(settings.loss), model.settings.margin, settings.adversarial_temperature
        )
        self.optimizer = build_optimizer(settings.optimizer, model.tables, settings.learning_rate)
        if optimizer is not None:
            self.optimizer.load(optimizer)

    def __call__(self, batch: Batch) -> float:
        self.optimizer.begin_step()
        if self.model.projects or batch.shared is not None or self.term is not None:
            return self._in_passes(batch)
        return fused_step(self.model, self.objective, self.optimizer, batch)

    def _in_passes(self, batch: Batch) -> float:
        tables = self.model.tables
        triples = triple_gradients(self.model, self.objective, batch)
        triples.weigh(np.full(len(triples.losses), 1 / len(triples.losses), dtype=np.float32))
        self._apply("entity", triples.entity_sums(tables["entity"]))
        self._apply("relation", triples.relation_sums(len(tables["relation"])))
        return float(triples.losses.mean(dtype=np.float64))

    def _apply(self, name: str, sums: EntitySums | RelationSums) -> None:
        """A block may be applied at once, while it is in the cache: no later one reads its rows."""
        table = self.model.tables[name]
        rows = np.arange(len(table), dtype=np.int32) if self.optimizer.dense else sums.touched()
        step = max(1, _BLOCK // table.shape[1])
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            slopes = sums.rows(block)
            added = None if self.term is None else self.term.gradient(name, block, table[block])
            self.optimizer.update(name, block, slopes if added is None else slopes + added)

    def state(self) -> State:
        return self.optimizer.state()


def shuffled(count: int, size: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Places below count, each once, in batches."""
    order = rng.permutation(count)
    for start in range(0, count, size):
        yield order[start : start + size]


def check_loss(loss: float, first: float | None, steps: int, settings: TrainingSettings) -> None:
    """Stop a training that will not come back."""
    rate = settings.learning_rate
    if not isfinite(loss):
        what = f"the loss is {loss}"
    elif first is not None and loss > _EXPLOSION * max(1.0, first):
        what = f"the loss grew from {first:.3g} to {loss:.3g}"
    else:
        return
    raise TrainingError(
        f"training stopped at step {steps}: {what} with training.learning_rate = {rate:g}; "
        f"try {rate / 10:g}, or a smaller model.margin"
    )
