"""Local training with differential privacy for the confidential triples of one client.

`sound` protects: Poisson sampling, joint clipping, noise on every row, nothing private on any other way.
`paper` is Algorithm 1 of Han et al. (2022) as printed, to compare with; its ε is a claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import nan
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from fedkge.client.models.model import Model
from fedkge.client.privacy.accountant import Event
from fedkge.client.privacy.noise import DenseNoise, choose_noise
from fedkge.client.privacy.normals import Keystream, derived
from fedkge.client.privacy.plan import Plan
from fedkge.client.privacy.sampling import poisson_sample
from fedkge.client.privacy.steps import PaperStep, SoundStep
from fedkge.client.privacy.support import check_training
from fedkge.client.training.loop import KernelStep, TrainResult, check_loss, shuffled
from fedkge.client.training.negatives import Batch, NegativeSampler
from fedkge.client.training.optimizers import State
from fedkge.client.training.threads import one_thread
from fedkge.datasets import unrestricted
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError, TrainingError
from fedkge.experiment import DPSettings, TrainingSettings

__all__ = ["PrivateResult", "train_privately"]


@dataclass(frozen=True)
class PrivateResult(TrainResult):
    """What private training did; `losses` are safe to tell where the mode is."""

    events: tuple[Event, ...] = ()  # what it cost; nothing if confidential triples were spared
    clip: float = 0.0  # the bound in force, the last one in `paper`
    noise: str = "none"
    why: str = ""  # why noise is dense where lazy noise was asked for
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
) -> PrivateResult:
    """Train a model in place; whoever has `rng` but not the 32 bytes of `secret` can undo nothing.

    The same generator and secret give the same bits; a secret serves one call. With `spare`, confidential
    triples are left alone: that is training on the unrestricted ones, and costs nothing.
    """
    check_training(type(model), graph, settings, dp)
    start = perf_counter()
    with one_thread():
        session = _Session(model, graph, rng, settings, dp, secret, optimizer, spare)
        count = settings.local_epochs if epochs is None else epochs
        losses = [session.epoch() for _ in range(count)]
        session.noise.flush()
    open_losses, private_losses = zip(*losses, strict=True)
    return PrivateResult(
        losses=open_losses,
        steps=session.steps,
        triples=count * session.triples,
        seconds=perf_counter() - start,
        optimizer=session.step.kernel.optimizer.state(),
        events=session.events(count),
        clip=session.step.bound,
        noise="none" if spare else session.noise_name,
        why=session.why,
        confidential_losses=private_losses,
    )


class _Session:
    """One call's samplers, step and counters."""

    def __init__(
        self,
        model: Model,
        graph: KnowledgeGraph,
        rng: np.random.Generator,
        settings: TrainingSettings,
        dp: DPSettings,
        secret: bytes,
        optimizer: State | None,
        spare: bool,
    ) -> None:
        self.model, self.graph, self.rng, self.settings, self.dp = model, graph, rng, settings, dp
        self.spare = spare
        self.plan = Plan.of(graph, settings, dp)
        self.sound = dp.mode == "sound"
        self.steps = 0
        self.first: float | None = None  # the loss of the first unrestricted epoch
        self.public = unrestricted(graph)
        self.choices = Keystream(derived(secret, "choices"))
        words = np.frombuffer(derived(secret, "negatives"), dtype=np.uint32)
        self.hidden = np.random.default_rng(words)  # for whatever depends on which triples were chosen
        kernel = KernelStep(model, settings, optimizer)
        stream = Keystream(derived(secret, "noise"))
        self.noise = DenseNoise(stream)
        self.why = ""
        self.step: SoundStep | PaperStep
        if self.sound:
            self._check_weights()
            self.noise, self.why = choose_noise(dp, settings, kernel.optimizer, stream, model.tables)
            self.batch_size = settings.batch_size
            # Known answers are struck out from what is public alone, and from confidential batches never.
            unfiltered = settings.model_copy(update={"filter_negatives": False})
            own = replace(graph, train=graph.train[graph.marks("train")], confidential={})
            self.open = NegativeSampler(self.public, settings)
            self.private = NegativeSampler(own, unfiltered, counted=self.public)
            self.places = {False: np.arange(len(self.public.train)), True: np.arange(len(own.train))}
            assert dp.bound is not None  # in `sound` it never is
            self.step = SoundStep(kernel, self.noise, dp.sigma, dp.bound, self.plan.batch)
        else:
            self.batch_size = self.plan.batch
            self.open = self.private = NegativeSampler(graph, settings)
            marks = graph.marks("train")
            self.places = {False: np.flatnonzero(~marks), True: np.flatnonzero(marks)}
            self.step = PaperStep(kernel, self.noise, dp.sigma, dp.clip, dp.percentile)

    @property
    def noise_name(self) -> str:
        return self.noise.name if self.sound else "touched rows"

    @property
    def triples(self) -> int:
        """In one epoch, by expectation: how many were chosen is not for telling."""
        return self.plan.num_unrestricted + (0 if self.spare else self.plan.num_confidential)

    @property
    def confidential_steps(self) -> int:
        return 0 if self.spare else self.plan.confidential_steps

    def events(self, epochs: int) -> tuple[Event, ...]:
        steps = epochs * self.confidential_steps
        return (Event(self.dp.sigma, self.plan.rate, steps),) if steps else ()

    def epoch(self) -> tuple[float, float]:
        """Mean losses of unrestricted and of confidential triples; without triples, not a number."""
        totals, counts = [0.0, 0.0], [0, 0]
        draws = {
            False: self._walk(self.open, self.places[False], self.rng),
            True: self._poisson() if self.sound else self._walk(self.private, self.places[True], self.rng),
        }
        unrestricted_steps = self.plan.unrestricted_steps(self.batch_size)
        for confidential in self.plan.order(unrestricted_steps, self.confidential_steps, self.rng):
            batch = next(draws[confidential])
            loss = self.step.confidential(batch) if confidential else self.step.unrestricted(batch)
            self.steps += 1
            if not (confidential and self.sound):
                check_loss(loss, self.first, self.steps, self.settings)
            totals[confidential] += loss * len(batch.anchors)
            counts[confidential] += len(batch.anchors)
        self._check_tables()
        open_loss, private_loss = (
            total / count if count else nan for total, count in zip(totals, counts, strict=True)
        )
        if not self.sound and any(counts):
            open_loss = sum(totals) / (counts[0] + counts[1])
        if self.first is None and open_loss == open_loss:
            self.first = open_loss
        return open_loss, private_loss

    def _walk(
        self, sampler: NegativeSampler, places: NDArray[np.int64], rng: np.random.Generator
    ) -> Iterator[Batch]:
        """Each triple once, in random order."""
        for part in shuffled(len(places), self.batch_size, rng):
            yield sampler.batch(places[part], rng)

    def _poisson(self) -> Iterator[Batch]:
        while True:
            chosen = poisson_sample(self.choices, self.plan.num_confidential, self.plan.rate)
            yield self.private.batch(chosen, self.hidden)

    def _check_weights(self) -> None:
        """TransM weighs relations by counts of triples: confidential ones must not enter."""
        if not np.array_equal(self.model.scale.numpy(), type(self.model).relation_scale(self.public)):
            raise SettingError(
                f"the relation weights of {self.model.settings.name} count confidential triples; build the "
                "model from the unrestricted ones: build_model(settings, unrestricted(graph), seed)"
            )

    def _check_tables(self) -> None:
        """A step on confidential triples must not fail by what they are: what it made of the model may."""
        for name, table in self.model.tables.items():
            if not np.isfinite(table).all():
                rate = self.settings.learning_rate
                raise TrainingError(
                    f"the {name} table is no longer finite after {self.steps} steps with "
                    f"training.learning_rate = {rate:g}; try {rate / 10:g}, or a smaller privacy.dp.clip"
                )
