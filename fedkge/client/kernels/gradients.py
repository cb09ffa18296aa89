"""A batch in three passes: scores, the slope of the loss at each score, gradients of rows.

Before the last pass stands what every triple asks for (slopes at its candidates, gradients at its anchor and
relation), so that whatever acts on single triples, such as clipping, acts before any sum. Where nothing does,
`fused` is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.kernels.compiled import compiled
from fedkge.client.kernels.corruption import Batch
from fedkge.client.kernels.losses import Loss, slopes
from fedkge.client.kernels.operators import ask, pull
from fedkge.client.kernels.pairwise import (
    candidate_gradients,
    compare_all,
    compare_pairs,
    query_gradients,
    sum_query_gradients,
)
from fedkge.client.kernels.scatter import Pairs, add_rows, group, in_order, named_rows, take_rows
from fedkge.client.models.model import Model

__all__ = [
    "EntitySums",
    "Objective",
    "RelationSums",
    "Target",
    "TripleGradients",
    "judge",
    "triple_gradients",
]

_CHUNK = 2**22  # floats of projected candidates held at once


@dataclass(frozen=True)
class Objective:
    """The loss and its two numbers."""

    loss: Loss
    margin: float
    temperature: float


class Target(NamedTuple):
    """An objective for kernels, with the factor on every relation's scores."""

    loss: int
    margin: float
    temperature: float
    scale: Floats  # (relations,)

    @classmethod
    def of(cls, model: Model, objective: Objective) -> Target:
        return cls(int(objective.loss), objective.margin, objective.temperature, model.scale.numpy())


@dataclass
class TripleGradients:
    """The gradients of single triples: coefficients of candidates, and rows for anchor and relation.

    The candidates' rows are implied: coefficient · ∂comparison(query, row) / ∂row. Where the relation maps
    candidates first, they are given in full.
    """

    batch: Batch
    comparison: int
    losses: Floats  # (b,)
    queries: Floats  # (b, w)
    compared: Floats  # (b, 1 + n) queries with candidates; infinite where there is no candidate
    coefficients: Floats  # (b, 1 + n)
    anchor_rows: Floats  # (b, entity width)
    relation_rows: Floats  # (b, relation width)
    candidate_rows: Floats | None  # (b · (1 + n), entity width) where the model projects
    pairs: Pairs  # the candidates by entity

    def weigh(self, weights: Floats) -> None:
        """Multiply everything that triple b asks for by weights[b]."""
        _scale_rows(weights, self.coefficients, self.anchor_rows, self.relation_rows)
        if self.candidate_rows is not None:
            self.candidate_rows *= np.repeat(weights, self.coefficients.shape[1])[:, None]

    @property
    def multiplied(self) -> bool:
        """Whether shared negatives turn the passes into matrix products."""
        return self.batch.shared is not None and self.comparison == Comparison.DOT

    def entity_sums(self, table: Floats) -> EntitySums:
        return EntitySums(self, table)

    def relation_sums(self, num_relations: int) -> RelationSums:
        return RelationSums(self.relation_rows, self.batch.relations, num_relations)


class EntitySums:
    """Gradients of entity rows, for as few rows at a time as the caller likes."""

    def __init__(self, triples: TripleGradients, table: Floats) -> None:
        self.triples = triples
        self.table = table
        self.anchors = group(triples.batch.anchors, len(table))
        self.pairs, self.given = triples.pairs, triples.candidate_rows
        if triples.multiplied:
            self.pairs, self.given = _multiplied_rows(triples, len(table))
        elif self.given is None:
            self.ordered = in_order(triples.coefficients, self.pairs)

    def touched(self) -> Ids:
        """The rows that have a gradient."""
        return named_rows(self.pairs, self.anchors)

    def rows(self, rows: Ids) -> Floats:
        out = np.empty((len(rows), self.table.shape[1]), dtype=np.float32)
        triples = self.triples
        if self.given is None:
            kind, queries = triples.comparison, triples.queries
            candidate_gradients(kind, queries, self.table, self.ordered, self.pairs, rows, out)
        else:
            out[:] = 0
            add_rows(self.given, self.pairs, rows, out)
        add_rows(triples.anchor_rows, self.anchors, rows, out)
        return out


class RelationSums:
    """Gradients of relation rows."""

    def __init__(self, source: Floats, relations: Ids, num_relations: int) -> None:
        self.source = source
        self.pairs = group(relations, num_relations)

    def touched(self) -> Ids:
        return named_rows(self.pairs, self.pairs)

    def rows(self, rows: Ids) -> Floats:
        out = np.zeros((len(rows), self.source.shape[1]), dtype=np.float32)
        add_rows(self.source, self.pairs, rows, out)
        return out


