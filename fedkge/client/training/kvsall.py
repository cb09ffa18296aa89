"""Training on questions (h, r, ?) against every entity: KvsAll, with binary cross-entropy.

Ruffinelli et al. (2020) name it so; ConvE (Dettmers et al., 2018) trains that way. No dense target is made,
and of the scores only a block of entities at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats, Ids, Offsets, ScoredRows
from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.kernels.losses import answer_slopes
from fedkge.client.kernels.scatter import add_rows, group, take_rows
from fedkge.client.models.model import Model
from fedkge.client.training.optimizers import State
from fedkge.client.training.steps import ParameterStep, RowSlopes
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.lookup import Lookup
from fedkge.errors import SettingError
from fedkge.experiment import TrainingSettings
from fedkge.strategy import Term

__all__ = ["KvsAllStep", "QuestionSampler", "Questions", "check_kvsall"]

_BLOCK = 512  # entities whose scores stay in the cache until they are slopes


class Questions(NamedTuple):
    """Questions of a batch, for tails first, then for heads, and all their answers."""

    anchors: Ids  # (b,)
    relations: Ids  # (b,)
    num_tails: int
    answers: Ids  # (a,) by entity
    owners: Ids  # (a,) the question that each answers


class QuestionSampler:
    """The distinct questions of a graph's train triples; `corrupt` says which end they ask for."""

    def __init__(self, graph: KnowledgeGraph, settings: TrainingSettings) -> None:
        head, relation, tail = graph.train.T
        lookups = []
        if settings.corrupt != "head":
            lookups.append(Lookup.build(head, relation, tail, graph.num_relations))
        self.num_tails = len(lookups[0].keys) if lookups else 0
        if settings.corrupt != "tail":
            lookups.append(Lookup.build(tail, relation, head, graph.num_relations))
        keys = np.concatenate([lookup.keys for lookup in lookups])
        self.anchors, self.relations = (
            part.astype(np.int32) for part in np.divmod(keys, graph.num_relations)
        )
        self.answers: Ids = np.concatenate([lookup.values for lookup in lookups])
        self.counts: Offsets = np.concatenate([np.diff(lookup.offsets) for lookup in lookups])
        self.starts: Offsets = np.cumsum(self.counts) - self.counts

    def __len__(self) -> int:
        return len(self.anchors)

    def batch(self, places: NDArray[np.int64]) -> Questions:
        """The questions at those places."""
        places = places[np.argsort(places >= self.num_tails, kind="stable")]
        counts = self.counts[places]
        owners = np.repeat(np.arange(len(places), dtype=np.int32), counts)
        before = np.cumsum(counts) - counts
        answers = self.answers[np.arange(len(owners)) + np.repeat(self.starts[places] - before, counts)]
        order = np.argsort(answers, kind="stable")
        num_tails = int((places < self.num_tails).sum())
        return Questions(
            self.anchors[places], self.relations[places], num_tails, answers[order], owners[order]
        )


class KvsAllStep(ParameterStep):
    """A step over all entities, as matrix products; for models whose query is compared by the dot product."""

    def __init__(
        self,
        model: Model,
        settings: TrainingSettings,
        optimizer: State | None = None,
        term: Term | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        check_kvsall(model, settings)
        super().__init__(model, settings, optimizer, term, rng)
        self.settings = settings

    def __call__(self, questions: Questions) -> float:
        """Move the parameters; return the mean loss before the move."""
        self.optimizer.begin_step()
        model = self.model
        if model.has_encoder:
            return self.through_encoder(lambda bound, rows: self._slopes(bound, questions, rows))
        slopes = self._slopes(model.bind(model.tensors, rng=self.rng), questions, model.scored)
        tables = {model.entity_table: slopes.entities, model.relation_table: slopes.relations}
        self.apply_together({name: tables[name] for name in model.specs})
        return slopes.loss

    def _slopes(self, model: Model, questions: Questions, rows: ScoredRows) -> RowSlopes:
        entities, relations = rows
        anchors, num_rows = questions.anchors, len(entities)
        h, r = take_rows(entities, anchors), take_rows(relations, questions.relations)
        queries, backward = model.queries(h, r, questions.num_tails)
        scale = model.scale.numpy()[questions.relations][:, None]
        loss, at_scaled, at_entities = self._over_entities(queries * scale, questions, entities)
        at_anchors, at_relations = backward(at_scaled * scale)
        every = np.arange(num_rows, dtype=np.int32)
        add_rows(at_anchors, group(anchors, num_rows), every, at_entities)
        sums = np.zeros_like(relations)
        pairs = group(questions.relations, len(relations))
        add_rows(at_relations, pairs, np.arange(len(relations), dtype=np.int32), sums)
        return RowSlopes(loss, at_entities, sums)

    def _over_entities(
        self, queries: Floats, questions: Questions, entities: Floats
    ) -> tuple[float, Floats, Floats]:
        """The mean loss, and its gradients at the queries (b, w) and at all entities (n, w)."""
        smoothing = self.settings.label_smoothing
        spread = (1.0 if self.settings.label_spread == "one" else smoothing) / len(entities)
        share = np.float32(1 / (len(queries) * len(entities)))
        weights = np.float32(1 - smoothing), np.float32(spread if smoothing else 0.0), share
        q, table = torch.from_numpy(queries), torch.from_numpy(entities)
        at_queries, at_entities = torch.zeros_like(q), torch.empty_like(table)
        bounds = np.searchsorted(questions.answers, np.arange(0, len(entities) + _BLOCK, _BLOCK))
        loss = 0.0
        for start, low, high in zip(range(0, len(entities), _BLOCK), bounds, bounds[1:], strict=False):
            block = table[start : start + _BLOCK]
            scores = torch.mm(q, block.T)  # (b, block), soon their slopes
            columns = questions.answers[low:high] - np.int32(start)
            loss += answer_slopes(*weights, columns, questions.owners[low:high], scores.numpy())
            at_queries.addmm_(scores, block)
            torch.mm(scores.T, q, out=at_entities[start : start + _BLOCK])
        return loss, at_queries.numpy(), at_entities.numpy()


def check_kvsall(model: Model, settings: TrainingSettings) -> None:
    """Refuse what cannot be trained against all entities by matrix products."""
    place, name = 'training.type = "KvsAll"', type(model).__name__
    remedy = 'take a model that compares by the dot product, such as DistMult, or set it to "negatives"'
    if not model.has_query:
        raise SettingError(
            f"{place}: {name} has a score but no query to multiply with all entities; {remedy}"
        )
    if model.comparison is not Comparison.DOT or model.projects:
        raise SettingError(f"{place}: the score of {name} is no product of a query and an entity; {remedy}")
    if settings.device != "cpu":
        raise SettingError(f'{place} runs on the processor for now; set training.device = "cpu"')
