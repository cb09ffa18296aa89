"""Local training: some epochs over one client's triples, on one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Ids
from fedkge.client.models.model import Model
from fedkge.client.training.autograd import AutogradStep
from fedkge.client.training.factor_step import FactorStep
from fedkge.client.training.kvsall import KvsAllStep, QuestionSampler
from fedkge.client.training.negatives import Batch, NegativeSampler
from fedkge.client.training.optimizers import State
from fedkge.client.training.steps import KernelStep
from fedkge.client.training.threads import one_thread
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, TrainingError
from fedkge.experiment import TrainingSettings
from fedkge.strategy import Term

__all__ = ["Step", "TrainResult", "Work", "build_step", "check_loss", "shuffled", "train", "work_through"]

_EXPLOSION = 1e4  # a loss this many times the first one will not come back


class Step(Protocol):
    """One update of a model from one batch."""

    def __call__(self, batch: Batch) -> float:
        """Move the parameters; return the mean loss before the move."""

    def take_rate(self, learning_rate: float) -> None:
        """Go on with another learning rate."""

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
    scoring: bool | None = None,
) -> TrainResult:
    """Train a model in place on the train triples of a graph; the same generator gives the same bits.

    A term's gradient is added to that of every row that a step moves; negatives come from the pool, if any.
    Of a model with several stages, epochs, optimizer, term and pool are those of the first one.

    Args:
        scoring: only the stages that belong before scoring (True) or in rounds (False); None: all.
    """
    if len(graph.train) == 0:
        raise DataError(f"{graph.name}: no train triples; give the client at least one, or leave it out")
    results = []
    with one_thread():
        for number, stage in enumerate(model.stages(settings)):
            if scoring is not None and scoring != stage.before_scoring:
                continue
            stage.begin(rng)
            if number == 0:
                seen = stage.seen(graph, rng)
                results.append(_train(stage.model, seen, rng, stage.training, epochs, optimizer, term, pool))
            else:
                results.append(_train(stage.model, stage.seen(graph, rng), rng, stage.training))
            stage.end(rng)
    return results[0] if len(results) == 1 else _together(results)


def _train(
    model: Model,
    graph: KnowledgeGraph,
    rng: np.random.Generator,
    settings: TrainingSettings,
    epochs: int | None = None,
    optimizer: State | None = None,
    term: Term | None = None,
    pool: Ids | None = None,
) -> TrainResult:
    work = TRAINING_TYPES[settings.type](model, graph, rng, settings, optimizer, term, pool)
    return work_through(work, len(graph.train), rng, settings, epochs)


def work_through(
    work: Work, triples: int, rng: np.random.Generator, settings: TrainingSettings, epochs: int | None = None
) -> TrainResult:
    """Some epochs of what is prepared already; `triples` is what one of them counts as."""
    losses: list[float] = []
    steps = 0
    start = perf_counter()
    for epoch in range(settings.local_epochs if epochs is None else epochs):
        work.take_rate(settings.rate_in(epoch))
        total = 0.0
        for places in shuffled(work.samples, settings.batch_size, rng):
            loss = work.step(places)
            steps += 1
            check_loss(loss, losses[0] if losses else None, steps, settings)
            total += loss * len(places)
        losses.append(total / work.samples)
    seconds = perf_counter() - start
    return TrainResult(tuple(losses), steps, triples * len(losses), seconds, work.state())


def _together(results: Sequence[TrainResult]) -> TrainResult:
    """Of several stages; the first one's optimiser may go on, the others start anew."""
    losses = tuple(loss for result in results for loss in result.losses)
    steps, triples = sum(result.steps for result in results), sum(result.triples for result in results)
    optimizer = results[0].optimizer if results else {}
    return TrainResult(losses, steps, triples, sum(result.seconds for result in results), optimizer)


class Work(NamedTuple):
    """What an epoch goes through, and what a step makes of some of it."""

    samples: int
    step: Callable[[NDArray[np.int64]], float]
    take_rate: Callable[[float], None]
    state: Callable[[], State]


def _with_negatives(
    model: Model,
    graph: KnowledgeGraph,
    rng: np.random.Generator,
    settings: TrainingSettings,
    optimizer: State | None,
    term: Term | None,
    pool: Ids | None,
) -> Work:
    """Each triple against negatives of its own."""
    sampler = NegativeSampler(graph, settings, pool=pool)
    step = build_step(model, settings, optimizer, term, rng)
    return Work(len(graph.train), lambda places: step(sampler.batch(places, rng)), step.take_rate, step.state)


def _against_all(
    model: Model,
    graph: KnowledgeGraph,
    rng: np.random.Generator,
    settings: TrainingSettings,
    optimizer: State | None,
    term: Term | None,
    pool: Ids | None,
) -> Work:
    """Each question against every entity."""
    del pool  # there are no negatives to draw
    sampler = QuestionSampler(graph, settings)
    step = KvsAllStep(model, settings, optimizer, term, rng)
    return Work(len(sampler), lambda places: step(sampler.batch(places)), step.take_rate, step.state)


def _factorised(
    model: Model,
    graph: KnowledgeGraph,
    rng: np.random.Generator,
    settings: TrainingSettings,
    optimizer: State | None,
    term: Term | None,
    pool: Ids | None,
) -> Work:
    """A matrix of the whole graph."""
    del rng, pool
    step = FactorStep(model, graph, settings, optimizer, term)
    return Work(step.samples, step, step.take_rate, step.state)


TRAINING_TYPES = {"negatives": _with_negatives, "KvsAll": _against_all, "factorization": _factorised}


def build_step(
    model: Model,
    settings: TrainingSettings,
    optimizer: State | None = None,
    term: Term | None = None,
    rng: np.random.Generator | None = None,
) -> Step:
    """A step with negatives.

    Kernels on the processor; plain torch on other devices, and where the score alone knows the model.
    """
    scored = {model.entity_table, model.relation_table}
    known = model.has_query and (model.has_encoder or scored.issuperset(model.parameters))
    if settings.device == "cpu" and known:
        return KernelStep(model, settings, optimizer, term, rng)
    return AutogradStep(model, settings, optimizer, term, rng, settings.device)


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
