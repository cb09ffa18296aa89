"""A training step through the kernels, and what every such step does with the gradients that it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from typing import NamedTuple

import numpy as np
import torch

from fedkge.client.kernels.arrays import Floats, Ids, ScoredRows
from fedkge.client.kernels.descent import Moving
from fedkge.client.kernels.fused import fused_step
from fedkge.client.kernels.gradients import (
    EntitySums,
    Objective,
    RelationSums,
    TripleGradients,
    triple_gradients,
)
from fedkge.client.kernels.losses import find_loss
from fedkge.client.models.model import Model
from fedkge.client.training.allocator import keep_freed_memory
from fedkge.client.training.negatives import Batch
from fedkge.client.training.optimizers import State, build_optimizer
from fedkge.errors import TrainingError
from fedkge.experiment import TrainingSettings
from fedkge.strategy import Term

__all__ = ["KernelStep", "ParameterStep", "RowSlopes", "scale_of_norm"]

_BLOCK = 2**18  # floats of gradients that stay in the cache until they are applied


class RowSlopes(NamedTuple):
    """What a batch costs, and the gradient of that at every row that is scored."""

    loss: float  # the mean over the batch
    entities: Floats  # (entities, w)
    relations: Floats  # (relations, v)


class ParameterStep:
    """Moves the parameters of a model against gradients: clipped together, the strategy's term added."""

    def __init__(
        self,
        model: Model,
        settings: TrainingSettings,
        optimizer: State | None = None,
        term: Term | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        keep_freed_memory()
        self.model = model
        self.term = term
        self.rng = rng  # with one the model is in training; its dropout draws from it
        self.max_gradient_norm = settings.max_gradient_norm
        self.optimizer = build_optimizer(
            settings.optimizer, model.rows, settings.learning_rate, settings.weight_decay
        )
        if optimizer is not None:
            self.optimizer.load(optimizer)

    def take_rate(self, learning_rate: float) -> None:
        """Go on with another learning rate."""
        self.optimizer.learning_rate = learning_rate

    def apply(self, name: str, rows: Ids, gradient: Floats) -> None:
        """Move rows (r,) of a parameter against a gradient (r, w), to which the term's is added."""
        if self.term is not None:
            addition = self.term.gradient(name, rows, self.optimizer.tables[name][rows])
            gradient = gradient if addition is None else gradient + addition
        self.optimizer.update(name, rows, gradient)

    def apply_together(self, gradients: Mapping[str, Floats]) -> None:
        """Move whole parameters, each against a gradient of its own shape; their common norm is clipped."""
        share = scale_of_norm(gradients, self.max_gradient_norm)
        for name, gradient in gradients.items():
            self._apply_whole(name, gradient if share == 1 else gradient * np.float32(share))

    def through_encoder(
        self, slopes_of: Callable[[Model, ScoredRows], RowSlopes], entities: Ids | None = None
    ) -> float:
        """Torch encodes, slopes are found at the encoded rows, one backward pass reaches parameters.

        Given entities (k,), theirs are the only entity rows that are encoded.
        """
        leaves = {name: self.model[name].detach().requires_grad_() for name in self.model.parameters}
        bound = self.model.bind(leaves, rng=self.rng)
        if entities is None:
            encoded = bound.encode()
        else:
            encoded = bound.encode_rows(torch.from_numpy(entities.astype(np.int64)))
        slopes = slopes_of(bound, ScoredRows(*(part.detach().contiguous().numpy() for part in encoded)))
        trained = [
            (part, torch.from_numpy(slope))
            for part, slope in zip(encoded, slopes[1:], strict=True)
            if part.requires_grad
        ]
        outputs, at_outputs = zip(*trained, strict=True)
        gradients = torch.autograd.grad(outputs, list(leaves.values()), at_outputs, allow_unused=True)
        for name, gradient in zip(leaves, gradients, strict=True):
            if gradient is None:
                raise TrainingError(f"{type(self.model).__name__}: encode() makes nothing of '{name}'")
        self.apply_together({n: g.numpy() for n, g in zip(leaves, gradients, strict=True)})
        return slopes.loss

    def _apply_whole(self, name: str, gradient: Floats) -> None:
        gradient = np.ascontiguousarray(gradient.reshape(self.optimizer.tables[name].shape))
        if self.optimizer.dense:
            self.apply(name, _numbers(gradient), gradient)
        else:
            rows = np.flatnonzero(gradient.any(axis=1)).astype(np.int32)
            self.apply(name, rows, gradient[rows])

    def state(self) -> State:
        """The optimiser's state."""
        return self.optimizer.state()


class KernelStep(ParameterStep):
    """A step through the kernels: fused, or in passes where something stands between gradient and row.

    That is an encoder, a term, candidates that are mapped, negatives that are shared, or a norm to clip.
    """

    def __init__(
        self,
        model: Model,
        settings: TrainingSettings,
        optimizer: State | None = None,
        term: Term | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        super().__init__(model, settings, optimizer, term, rng)
        self.objective = Objective(
            find_loss(settings.loss), model.settings.margin, settings.adversarial_temperature
        )
        self._fuses = not (model.projects or model.has_encoder or term or self.max_gradient_norm)
        self._no_relations = Moving(*[np.empty((len(model.scale), 0), dtype=np.float32)] * 3)

    def __call__(self, batch: Batch) -> float:
        """Move the parameters; return the mean loss before the move."""
        self.optimizer.begin_step()
        if self.model.has_encoder:
            entities, renumbered = _named(batch) if self.model.row_wise else (None, batch)
            return self.through_encoder(lambda model, rows: self._slopes(model, renumbered, rows), entities)
        if self._fuses and batch.shared is None:
            return self._fused(batch)
        if self.max_gradient_norm is not None:
            return self._clipped(batch)
        return self._in_passes(batch)

    def _fused(self, batch: Batch) -> float:
        optimizer, model = self.optimizer, self.model
        entity = optimizer.moving[model.entity_table]
        relation = optimizer.moving.get(model.relation_table, self._no_relations)
        return fused_step(model, self.objective, optimizer.rule, optimizer.dense, entity, relation, batch)

    def _in_passes(self, batch: Batch) -> float:
        model, rows = self.model, self.model.scored
        triples = self._mean_gradients(model, batch, rows)
        self._apply_sums(model.entity_table, triples.entity_sums(rows.entities))
        if model.relation_table in model.specs:
            self._apply_sums(model.relation_table, triples.relation_sums(len(rows.relations)))
        return float(triples.losses.mean(dtype=np.float64))

    def _clipped(self, batch: Batch) -> float:
        """The whole gradient at once, since its norm decides how far any row moves."""
        model = self.model
        slopes = self._slopes(model, batch, model.scored)
        tables = {model.entity_table: slopes.entities, model.relation_table: slopes.relations}
        self.apply_together({name: tables[name] for name in model.specs})
        return slopes.loss

    def _mean_gradients(self, model: Model, batch: Batch, rows: ScoredRows) -> TripleGradients:
        triples = triple_gradients(model, self.objective, batch, rows)
        triples.weigh(np.full(len(triples.losses), 1 / len(triples.losses), dtype=np.float32))
        return triples

    def _apply_sums(self, name: str, sums: EntitySums | RelationSums) -> None:
        """A block may be applied at once, while it is in the cache: no later one reads its rows."""
        table = self.optimizer.tables[name]
        rows = np.arange(len(table), dtype=np.int32) if self.optimizer.dense else sums.touched()
        step = max(1, _BLOCK // table.shape[1])
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            self.apply(name, block, sums.rows(block))

    def _slopes(self, model: Model, batch: Batch, rows: ScoredRows) -> RowSlopes:
        triples = self._mean_gradients(model, batch, rows)
        return RowSlopes(
            float(triples.losses.mean(dtype=np.float64)),
            triples.entity_sums(rows.entities).rows(_numbers(rows.entities)),
            triples.relation_sums(len(rows.relations)).rows(_numbers(rows.relations)),
        )


def _named(batch: Batch) -> tuple[Ids, Batch]:
    """The entities that a batch names, ascending, and the batch with their places in that order for ids."""
    ids = [batch.anchors, batch.candidates.ravel(), *([] if batch.shared is None else [batch.shared])]
    entities = np.unique(np.concatenate(ids))
    entities = entities[entities >= 0]  # −1 is no candidate
    place = np.full(entities.max() + 2, -1, dtype=np.int32)  # the last one is that of −1
    place[entities] = np.arange(len(entities), dtype=np.int32)
    shared = None if batch.shared is None else place[batch.shared]
    return entities, batch._replace(
        anchors=place[batch.anchors], candidates=place[batch.candidates], shared=shared
    )


def scale_of_norm(gradients: Mapping[str, Floats], limit: float | None) -> float:
    """What brings the norm of all gradients together to a limit; 1 where it is below, or there is none."""
    if limit is None:
        return 1.0
    parts = (torch.from_numpy(gradient) for gradient in gradients.values())
    squares = sum(float(torch.linalg.vector_norm(part, dtype=torch.float64)) ** 2 for part in parts)
    return min(1.0, limit / (sqrt(squares) + 1e-6))  # as torch.nn.utils.clip_grad_norm_ has it


def _numbers(rows: Floats) -> Ids:
    return np.arange(len(rows), dtype=np.int32)
