"""Local training with differential privacy for the confidential triples of one client."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from time import perf_counter

import numpy as np

from fedkge.client.models.model import Model
from fedkge.client.privacy.epoch_plan import EpochPlan, Stretch
from fedkge.client.privacy.mechanism import Mechanism, TrainingSession, mechanism_of
from fedkge.client.privacy.mode import DPMode
from fedkge.client.privacy.networks.release import Release
from fedkge.client.privacy.private_result import PrivateResult
from fedkge.client.training.loop import check_loss
from fedkge.client.training.optimizers import State
from fedkge.client.training.steps import KernelStep
from fedkge.client.training.threads import one_thread
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import TrainingError
from fedkge.experiment import DPSettings, TrainingSettings
from fedkge.strategy import Term

__all__ = ["PrivateResult", "train_privately"]


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
    stretch: Stretch | None = None,
    memory: State | None = None,
) -> PrivateResult:
    """Train a model in place; whoever has `rng` but not the 32 bytes of `secret` can undo nothing.

    The same generator and secret give the same bits; a secret serves one call.

    Args:
        epochs: `settings.local_epochs` where none are given.
        optimizer: the state of an earlier call, to go on from.
        spare: leave confidential triples alone: that is training on the unrestricted ones, and costs nothing.
        term: of the strategy; its gradient is added to what a step releases, after clipping and noise.
        stretch: which epochs of a run these are; left out: this call is the whole run.
        memory: what the mechanism gave back from the call before.
    """
    mechanism = mechanism_of(dp)
    mechanism.check(type(model), graph, settings)
    mechanism.check_options(type(model), model.settings)
    mechanism.check_model(model, graph)
    stretch = stretch or Stretch.whole(settings.local_epochs if epochs is None else epochs)
    if isinstance(mechanism, Release):
        return mechanism.train(model, graph, rng, settings, secret, stretch.count, optimizer, term, spare)
    assert isinstance(mechanism, Mechanism)  # there is no third kind
    plan = mechanism.plan(graph, settings)
    plan = replace(plan, confidential_steps=0) if spare else plan
    memory = memory or {}
    start = perf_counter()
    with one_thread():
        kernel = KernelStep(model, settings, optimizer, term)
        session = TrainingSession(model, graph, rng, settings, plan, kernel, secret, stretch, memory)
        loop = _Loop(mechanism, session)
        losses = [loop.epoch(epoch) for epoch in stretch.epochs]
        loop.step.finish()
    open_losses, private_losses = zip(*losses, strict=True)
    return PrivateResult(
        losses=open_losses,
        steps=loop.steps,
        triples=sum(_triples(mechanism, plan, epoch, stretch) for epoch in stretch.epochs),
        seconds=perf_counter() - start,
        optimizer=kernel.optimizer.state(),
        events=mechanism.cost(plan, stretch, memory),
        clip=loop.step.bound,
        noise=loop.step.noise_name if mechanism.steps_of(plan, stretch) else "none",
        why=loop.step.why,
        confidential_losses=private_losses,
        memory=loop.step.memory(),
    )


def _triples(mechanism: DPMode, plan: EpochPlan, epoch: int, stretch: Stretch) -> int:
    """Of one epoch, by expectation: how many were sampled is not for telling."""
    return plan.num_unrestricted + plan.batch * mechanism.steps_in(plan, epoch, stretch.total)


class _Loop:
    """Epochs of what a mechanism draws and does."""

    def __init__(self, mechanism: Mechanism, session: TrainingSession) -> None:
        self.mechanism, self.session = mechanism, session
        self.step, self.batches = mechanism.step(session), mechanism.batches(session)
        self.steps = 0
        self.first: float | None = None  # the loss of the first unrestricted epoch

    def epoch(self, number: int) -> tuple[float, float]:
        """Mean losses of unrestricted and of confidential triples; without triples, not a number."""
        hides, session = self.mechanism.hides_counts, self.session
        totals, counts = [0.0, 0.0], [0, 0]
        draws = (self.batches.unrestricted(), self.batches.confidential())
        for confidential in self.mechanism.order(session, number):
            batch = next(draws[confidential])
            loss = self.step.confidential(batch) if confidential else self.step.unrestricted(batch)
            self.steps += 1
            if not (confidential and hides):
                check_loss(loss, self.first, self.steps, session.settings)
            totals[confidential] += loss * len(batch.anchors)
            counts[confidential] += len(batch.anchors)
        self._check_parameters()
        open_loss, private_loss = (
            total / count if count else nan for total, count in zip(totals, counts, strict=True)
        )
        if not hides and any(counts):
            open_loss = sum(totals) / sum(counts)
        if self.first is None and open_loss == open_loss:
            self.first = open_loss
        return open_loss, private_loss

    def _check_parameters(self) -> None:
        """A step on confidential triples must not fail by what they are: what it made of the model may."""
        model = self.session.model
        for name, array in model.parameters.items():
            if not np.isfinite(array).all():
                rate = self.session.settings.learning_rate
                what = f"the {name} table is" if name in model.tables else f"the weights '{name}' are"
                raise TrainingError(
                    f"{what} no longer finite after {self.steps} steps with "
                    f"training.learning_rate = {rate:g}; try {rate / 10:g}, or a smaller privacy.dp.clip"
                )