def triple_gradients(model: Model, objective: Objective, batch: Batch) -> TripleGradients:
    """Score a batch and find what each triple asks for."""
    if model.turn is not None and batch.shared is None:
        return _turned(model, objective, batch)
    tables = model.tables
    h, r = take_rows(tables["entity"], batch.anchors), take_rows(tables["relation"], batch.relations)
    queries, back = model.queries(h, r, batch.num_tails)
    scale: Floats = model.scale.numpy()[batch.relations]
    pairs = group(batch.candidates, len(tables["entity"]))
    if model.projects:
        scored, candidate_rows, relation_rows = _projected(model, objective, batch, queries, scale)
    else:
        if batch.shared is not None and model.comparison is Comparison.DOT:
            scored = _score_multiplied(objective, queries, tables["entity"], batch, scale)
        else:
            scored = _score(model, objective, queries, tables["entity"], batch.candidates, scale, pairs)
        candidate_rows, relation_rows = None, None
    losses, compared, coefficients, at_query = scored
    anchor_rows, at_r = back(at_query)
    relation_rows = at_r if relation_rows is None else at_r + relation_rows
    return TripleGradients(
        batch,
        int(model.comparison),
        losses,
        queries,
        compared,
        coefficients,
        anchor_rows,
        relation_rows,
        candidate_rows,
        pairs,
    )


def _turned(model: Model, objective: Objective, batch: Batch) -> TripleGradients:
    """The same in one compiled call, where kernels know what the model asks."""
    assert model.turn is not None
    kind, target = int(model.comparison), Target.of(model, objective)
    ids, turning = batch[:3], (int(model.turn), model.unit, batch.num_tails)
    found = _TURNED[kind](target, *model.tables.values(), *ids, *turning)
    pairs, losses, queries, compared, coefficients, at_h, at_r = found
    return TripleGradients(batch, kind, losses, queries, compared, coefficients, at_h, at_r, None, pairs)


def _turned_of_kind(kind: int) -> Callable[..., tuple[Pairs, Floats, Floats, Floats, Floats, Floats, Floats]]:
    @compiled
    def turned(
        target: Target,
        entity: Floats,
        relation: Floats,
        anchors: Ids,
        relations: Ids,
        candidates: Ids,
        turn: int,
        unit: float,
        num_tails: int,
    ) -> tuple[Pairs, Floats, Floats, Floats, Floats, Floats, Floats]:
        h, r = take_rows(entity, anchors), take_rows(relation, relations)
        factors, queries = ask(turn, unit, h, r, num_tails)
        pairs = group(candidates, len(entity))
        compared, coefficients, losses = judge(kind, target, entity, relations, candidates, queries, pairs)
        at_queries = np.empty_like(queries)
        sum_query_gradients(kind, queries, entity, in_order(coefficients, pairs), pairs, at_queries)
        at_h, at_r = pull(turn, unit, h, r, factors, num_tails, at_queries)
        return pairs, losses, queries, compared, coefficients, at_h, at_r

    return turned


@compiled
def _scale_rows(weights: Floats, *arrays: Floats) -> None:
    for rows in arrays:
        for b in range(rows.shape[0]):
            for k in range(rows.shape[1]):
                rows[b, k] *= weights[b]


@compiled
def judge(
    kind: int, target: Target, table: Floats, relations: Ids, candidates: Ids, queries: Floats, pairs: Pairs
) -> tuple[Floats, Floats, Floats]:
    """Comparisons (b, 1 + n), infinite where there is no candidate; the loss's slopes there; losses (b,)."""
    compared = np.empty(candidates.shape, dtype=np.float32)
    if len(pairs.places) < candidates.size:
        compared[:] = np.inf
    compare_all(kind, queries, table, pairs, compared.reshape(compared.size))
    coefficients, losses = np.empty_like(compared), np.empty(len(queries), dtype=np.float32)
    numbers = np.float32(target.margin), np.float32(target.temperature)
    slopes(kind, target.loss, *numbers, compared, target.scale[relations], coefficients, losses)
    return compared, coefficients, losses


# losses (b,), comparisons (b, 1 + n), coefficients (b, 1 + n), gradients at the queries (b, w)
Scored = tuple[Floats, Floats, Floats, Floats]


