"""`hubs`: the budget is spent where confidential triples pool, on relations and on entities that many touch.

A relation's row, and the row of an entity with hundreds of confidential triples, is moved by all of them
against noise of one size; the row of an entity with five cannot be. DP-FEST (Ghazi et al., 2023) makes the
same choice for sparse embedding gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np
from pydantic import Field

from fedkge.client.models.model import Model
from fedkge.client.privacy.accountant import Event, gaussian_sigma
from fedkge.client.privacy.epoch_plan import EpochPlan, Stretch
from fedkge.client.privacy.hub_step import HubStep, Schedule
from fedkge.client.privacy.mechanism import (
    Batches,
    Mechanism,
    TrainingSession,
    confidential_part,
    walk,
)
from fedkge.client.training.negatives import Batch, NegativeSampler
from fedkge.client.training.optimizers import State
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import DPSettings, Settings, TrainingSettings

__all__ = ["HubOptions", "HubPlan", "Hubs"]

_CHOSEN = "hubs.entity"  # in the memory once hubs are chosen


class HubOptions(Settings):
    """The settings of `hubs`; the defaults were chosen on public relations marked as if confidential."""

    steps: int = Field(default=60, ge=1, description="full-batch steps on confidential triples in a run")
    phase: float = Field(
        default=0.2, gt=0, le=1, description="the share of a run's epochs, its last ones, that have them"
    )
    negatives: int = Field(default=64, ge=1, description="of a confidential triple in each of these steps")
    learning_rate: float = Field(default=0.03, gt=0, description="of the first of these steps; decays to 0")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="of these steps")
    average: float = Field(
        default=0.4, ge=0, le=1, description="the share of these steps, the last ones, that is averaged"
    )
    least: float = Field(
        default=40.0, ge=0, description="confidential triples that a hub has at least, as far as noise tells"
    )
    choice: float = Field(default=0.1, gt=0, lt=1, description="the share of the budget that chooses hubs")
    start: float = Field(
        default=0.2, gt=0, lt=1, description="the share that starts relations without unrestricted triples"
    )


@dataclass(frozen=True)
class HubPlan(EpochPlan):
    """An epoch of the phase; `unknown`: some relation of the vocabulary has no unrestricted triple."""

    unknown: bool = False


class Hubs(Mechanism):
    """Degrees choose hubs, a noisy mean starts relations, full-batch noisy steps move both and nothing else.

    Every part is a Gaussian mechanism over all confidential triples; μ = 1 / σ of the whole run is divided
    so that the squares add up (Dong, Roth and Su, 2022), which is exact.
    """

    Options = HubOptions
    without_encoders = (
        "hubs are entities with rows of their own, on which triples pool. Sound would be unit gradients at "
        "relations and at all weights, as one row that is always chosen; that is not built"
    )
    summary = "confidential triples move their relations' rows and those of hubs, each as a unit, with noise"
    guaranteed = True
    default_clip = 1.0  # every gradient is made as long as this
    options: HubOptions

    def plan(self, graph: KnowledgeGraph, settings: TrainingSettings) -> HubPlan:
        epoch = super().plan(graph, settings)
        counts = np.bincount(self.public(graph).train[:, 1], minlength=graph.num_relations)
        return HubPlan(
            epoch.num_unrestricted,
            epoch.num_confidential,
            epoch.unrestricted_batch,
            epoch.num_confidential,  # every step takes all of them
            self.options.steps,
            unknown=bool((counts == 0).any()),
        )

    # What it costs.

    @property
    def phase(self) -> float:
        return self.options.phase

    def steps_in(self, plan: EpochPlan, epoch: int, total: int) -> int:
        """The steps, spread evenly over the epochs of the phase."""
        first = self.first_epoch(total)
        if epoch < first or epoch >= total or plan.confidential_steps == 0:
            return 0
        passed, epochs = epoch - first, total - first
        steps = self.options.steps
        return (passed + 1) * steps // epochs - passed * steps // epochs

    def sigmas(self, unknown: bool) -> tuple[float, float, float]:
        """Noise per sensitivity of the choice, of the start, and of one step; 1 / σ² adds up."""
        options, sigma = self.options, self.dp.sigma
        start = options.start if unknown else 0.0
        steps = 1 - options.choice - start
        return (
            sigma / sqrt(options.choice),
            sigma / sqrt(start) if start else 0.0,
            sigma * sqrt(options.steps / steps),
        )

    def cost(self, plan: EpochPlan, stretch: Stretch, memory: State) -> tuple[Event, ...]:
        steps = self.steps_of(plan, stretch)
        if not steps:
            return ()
        unknown = isinstance(plan, HubPlan) and plan.unknown
        choice, start, step = self.sigmas(unknown)
        first = () if _CHOSEN in memory else (choice, start) if unknown else (choice,)
        return (*(Event(sigma, 1.0, 1) for sigma in first), Event(step, 1.0, steps))

    def sigma_within(self, target: float, plan: EpochPlan, epochs: int, delta: float) -> float:
        """One Gaussian mechanism with this noise costs as much as the whole run."""
        del plan, epochs
        return gaussian_sigma(target, delta)

    # What it refuses.

    def check(self, model: type[Model], graph: KnowledgeGraph, settings: TrainingSettings) -> None:
        super().check(model, graph, settings)
        if self.options.choice + self.options.start >= 1:
            raise SettingError(
                "privacy.dp.options: choice and start leave nothing of the budget for steps; let them add up "
                "to less than 1"
            )
        given, default = self.dp, DPSettings()
        refused = [name for name in ("clip", "percentile") if getattr(given, name) != getattr(default, name)]
        refused += ["noise"] if given.noise == "lazy" else []
        for name in refused:
            raise SettingError(
                f'privacy.dp.{name}: mode "{self.dp.mode}" makes every gradient as long as 1 and noises all '
                f"rows that it moves at every step; leave {name} out"
            )

    # What it does.

    def order(self, session: TrainingSession, epoch: int) -> Iterator[bool]:
        """Confidential steps at even distances among the others."""
        plan = session.plan
        steps = self.steps_in(plan, epoch, session.stretch.total)
        for number in range(steps):
            others = plan.unrestricted_steps
            for _ in range(number * others // steps, (number + 1) * others // steps):
                yield False
            yield True
        if not steps:
            yield from (False for _ in range(plan.unrestricted_steps))

    def batches(self, session: TrainingSession) -> Batches:
        """Known answers are struck out from what is public alone; every confidential batch is all of them."""
        settings, plan = session.settings, session.plan
        public, private = self.public(session.graph), confidential_part(session.graph)
        drawn = {"filter_negatives": False, "shared_negatives": False, "negatives": self.options.negatives}
        sampler = NegativeSampler(public, settings)
        hidden = NegativeSampler(private, settings.model_copy(update=drawn), counted=public)
        every, all_confidential = np.arange(len(public.train)), np.arange(len(private.train))

        def full() -> Iterator[Batch]:
            while True:
                yield hidden.batch(all_confidential, session.hidden)

        return Batches(partial(walk, sampler, every, plan.unrestricted_batch, session.rng), full)

    def step(self, session: TrainingSession) -> HubStep:
        plan, options = session.plan, self.options
        assert isinstance(plan, HubPlan)
        schedule = Schedule(
            steps=options.steps,
            learning_rate=options.learning_rate,
            momentum=options.momentum,
            averaged=int(options.average * options.steps),
            least=options.least,
        )
        return HubStep(session, self.public(session.graph), schedule, *self.sigmas(plan.unknown))
