"""Local training: some epochs over one client's triples, on one thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from time import perf_counter
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats, Ids, ScoredRows
from fedkge.client.kernels.descent import Moving
from fedkge.client.kernels.fused import fused_step
from fedkge.client.kernels.gradients import (
    EntitySums,
    Objective,
    RelationSums,
    TripleGradients,
    triple_gradients,
)
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
        """Move the parameters; return the mean loss before the move."""

    def state(self) -> State:
        """The optimiser's state."""


@dataclass(frozen=True)
class TrainResult:
    """What a call of `train` did; the model's parameters were changed in place."""

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
    pool: Ids | None = None,
) -> TrainResult:
    """Train a model in place on the train triples of a graph; the same generator gives the same bits.

    A term's gradient is added to that of every row that a step moves; negatives come from the pool, if any.
    """
    if len(graph.train) == 0:
        raise DataError(f"{graph.name}: no train triples; give the client at least one, or leave it out")
    sampler = NegativeSampler(graph, settings, pool=pool)
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
    """Kernels on the processor; plain torch on other devices, and where the score alone knows the model."""
    scored = {model.entity_table, model.relation_table}
    known = model.has_query and (model.has_encoder or scored.issuperset(model.parameters))
    if settings.device == "cpu" and known:
        return KernelStep(model, settings, optimizer, term)
    return AutogradStep(model, settings, optimizer, term, device=settings.device)


class KernelStep:
    """A step through the kernels: fused, or in passes where something stands between gradient and row.

    That is an encoder, a term, candidates that are mapped, or negatives that are shared.
    """

    def __init__(
        self,
        model: Model,
        settings: TrainingSettings,
        optimizer: State | None = None,
        term: Term | None = None,
    ) -> None:
        keep_freed_memory()
        self.model = model
        self.term = term
        self.objective = Objective(
            find_loss(settings.loss), model.settings.margin, settings.adversarial_temperature
        )
        self.optimizer = build_optimizer(settings.optimizer, model.rows, settings.learning_rate)
        if optimizer is not None:
            self.optimizer.load(optimizer)
        self._fuses = not (model.projects or model.has_encoder or term)
        self._no_relations = Moving(*[np.empty((len(model.scale), 0), dtype=np.float32)] * 3)

    def __call__(self, batch: Batch) -> float:
        self.optimizer.begin_step()
        if self.model.has_encoder:
            return self._through_encoder(batch)
        if self._fuses and batch.shared is None:
            return self._fused(batch)
        return self._in_passes(batch)

    def apply(self, name: str, rows: Ids, gradient: Floats) -> None:
        """Move rows (r,) of a parameter against a gradient (r, w), to which the term's is added."""
        if self.term is not None:
            addition = self.term.gradient(name, rows, self.optimizer.tables[name][rows])
            gradient = gradient if addition is None else gradient + addition
        self.optimizer.update(name, rows, gradient)

    def _fused(self, batch: Batch) -> float:
        optimizer, model = self.optimizer, self.model
        entity = optimizer.moving[model.entity_table]
        relation = optimizer.moving.get(model.relation_table, self._no_relations)
        return fused_step(model, self.objective, optimizer.rule, optimizer.dense, entity, relation, batch)

    def _in_passes(self, batch: Batch) -> float:
        model, rows = self.model, self.model.scored
        triples = self._mean_gradients(batch, rows)
        self._apply_sums(model.entity_table, triples.entity_sums(rows.entities))
        if model.relation_table in model.specs:
            self._apply_sums(model.relation_table, triples.relation_sums(len(rows.relations)))
        return float(triples.losses.mean(dtype=np.float64))

    def _mean_gradients(self, batch: Batch, rows: ScoredRows) -> TripleGradients:
        triples = triple_gradients(self.model, self.objective, batch, rows)
        triples.weigh(np.full(len(triples.losses), 1 / len(triples.losses), dtype=np.float32))
        return triples

    def _apply_sums(self, name: str, sums: EntitySums | RelationSums) -> None:
        """A block may be applied at once, while it is in the cache: no later one reads its rows."""
        table = self.optimizer.tables[name]
        rows = np.arange(len(table), dtype=np.int32) if self.optimizer.dense else sums.touched()
        step = max(1, _BLOCK // table.shape[1])
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            self.apply(name, block, sums.rows(block))

    def _through_encoder(self, batch: Batch) -> float:
        """Torch encodes, kernels differentiate at the encoded rows, one backward pass reaches parameters."""
        leaves = {name: self.model[name].detach().requires_grad_() for name in self.model.parameters}
        encoded = self.model.bind(leaves).encode()
        rows = ScoredRows(*(part.detach().contiguous().numpy() for part in encoded))
        triples = self._mean_gradients(batch, rows)
        slopes = (
            triples.entity_sums(rows.entities).rows(_numbers(rows.entities)),
            triples.relation_sums(len(rows.relations)).rows(_numbers(rows.relations)),
        )
        trained = [
            (part, torch.from_numpy(slope))
            for part, slope in zip(encoded, slopes, strict=True)
            if part.requires_grad
        ]
        outputs, at_outputs = zip(*trained, strict=True)
        gradients = torch.autograd.grad(outputs, list(leaves.values()), at_outputs, allow_unused=True)
        for name, gradient in zip(leaves, gradients, strict=True):
            if gradient is None:
                raise TrainingError(f"{type(self.model).__name__}: encode() makes nothing of '{name}'")
            self._apply_dense(name, gradient.numpy())
        return float(triples.losses.mean(dtype=np.float64))

    def _apply_dense(self, name: str, gradient: Floats) -> None:
        gradient = np.ascontiguousarray(gradient.reshape(self.optimizer.tables[name].shape))
        if self.optimizer.dense:
            self.apply(name, _numbers(gradient), gradient)
        else:
            rows = np.flatnonzero(gradient.any(axis=1)).astype(np.int32)
            self.apply(name, rows, gradient[rows])

    def state(self) -> State:
        return self.optimizer.state()


def _numbers(rows: Floats) -> Ids:
    return np.arange(len(rows), dtype=np.int32)


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
