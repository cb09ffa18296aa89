"""One step of private training: plain on unrestricted triples, clipped and noised on confidential ones."""

from __future__ import annotations

import numpy as np

from fedkge.client.kernels.gradients import EntitySums, RelationSums, triple_gradients
from fedkge.client.privacy.clipping import clip, percentile
from fedkge.client.privacy.noise import BLOCK, DenseNoise
from fedkge.client.privacy.norms import triple_norms
from fedkge.client.privacy.statements import Statements
from fedkge.client.training.loop import KernelStep
from fedkge.client.training.negatives import Batch

__all__ = ["PaperStep", "SoundStep"]

Sums = EntitySums | RelationSums


class SoundStep:
    """Every triple clipped with its negatives, the sum noised in every row, divided by the expected batch."""

    def __init__(self, kernel: KernelStep, noise: DenseNoise, sigma: float, bound: float, batch: int) -> None:
        self.kernel = kernel
        self.noise = noise
        self.bound = bound
        self.batch = batch
        self.deviation = sigma * bound / batch

    def unrestricted(self, batch: Batch) -> float:
        """An ordinary step; the rows that it reads are paid first."""
        self.noise.before(batch)
        return self.kernel(batch)

    def confidential(self, batch: Batch) -> float:
        """The mean loss, which is as private as the batch; a batch may be empty, and is noised like any."""
        optimizer, tables = self.kernel.optimizer, self.kernel.model.tables
        self.noise.before(batch)
        optimizer.begin_step()
        if len(batch.anchors) == 0:
            self._apply("entity", None)
            self._apply("relation", None)
            loss = 0.0
        else:
            gradients = triple_gradients(self.kernel.model, self.kernel.objective, batch)
            clip(gradients, triple_norms(gradients, tables["entity"]), self.bound, 1 / self.batch)
            self._apply("entity", gradients.entity_sums(tables["entity"]))
            self._apply("relation", gradients.relation_sums(len(tables["relation"])))
            loss = float(gradients.losses.mean(dtype=np.float64))
        self.noise.after(self.deviation, optimizer.learning_rate)
        return loss

    def _apply(self, name: str, sums: Sums | None) -> None:
        if not self.noise.dense:  # it is paid later
            if sums:
                touched = sums.touched()
                self.kernel.optimizer.update(name, touched, sums.rows(touched))
            return
        table = self.kernel.model.tables[name]
        rows = np.arange(len(table), dtype=np.int32)
        step = max(1, BLOCK // table.shape[1])
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            gradient = sums.rows(block) if sums else np.zeros((len(block), table.shape[1]), np.float32)
            self.noise.add(gradient, self.deviation)
            self.kernel.optimizer.update(name, block, gradient)


class PaperStep:
    """Lines 10–22 of Algorithm 1 of Han et al. (2022) as printed: its guarantee does not hold.

    Statements are clipped apart, the bound is a percentile of norms just seen, and only rows that the batch
    touched are noised.
    """

    def __init__(
        self, kernel: KernelStep, noise: DenseNoise, sigma: float, bound: float | None, share: float
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.sigma = sigma
        self.given = bound
        self.share = share
        self.bound = bound or 0.0  # of the last step

    def unrestricted(self, batch: Batch) -> float:
        return self.kernel(batch)

    def confidential(self, batch: Batch) -> float:
        optimizer, tables = self.kernel.optimizer, self.kernel.model.tables
        statements = Statements(
            self.kernel.model, triple_gradients(self.kernel.model, self.kernel.objective, batch)
        )
        self.bound = self.given or percentile(statements.norms, self.share)
        gradients = statements.clipped(self.bound)
        b = len(batch.anchors)
        gradients.weigh(np.full(b, 1 / b, dtype=np.float32))
        optimizer.begin_step()
        deviation = self.sigma * self.bound / b
        self._apply("entity", gradients.entity_sums(tables["entity"]), deviation)
        self._apply("relation", gradients.relation_sums(len(tables["relation"])), deviation)
        return float(gradients.losses.mean(dtype=np.float64))

    def _apply(self, name: str, sums: Sums, deviation: float) -> None:
        optimizer = self.kernel.optimizer
        touched = sums.touched()
        rows = np.arange(len(optimizer.tables[name]), dtype=np.int32) if optimizer.dense else touched
        step = max(1, BLOCK // optimizer.tables[name].shape[1])
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            gradient = sums.rows(block)
            noised = np.isin(block, touched)
            part = gradient[noised]
            self.noise.add(part, deviation)
            gradient[noised] = part
            optimizer.update(name, block, gradient)
