"""`paper`: Algorithm 1 of Han et al. (2022) as printed, to compare with; its guarantee does not hold."""

from __future__ import annotations

from functools import partial
from math import isqrt

import numpy as np

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.gradients import triple_gradients
from fedkge.client.models.model import Model
from fedkge.client.privacy.as_printed.statements import Statements
from fedkge.client.privacy.clipping import percentile
from fedkge.client.privacy.mechanism import Batches, Mechanism, PrivateStep, TrainingSession, row_sums, walk
from fedkge.client.privacy.noise import DenseNoise
from fedkge.client.training.negatives import Batch, NegativeSampler
from fedkge.client.training.steps import KernelStep
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import TrainingSettings

__all__ = ["Paper", "PaperStep"]


class Paper(Mechanism):
    """As printed: batches of √N, δ = 1 / N, a bound that looks at each batch, and the authors' accountant."""

    without_encoders = 'clipping statements apart has no form there. Mode "sgm" is how text was published'
    summary = "training follows Han et al. (2022) as printed"
    guaranteed = False
    hides_counts = False
    accountant = "classic"
    doubts = (
        "why a claim: only the rows of a batch are noised, so which rows moved is visible",
        "why a claim: batches are drawn without replacement, but accounted for as Poisson samples",
        "why a claim: a triple and its negatives are clipped apart, so one triple can move more than the "
        "bound",
        "why a claim: negatives are filtered by confidential triples, and losses over them are told",
        "why a claim: the bound is a percentile of norms of confidential triples",
    )

    def default_delta(self, graph: KnowledgeGraph) -> float:
        return 1 / len(graph.train)

    def batch_sizes(
        self, unrestricted: int, confidential: int, settings: TrainingSettings
    ) -> tuple[int, int]:
        del settings
        size = min(isqrt(unrestricted + confidential), confidential)
        return size, size

    def check(self, model: type[Model], graph: KnowledgeGraph, settings: TrainingSettings) -> None:
        super().check(model, graph, settings)
        if model.projects:
            raise SettingError(
                f'privacy.dp.mode: "{self.dp.mode}" is not supported for {model.__name__}, because it clips '
                "statements apart and this model's relations map the candidates of a triple together; use "
                'mode = "sound"'
            )

    def batches(self, session: TrainingSession) -> Batches:
        """Each triple once, with negatives that confidential triples filter too."""
        sampler = NegativeSampler(session.graph, session.settings)
        marks = session.graph.marks("train")
        part = partial(walk, sampler, size=session.plan.batch, rng=session.rng)
        return Batches(partial(part, np.flatnonzero(~marks)), partial(part, np.flatnonzero(marks)))

    def step(self, session: TrainingSession) -> PaperStep:
        noise, dp = DenseNoise(session.noise), self.dp
        return PaperStep(session.kernel, noise, dp.sigma, dp.clip, dp.percentile)


class PaperStep(PrivateStep):
    """Lines 10–22 of Algorithm 1 of Han et al. (2022) as printed: its guarantee does not hold.

    Statements are clipped apart, the bound is a percentile of norms just seen, and only rows that the batch
    touched are noised.
    """

    noise_name = "touched rows"

    def __init__(
        self,
        kernel: KernelStep,
        noise: DenseNoise,
        sigma: float,
        bound: float | None,
        share: float,
    ) -> None:
        super().__init__(kernel)
        self.noise = noise
        self.sigma = sigma
        self.given = bound
        self.share = share
        self.bound = bound or 0.0  # of the last step

    def confidential(self, batch: Batch) -> float:
        kernel, model = self.kernel, self.kernel.model
        statements = Statements(model, triple_gradients(model, kernel.objective, batch))
        self.bound = self.given or percentile(statements.norms, self.share)
        gradients = statements.clipped(self.bound)
        b = len(batch.anchors)
        gradients.weigh(np.full(b, 1 / b, dtype=np.float32))
        kernel.optimizer.begin_step()
        for name, sums in row_sums(model, gradients).items():
            noised = partial(self._noised, sums.touched(), self.sigma * self.bound / b)
            self.move(name, sums, kernel.optimizer.dense, noised)
        return float(gradients.losses.mean(dtype=np.float64))

    def _noised(self, touched: Ids, deviation: float, rows: Ids, gradient: Floats) -> None:
        among = np.isin(rows, touched)
        part = gradient[among]
        self.noise.add(part, deviation)
        gradient[among] = part
