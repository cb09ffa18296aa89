"""`sound`: Poisson samples, joint clipping, noise on every row, nothing private on any other way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import sqrt

import numpy as np
from pydantic import Field

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.fused import Carried, clipped_step
from fedkge.client.kernels.gradients import triple_gradients
from fedkge.client.models.model import Model
from fedkge.client.privacy.clipping import clip, clipping_of, public_bound
from fedkge.client.privacy.encoders.encoded_step import EncodedStep, median_norm
from fedkge.client.privacy.epoch_plan import Stretch
from fedkge.client.privacy.iterates import IterateMean
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
from fedkge.client.training.negatives import Batch, NegativeSampler
from fedkge.client.training.steps import KernelStep
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import DPSettings, Settings, TrainingSettings

__all__ = ["Sound", "SoundOptions", "SoundStep"]


_WITHOUT_PUBLIC = 0.03  # where there is no unrestricted triple
_LEAST = 1e-6
_WEIGHTS_ARE_DENSE = "privacy.dp.noise: every triple reads the weights of an encoder; noise is dense"


class SoundOptions(Settings):
    """When `sound` reaches confidential triples, what it averages, and the bound where `clip` is left out.

    The default of `noise_share` was chosen on public relations marked as if confidential.
    """

    phase: float = Field(
        default=1.0, gt=0, le=1, description="the share of a run's epochs, its last ones, that reach them"
    )
    average: float = Field(
        default=0.0, ge=0, le=1, description="the share of a call's confidential steps, the last, to average"
    )
    noise_share: float = Field(
        default=2.0,
        gt=0,
        description="under SGD: all noise that a row gets in a run, beside the size that rows begin with",
    )
    gradient_share: float = Field(
        default=0.1,
        gt=0,
        description="under other optimisers: the bound, beside an unrestricted triple's median gradient",
    )


class Sound(Mechanism):
    """The algorithm of Han et al. (2022), mended until its guarantee holds."""

    Options = SoundOptions
    takes_row_encoders = True
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
        size of past gradients, so there it is a share of an unrestricted triple's gradient.
        """
        if self.bound is not None:
            return self.bound
        plan, total = session.plan, session.stretch.total
        steps = max(self.steps_of(plan, Stretch.whole(total)), 1)
        if not session.kernel.optimizer.moments:
            size = _size(session.model)
            rate = session.kernel.optimizer.learning_rate
            share = self.schedule.noise_share
            return max(float(share * size * plan.batch / (rate * self.dp.sigma * sqrt(steps))), _LEAST)
        public = self.public(session.graph)
        if not len(public.train):
            return _WITHOUT_PUBLIC
        sampler, rng = NegativeSampler(public, session.settings), session.rng.spawn(1)[0]
        if session.model.has_encoder:
            median = median_norm(session, sampler, rng)
            return max(self.schedule.gradient_share * median, _LEAST)
        median = public_bound(
            session.model, session.kernel.objective, sampler, rng, session.settings.batch_size, 50
        )
        return self.schedule.gradient_share * median

    def step(self, session: TrainingSession) -> PrivateStep:
        bound = self.bound_of(session)
        steps = self.steps_of(session.plan, session.stretch)
        mean = IterateMean(steps, int(self.schedule.average * steps))
        if session.model.has_encoder:
            encoded = EncodedStep(session, self.dp.sigma, bound, session.plan.batch, mean)
            encoded.why = _WEIGHTS_ARE_DENSE if self.dp.noise == "lazy" else ""
            return encoded
        noise, why = DenseNoise(session.noise), ""
        if session.kernel.term is None:
            tables, optimizer = session.model.tables, session.kernel.optimizer
            reach = optimizer.learning_rate * bound / session.plan.batch
            noise, why = choose_noise(self.dp, session.settings, optimizer, session.noise, tables, reach)
        elif self.dp.noise == "lazy":
            why = "privacy.dp.noise: the strategy's term reads every row at every step; noise is dense"
        step = SoundStep(session.kernel, noise, self.dp.sigma, bound, session.plan.batch)
        step.why, step.mean = why, mean
        return step


def _size(model: Model) -> float:
    """The root mean square of what is trained; of a model without an encoder, of its entity rows."""
    if not model.has_encoder:
        return float(np.sqrt(np.mean(np.square(model.entity.numpy(), dtype=np.float64))))
    arrays = [array for array in model.parameters.values() if array.any()]  # not those that start at zero
    squares = sum(float(np.sum(np.square(array, dtype=np.float64))) for array in arrays)
    return sqrt(squares / max(sum(array.size for array in arrays), 1))


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
        model = kernel.model
        self._fuses = not (noise.dense or model.projects or model.operator is None)
        none = Carried(*[np.empty((len(model.scale), 0), dtype=np.float32)] * 2)
        self._entity = noise.carried.get(model.entity_table, none)
        self._relation = noise.carried.get(model.relation_table, none)
        self.noise_name = noise.name
        self.bound = bound
        self.batch = batch
        self.deviation = sigma * bound / batch
        self.mean = IterateMean()

    def unrestricted(self, batch: Batch) -> float:
        """An ordinary step; the rows that it reads are paid first."""
        self.noise.before(batch)
        return super().unrestricted(batch)

    def confidential(self, batch: Batch) -> float:
        """A batch may be empty, and is noised like any."""
        self.noise.before(batch)
        self.kernel.optimizer.begin_step()
        loss = self._fused(batch) if self._fuses else self._in_passes(batch)
        self.noise.after(self.deviation, self.kernel.optimizer.learning_rate)
        if self.mean.due():
            self.mean.take(self.noise.iterate(self.kernel.model.tables))
        return loss

    def _fused(self, batch: Batch) -> float:
        """Only rows of the batch move; what they and all others owe is paid when they are read."""
        if not len(batch.anchors):
            return 0.0
        kernel, model = self.kernel, self.kernel.model
        clipping = clipping_of(self.bound, 1 / self.batch, batch.candidates.shape[1])
        rate = kernel.optimizer.learning_rate
        return clipped_step(model, kernel.objective, clipping, rate, self._entity, self._relation, batch)

    def _in_passes(self, batch: Batch) -> float:
        kernel, model = self.kernel, self.kernel.model
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
        return loss

    def apply(self, name: str, rows: Ids, gradient: Floats) -> None:
        if not self.noise.move(name, rows, gradient, self.kernel.optimizer.learning_rate):
            super().apply(name, rows, gradient)

    def finish(self) -> None:
        self.noise.flush()
        self.noise.check()
        self.mean.write(self.kernel.model.tables)

    def _noised(self, rows: Ids, gradient: Floats) -> None:
        del rows
        self.noise.add(gradient, self.deviation)
