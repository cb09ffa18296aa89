"""Local training with differential privacy for the confidential triples of one client."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan
from time import perf_counter

import numpy as np

from fedkge.client.models.model import Model
from fedkge.client.privacy.accountant import Event
from fedkge.client.privacy.mechanism import Mechanism, TrainingSession, mechanism_of
from fedkge.client.training.loop import KernelStep, TrainResult, check_loss
from fedkge.client.training.optimizers import State
from fedkge.client.training.threads import one_thread
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import TrainingError
from fedkge.experiment import DPSettings, TrainingSettings
from fedkge.strategy import Term

__all__ = ["PrivateResult", "train_privately"]


@dataclass(frozen=True)
class PrivateResult(TrainResult):
    """What private training did; `losses` are safe to tell where the mechanism hides counts."""

    events: tuple[Event, ...] = ()  # what it cost; nothing if confidential triples were spared
    clip: float = 0.0  # the bound in force, the last one where it looks at each batch
    noise: str = "none"
    why: str = ""  # why noise is not what was asked for
    confidential_losses: tuple[float, ...] = ()  # of each epoch; never to be told


def train_privately(
    model: Model,
    graph: KnowledgeGraph,
    rng: np.random.Generator,
    settings: TrainingSettings,
    dp: DPSettings,
    secret: bytes,
    *,
    epochs: int | None = None,
    optimizer: State | None = None,
    spare: bool = False,
    term: Term | None = None,
) -> PrivateResult:
    """Train a model in place; whoever has `rng` but not the 32 bytes of `secret` can undo nothing.

    The same generator and secret give the same bits; a secret serves one call.

    Args:
        epochs: `settings.local_epochs` where none are given.
        optimizer: the state of an earlier call, to go on from.
        spare: leave confidential triples alone: that is training on the unrestricted ones, and costs nothing.
        term: of the strategy; its gradient is added to what a step releases, after clipping and noise.
    """
    mechanism = mechanism_of(dp)
    mechanism.check(type(model), graph, settings)
    mechanism.check_model(model, graph)
    plan = mechanism.plan(graph, settings)
    plan = replace(plan, confidential_steps=0) if spare else plan
    count = settings.local_epochs if epochs is None else epochs
    start = perf_counter()
    with one_thread():
        kernel = KernelStep(model, settings, optimizer, term)
        loop = _Loop(mechanism, TrainingSession(model, graph, rng, settings, plan, kernel, secret))
        losses = [loop.epoch() for _ in range(count)]
        loop.step.finish()
    open_losses, private_losses = zip(*losses, strict=True)
    return PrivateResult(
        losses=open_losses,
        steps=loop.steps,
        triples=count * plan.num_triples,
        seconds=perf_counter() - start,
        optimizer=kernel.optimizer.state(),
        events=mechanism.cost(plan, count),
        clip=loop.step.bound,
        noise=loop.step.noise_name if plan.confidential_steps else "none",
        why=loop.step.why,
        confidential_losses=private_losses,
    )


class _Loop:
    """Epochs of what a mechanism draws and does."""

    def __init__(self, mechanism: Mechanism, session: TrainingSession) -> None:
        self.mechanism, self.session = mechanism, session
        self.step, self.batches = mechanism.step(session), mechanism.batches(session)
        self.steps = 0
        self.first: float | None = None  # the loss of the first unrestricted epoch

    def epoch(self) -> tuple[float, float]:
        """Mean losses of unrestricted and of confidential triples; without triples, not a number."""
        hides, session = self.mechanism.hides_counts, self.session
        totals, counts = [0.0, 0.0], [0, 0]
        draws = (self.batches.unrestricted(), self.batches.confidential())
        for confidential in session.plan.order(session.rng):
            batch = next(draws[confidential])
            loss = self.step.confidential(batch) if confidential else self.step.unrestricted(batch)
            self.steps += 1
            if not (confidential and hides):
                check_loss(loss, self.first, self.steps, session.settings)
            totals[confidential] += loss * len(batch.anchors)
            counts[confidential] += len(batch.anchors)
        self._check_tables()
        open_loss, private_loss = (
            total / count if count else nan for total, count in zip(totals, counts, strict=True)
        )
        if not hides and any(counts):
            open_loss = sum(totals) / sum(counts)
        if self.first is None and open_loss == open_loss:
            self.first = open_loss
        return open_loss, private_loss

    def _check_tables(self) -> None:
        """A step on confidential triples must not fail by what they are: what it made of the model may."""
        for name, table in self.session.model.tables.items():
            if not np.isfinite(table).all():
                rate = self.session.settings.learning_rate
                raise TrainingError(
                    f"the {name} table is no longer finite after {self.steps} steps with "
                    f"training.learning_rate = {rate:g}; try {rate / 10:g}, or a smaller privacy.dp.clip"
                )
