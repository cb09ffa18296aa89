"""`sound`: Poisson samples, joint clipping, noise on every row, nothing private on any other way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.gradients import triple_gradients
from fedkge.client.models.model import Model
from fedkge.client.privacy.clipping import clip, public_bound
from fedkge.client.privacy.epoch_plan import Stretch
from fedkge.client.privacy.mechanism import (
    Batches,
    Mechanism,
    PrivateStep,
    Sums,
    TrainingSession,
    confidential_part,
    row_sums,
    walk,
)
from fedkge.client.privacy.noise import DenseNoise, choose_noise
from fedkge.client.privacy.normals import poisson_sample
from fedkge.client.privacy.norms import clipping_norms, rounding_share
from fedkge.client.training.loop import KernelStep
from fedkge.client.training.negatives import Batch, NegativeSampler
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import DPSettings, Settings, TrainingSettings

__all__ = ["Sound", "SoundStep"]


# About what 0.03, the bound before there was a rule, comes to with TransE on FB15k-237; not searched for.
_NOISE_SHARE = 0.5  # of all noise that a row gets in a run, beside the root mean square of the first rows
_GRADIENT_SHARE = 0.1  # of the median norm of an unrestricted triple's gradient
_WITHOUT_PUBLIC = 0.03  # where there is no unrestricted triple
_LEAST = 1e-6


class SoundOptions(Settings):
    """When `sound` reaches confidential triples, and what it makes of the last of its iterates."""

    phase: float = Field(
        default=1.0, gt=0, le=1, description="the share of a run's epochs, its last ones, that reach them"
    )
    average: float = Field(
        default=0.0, ge=0, le=1, description="the share of a call's confidential steps, the last, to average"
    )


class Sound(Mechanism):
    """The algorithm of Han et al. (2022), mended until its guarantee holds."""

    Options = SoundOptions
    summary = "every confidential triple is clipped with its negatives, and every row is noised"
    guaranteed = True

    def check(self, model: type[Model], graph: KnowledgeGraph, settings: TrainingSettings) -> None:
        super().check(model, graph, settings)
        if self.dp.clip is None and self.dp.percentile != DPSettings().percentile:
            raise SettingError(
                f'privacy.dp.percentile: mode "{self.dp.mode}" takes no percentile, because noise reaches '
                "every row in proportion to the bound; give it as privacy.dp.clip, or leave both out for one "
                "by rule"
            )

    @property
    def schedule(self) -> SoundOptions:
        """Its own options; a subclass with others takes these as they are by default."""
        return self.options if isinstance(self.options, SoundOptions) else SoundOptions()

    @property
    def phase(self) -> float:
        return self.schedule.phase

    def batches(self, session: TrainingSession) -> Batches:
        """Known answers are struck out from what is public alone, and from confidential batches never."""
        settings, plan = session.settings, session.plan
        public, private = self.public(session.graph), confidential_part(session.graph)
        unfiltered = settings.model_copy(update={"filter_negatives": False})
        sampler = NegativeSampler(public, settings)
        hidden = NegativeSampler(private, unfiltered, counted=public)

        def poisson() -> Iterator[Batch]:
            while True:
                chosen = poisson_sample(session.choices, plan.num_confidential, plan.rate)
                yield hidden.batch(chosen, session.hidden)

        every = np.arange(len(public.train))
        return Batches(partial(walk, sampler, every, plan.unrestricted_batch, session.rng), poisson)

    def bound_of(self, session: TrainingSession) -> float:
        """The bound as given, or by rule from what is public: the rows as they stand, and U's gradients.

        Noise reaches every row in proportion to the bound. Under SGD it is such that the noise of all
        confidential steps of the run is a share of the rows' size; other optimisers divide by the
        size of past gradients, so there it is a small share of an unrestricted triple's gradient.
        """
        if self.bound is not None:
            return self.bound
        plan, total = session.plan, session.stretch.total
        steps = max(self.steps_of(plan, Stretch.whole(total)), 1)
        if not session.kernel.optimizer.moments:
            size = np.sqrt(np.mean(np.square(session.model.entity.numpy(), dtype=np.float64)))
            rate = session.kernel.optimizer.learning_rate
            return max(float(_NOISE_SHARE * size * plan.batch / (rate * self.dp.sigma * sqrt(steps))), _LEAST)
        public = self.public(session.graph)
        if not len(public.train):
            return _WITHOUT_PUBLIC
        sampler, rng = NegativeSampler(public, session.settings), session.rng.spawn(1)[0]
        median = public_bound(
            session.model, session.kernel.objective, sampler, rng, session.settings.batch_size, 50
        )
        return _GRADIENT_SHARE * median

    def step(self, session: TrainingSession) -> SoundStep:
        bound = self.bound_of(session)
        noise, why = DenseNoise(session.noise), ""
        if session.kernel.term is None:
            tables, optimizer = session.model.tables, session.kernel.optimizer
            reach = optimizer.learning_rate * bound / session.plan.batch
            noise, why = choose_noise(self.dp, session.settings, optimizer, session.noise, tables, reach)
        elif self.dp.noise == "lazy":
            why = "privacy.dp.noise: the strategy's term reads every row at every step; noise is dense"
        step = SoundStep(session.kernel, noise, self.dp.sigma, bound, session.plan.batch)
        step.why = why
        steps = self.steps_of(session.plan, session.stretch)
        step.averaged_from = steps - int(self.schedule.average * steps)
        return step


class SoundStep(PrivateStep):
    """Every triple clipped with its negatives, the sum noised in every row, divided by the expected batch.

    With a term, every row moves at every confidential step: were it the rows of the batch alone, the term
    would tell which those are. So its noise must be dense.

    What a triple may move is less than the bound by what rounding could add, before noise, to the difference
    that it makes.
    """

    def __init__(
        self,
        kernel: KernelStep,
        noise: DenseNoise,
        sigma: float,
        bound: float,
        batch: int,
    ) -> None:
        super().__init__(kernel)
        self.noise = noise
        self.noise_name = noise.name
        self.bound = bound
        self.batch = batch
        self.deviation = sigma * bound / batch
        self.steps = 0
        self.averaged_from: int | None = None  # how many steps come before the iterates that are averaged
        self.total: dict[str, NDArray[np.float64]] = {}

    def unrestricted(self, batch: Batch) -> float:
        """An ordinary step; the rows that it reads are paid first."""
        self.noise.before(batch)
        return super().unrestricted(batch)

    def confidential(self, batch: Batch) -> float:
        """A batch may be empty, and is noised like any."""
        kernel, model = self.kernel, self.kernel.model
        self.noise.before(batch)
        kernel.optimizer.begin_step()
        sums: dict[str, Sums] = {}
        loss = 0.0
        if len(batch.anchors):
            # In a product of matrices, how one triple is rounded may depend on which others there are.
            gradients = triple_gradients(model, kernel.objective, batch._replace(shared=None))
            bound = self.bound / (1 + rounding_share(batch.candidates.shape[1]))
            clip(gradients, clipping_norms(gradients, model.entity.numpy()), bound, 1 / self.batch)
            sums = row_sums(model, gradients)
            loss = float(gradients.losses.mean(dtype=np.float64))
        for name in model.tables:
            self.move(name, sums.get(name), self.noise.dense, self._noised)
        self.noise.after(self.deviation, kernel.optimizer.learning_rate)
        return loss

    def apply(self, name: str, rows: Ids, gradient: Floats) -> None:
        if not self.noise.move(name, rows, gradient, self.kernel.optimizer.learning_rate):
            super().apply(name, rows, gradient)

    def finish(self) -> None:
        self.noise.flush()
        self.noise.check()

    def _noised(self, rows: Ids, gradient: Floats) -> None:
        del rows
        self.noise.add(gradient, self.deviation)