def _score(
    model: Model,
    objective: Objective,
    queries: Floats,
    table: Floats,
    candidates: Ids,
    scale: Floats,
    pairs: Pairs,
) -> Scored:
    kind = int(model.comparison)
    compared = np.full(candidates.shape, np.inf, dtype=np.float32)  # infinity: no candidate
    compare_pairs(kind, queries, table, pairs, compared)
    losses, coefficients = _judged(kind, objective, compared, scale)
    at_query = np.empty_like(queries)
    query_gradients(kind, queries, table, in_order(coefficients, pairs), pairs, at_query)
    return losses, compared, coefficients, at_query


def _judged(kind: int, objective: Objective, compared: Floats, scale: Floats) -> tuple[Floats, Floats]:
    """The losses (b,) of comparisons (b, 1 + n), and their slopes at each."""
    coefficients = np.empty_like(compared)
    losses = np.empty(len(compared), dtype=np.float32)
    numbers = np.float32(objective.margin), np.float32(objective.temperature)
    slopes(kind, int(objective.loss), *numbers, compared, scale, coefficients, losses)
    return losses, coefficients


def _score_multiplied(
    objective: Objective, queries: Floats, table: Floats, batch: Batch, scale: Floats
) -> Scored:
    """Dot products with negatives that all triples share are one matrix product, forwards and backwards."""
    targets, rows = table[batch.candidates[:, 0]], table[batch.shared]  # (b, w), (n, w)
    compared = np.empty(batch.candidates.shape, dtype=np.float32)
    compared[:, 0] = (queries * targets).sum(axis=1)
    compared[:, 1:] = _product(queries, rows.T)
    compared[batch.candidates < 0] = np.inf
    losses, coefficients = _judged(int(Comparison.DOT), objective, compared, scale)
    at_query = coefficients[:, :1] * targets + _product(coefficients[:, 1:], rows)
    return losses, compared, coefficients, at_query


def _multiplied_rows(triples: TripleGradients, num_rows: int) -> tuple[Pairs, Floats]:
    """A gradient for each target and each shared negative, and the rows that they belong to."""
    batch, coefficients = triples.batch, triples.coefficients
    assert batch.shared is not None
    at_targets = coefficients[:, :1] * triples.queries
    at_negatives = _product(coefficients[:, 1:].T, triples.queries)
    ids = np.concatenate([batch.candidates[:, 0], batch.shared])
    return group(ids, num_rows), np.concatenate([at_targets, at_negatives])


def _product(a: Floats, b: Floats) -> Floats:
    """Through torch, which keeps to one thread."""
    product: Floats = torch.mm(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    return product


def _projected(
    model: Model, objective: Objective, batch: Batch, queries: Floats, scale: Floats
) -> tuple[Scored, Floats, Floats]:
    """Chunk by chunk: map the candidates, score them as a table of their own, map the gradients back."""
    tables = model.tables
    b, n = batch.candidates.shape
    losses = np.empty(b, dtype=np.float32)
    compared = np.empty((b, n), dtype=np.float32)
    coefficients = np.empty_like(compared)
    at_query = np.empty_like(queries)
    candidate_rows = np.empty((b * n, tables["entity"].shape[1]), dtype=np.float32)
    relation_rows = np.empty((b, tables["relation"].shape[1]), dtype=np.float32)
    step = max(1, _CHUNK // (n * queries.shape[1]))
    for start in range(0, b, step):
        part = slice(start, min(start + step, b))
        ids = batch.candidates[part]
        rows = torch.from_numpy(tables["entity"][ids]).requires_grad_()  # (c, n, w)
        r = torch.from_numpy(tables["relation"][batch.relations[part]]).requires_grad_()
        mapped = model.project(rows, r)  # (c, n, query width)
        table: Floats = mapped.detach().numpy().reshape(ids.size, -1)
        local = np.where(ids < 0, -1, np.arange(ids.size, dtype=np.int32).reshape(ids.shape))
        pairs = group(local.astype(np.int32), ids.size)
        scored = _score(model, objective, queries[part], table, local, scale[part], pairs)
        losses[part], compared[part], coefficients[part], at_query[part] = scored
        at_mapped = np.empty_like(table)
        ordered = in_order(scored[2], pairs)
        every = np.arange(ids.size, dtype=np.int32)
        candidate_gradients(int(model.comparison), queries[part], table, ordered, pairs, every, at_mapped)
        slope = torch.from_numpy(at_mapped).view_as(mapped)
        at_rows, at_r = torch.autograd.grad(mapped, (rows, r), slope)
        candidate_rows[part.start * n : part.stop * n] = at_rows.numpy().reshape(ids.size, -1)
        relation_rows[part] = at_r.numpy()
    return (losses, compared, coefficients, at_query), candidate_rows, relation_rows


_TURNED = [_turned_of_kind(int(kind)) for kind in Comparison]
