"""A noisy step over all parameters of a model whose entity rows are made one by one."""

from __future__ import annotations

import numpy as np

from fedkge.client.privacy.encoders.triple_parameters import clipped_sums, each_triple
from fedkge.client.privacy.iterates import IterateMean
from fedkge.client.privacy.mechanism import PrivateStep, TrainingSession
from fedkge.client.training.negatives import Batch, NegativeSampler

__all__ = ["EncodedStep", "median_norm"]

_MOST_SAMPLED = 1024  # triples that a median is taken over


class EncodedStep(PrivateStep):
    """Every triple clipped with its negatives over all parameters, the sum noised in every number of them.

    Sums are whole numbers on a grid, so that no rounding depends on what is summed; what is moved by them
    may then be of any size.
    """

    noise_name = "dense"

    def __init__(
        self, session: TrainingSession, sigma: float, bound: float, batch: int, mean: IterateMean
    ) -> None:
        super().__init__(session.kernel)
        self.stream, self.sigma, self.bound, self.batch, self.mean = session.noise, sigma, bound, batch, mean

    def confidential(self, batch: Batch) -> float:
        """A batch may be empty, and is noised like any."""
        kernel, model = self.kernel, self.kernel.model
        rows = model.rows
        sums, loss = clipped_sums(model, kernel.objective, batch, self.bound, rows)
        kernel.optimizer.begin_step()
        for name, table in rows.items():
            noised = sums.noised(name, self.sigma, self.stream) * (self.bound / self.batch)
            kernel.apply(name, np.arange(len(table), dtype=np.int32), noised.astype(np.float32))
        if self.mean.due():
            self.mean.take(rows)
        return loss

    def finish(self) -> None:
        self.mean.write(self.kernel.model.rows)


def median_norm(session: TrainingSession, sampler: NegativeSampler, rng: np.random.Generator) -> float:
    """Of the gradients of unrestricted triples under the model as it stands: nothing private enters."""
    places = rng.permutation(len(sampler.triples))[:_MOST_SAMPLED]
    batch = sampler.batch(places, rng)
    triples = each_triple(session.model, session.kernel.objective, batch)
    norms = np.array([triple.norm for triple in triples])
    positive = norms[np.isfinite(norms) & (norms > 0)]
    return float(np.median(positive)) if positive.size else 0.0
