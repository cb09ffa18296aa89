"""A batch in three passes: scores, the slope of the loss at each score, gradients of rows.

Before the last pass stands the gradient of every single triple (slopes at its candidates, rows for its anchor
and relation), so that whatever acts on single triples, such as clipping, acts before any sum.
Where nothing does, `fused` is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from fedkge.client.kernels.arrays import Doubles, Floats, Ids, ScoredRows
from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.kernels.compiled import compiled
from fedkge.client.kernels.corruption import Batch
from fedkge.client.kernels.losses import Loss, slopes
from fedkge.client.kernels.operators import Backward, Operator
from fedkge.client.kernels.pairwise import (
    candidate_gradients,
    compare_all,
    sum_candidate_gradients,
    sum_query_gradients,
)
from fedkge.client.kernels.scatter import (
    Pairs,
    add_rows,
    crowded_rows,
    group,
    in_order,
    named_rows,
    sum_rows,
    take_rows,
)

__all__ = [
    "MOST_ROUNDED",
    "Decoder",
    "EntitySums",
    "Objective",
    "RelationSums",
    "Target",
    "TripleGradients",
    "judge",
    "triple_gradients",
]

MOST_ROUNDED = 16  # parts of a careful sum that are added in single precision
_CHUNK = 2**22  # floats of projected candidates held at once


class Decoder(Protocol):
    """What kernels ask of a model that scores by a query and a comparison; see `Model`."""

    scale: Tensor

    @property
    def projects(self) -> bool: ...
    @property
    def operator(self) -> Operator | None: ...
    @property
    def comparison(self) -> Comparison: ...
    @property
    def unit(self) -> float: ...
    @property
    def scored(self) -> ScoredRows: ...
    def queries(self, h: Floats, r: Floats, num_tails: int, /) -> tuple[Floats, Backward]: ...
    def project(self, rows: Tensor, r: Tensor, /) -> Tensor: ...


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
    def of(cls, decoder: Decoder, objective: Objective) -> Target:
        return cls(int(objective.loss), objective.margin, objective.temperature, decoder.scale.numpy())


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
        """Multiply the gradient of triple b by weights[b]."""
        _scale_rows(weights, self.coefficients, self.anchor_rows, self.relation_rows)
        if self.candidate_rows is not None:
            self.candidate_rows *= np.repeat(weights, self.coefficients.shape[1])[:, None]

    @property
    def multiplied(self) -> bool:
        """Whether shared negatives turn the passes into matrix products."""
        return self.batch.shared is not None and self.comparison == Comparison.DOT

    def entity_sums(self, table: Floats, careful: bool = False) -> EntitySums:
        return EntitySums(self, table, careful)

    def relation_sums(self, num_relations: int, careful: bool = False) -> RelationSums:
        return RelationSums(self.relation_rows, self.batch.relations, num_relations, careful)


class EntitySums:
    """Gradients of entity rows, for as few rows at a time as the caller likes.

    Careful ones add more than a few parts in double precision: the error does not grow with the batch.
    """

    def __init__(self, triples: TripleGradients, table: Floats, careful: bool = False) -> None:
        self.triples = triples
        self.table = table
        self.careful = careful
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
        if self.careful:
            crowded = crowded_rows(self.pairs, self.anchors, rows, MOST_ROUNDED)
            if len(crowded):
                out[crowded] = self._summed(rows[crowded])
        return out

    def _summed(self, rows: Ids) -> Doubles:
        out = np.zeros((len(rows), self.table.shape[1]))
        triples = self.triples
        if self.given is None:
            kind, queries = triples.comparison, triples.queries
            sum_candidate_gradients(kind, queries, self.table, self.ordered, self.pairs, rows, out)
        else:
            sum_rows(self.given, self.pairs, rows, out)
        sum_rows(triples.anchor_rows, self.anchors, rows, out)
        return out


class RelationSums:
    """Gradients of relation rows; careful ones as those of entities."""

    def __init__(self, source: Floats, relations: Ids, num_relations: int, careful: bool = False) -> None:
        self.source = source
        self.careful = careful
        self.pairs = group(relations, num_relations)

    def touched(self) -> Ids:
        return named_rows(self.pairs, self.pairs)

    def rows(self, rows: Ids) -> Floats:
        out = np.zeros((len(rows), self.source.shape[1]), dtype=np.float32)
        add_rows(self.source, self.pairs, rows, out)
        if self.careful:
            crowded = crowded_rows(self.pairs, self.pairs, rows, 2 * MOST_ROUNDED)
            sums = np.zeros((len(crowded), out.shape[1]))
            sum_rows(self.source, self.pairs, rows[crowded], sums)
            out[crowded] = sums
        return out


def triple_gradients(
    decoder: Decoder, objective: Objective, batch: Batch, rows: ScoredRows | None = None
) -> TripleGradients:
    """Score a batch and find the gradient of each triple at the rows that are scored.

    `rows` are the model's own unless given.
    """
    entities, relations = rows = rows or decoder.scored
    h, r = take_rows(entities, batch.anchors), take_rows(relations, batch.relations)
    queries, back = decoder.queries(h, r, batch.num_tails)
    kind, target = int(decoder.comparison), Target.of(decoder, objective)
    pairs = group(batch.candidates, len(entities))
    candidate_rows = mapped_relations = None
    if decoder.projects:
        scored, candidate_rows, mapped_relations = _projected(decoder, target, batch, queries, rows)
    elif batch.shared is not None and kind == Comparison.DOT:
        scored = _score_multiplied(target, queries, entities, batch)
    else:
        scored = _SCORE[kind](target, entities, batch.relations, batch.candidates, queries, pairs)
    losses, compared, coefficients, at_query = scored
    anchor_rows, relation_rows = back(at_query)
    if mapped_relations is not None:
        relation_rows = relation_rows + mapped_relations
    return TripleGradients(
        batch,
        kind,
        losses,
        queries,
        compared,
        coefficients,
        anchor_rows,
        relation_rows,
        candidate_rows,
        pairs,
    )


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


def _score(kind: int) -> Callable[..., Scored]:
    @compiled
    def score_of_kind(
        target: Target, table: Floats, relations: Ids, candidates: Ids, queries: Floats, pairs: Pairs
    ) -> Scored:
        compared, coefficients, losses = judge(kind, target, table, relations, candidates, queries, pairs)
        at_queries = np.empty_like(queries)
        sum_query_gradients(kind, queries, table, in_order(coefficients, pairs), pairs, at_queries)
        return losses, compared, coefficients, at_queries

    return score_of_kind


_SCORE = [_score(int(kind)) for kind in Comparison]  # a model compiles its own and no other


def _score_multiplied(target: Target, queries: Floats, table: Floats, batch: Batch) -> Scored:
    """Dot products with negatives that all triples share are one matrix product, forwards and backwards."""
    positives, rows = table[batch.candidates[:, 0]], table[batch.shared]  # (b, w), (n, w)
    compared = np.empty(batch.candidates.shape, dtype=np.float32)
    compared[:, 0] = (queries * positives).sum(axis=1)
    compared[:, 1:] = _product(queries, rows.T)
    compared[batch.candidates < 0] = np.inf
    coefficients, losses = np.empty_like(compared), np.empty(len(compared), dtype=np.float32)
    numbers = np.float32(target.margin), np.float32(target.temperature)
    scale = target.scale[batch.relations]
    slopes(int(Comparison.DOT), target.loss, *numbers, compared, scale, coefficients, losses)
    at_query = coefficients[:, :1] * positives + _product(coefficients[:, 1:], rows)
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
    decoder: Decoder, target: Target, batch: Batch, queries: Floats, scored: ScoredRows
) -> tuple[Scored, Floats, Floats]:
    """Chunk by chunk: map the candidates, score them as a table of their own, map the gradients back."""
    kind = int(decoder.comparison)
    b, n = batch.candidates.shape
    losses = np.empty(b, dtype=np.float32)
    compared = np.empty((b, n), dtype=np.float32)
    coefficients = np.empty_like(compared)
    at_query = np.empty_like(queries)
    candidate_rows = np.empty((b * n, scored.entities.shape[1]), dtype=np.float32)
    relation_rows = np.empty((b, scored.relations.shape[1]), dtype=np.float32)
    step = max(1, _CHUNK // (n * queries.shape[1]))
    for start in range(0, b, step):
        part = slice(start, min(start + step, b))
        ids, relations = batch.candidates[part], batch.relations[part]
        rows = torch.from_numpy(scored.entities[ids]).requires_grad_()  # (c, n, w)
        r = torch.from_numpy(scored.relations[relations]).requires_grad_()
        mapped = decoder.project(rows, r)  # (c, n, query width)
        table: Floats = mapped.detach().numpy().reshape(ids.size, -1)
        every = np.arange(ids.size, dtype=np.int32)
        local = np.where(ids < 0, np.int32(-1), every.reshape(ids.shape))
        pairs = group(local, ids.size)
        losses[part], compared[part], coefficients[part], at_query[part] = _SCORE[kind](
            target, table, relations, local, queries[part], pairs
        )
        at_mapped = np.empty_like(table)
        ordered = in_order(coefficients[part], pairs)
        candidate_gradients(kind, queries[part], table, ordered, pairs, every, at_mapped)
        slope = torch.from_numpy(at_mapped).view_as(mapped)
        at_rows, at_r = torch.autograd.grad(mapped, (rows, r), slope)
        candidate_rows[part.start * n : part.stop * n] = at_rows.numpy().reshape(ids.size, -1)
        relation_rows[part] = at_r.numpy()
    return (losses, compared, coefficients, at_query), candidate_rows, relation_rows
