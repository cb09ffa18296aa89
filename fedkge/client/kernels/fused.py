"""A training step in one compiled call, or in two around a query that torch makes.

Between compiled calls the interpreter's lock is held: clients in other threads would wait for it. Gradients
are applied a few rows at a time, while they are in the cache. No row is read after it was moved: a row that
is no anchor is read with its own pairs only, and those that are anchors come last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedkge.client.kernels.arrays import Doubles, Floats, Ids
from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.kernels.compiled import compiled
from fedkge.client.kernels.corruption import Batch
from fedkge.client.kernels.descent import Moving, Rule, fetch_carrying, move, move_carrying
from fedkge.client.kernels.gradients import MOST_ROUNDED, Decoder, Objective, Target, judge
from fedkge.client.kernels.lengths import clipping_weights, norms_of_triples
from fedkge.client.kernels.operators import backward, forward
from fedkge.client.kernels.pairwise import (
    add_both_gradients,
    sum_candidate_gradients,
    sum_query_gradients,
    write_candidate_gradients,
)
from fedkge.client.kernels.scatter import (
    Pairs,
    add_rows,
    crowded_rows,
    divided_rows,
    group,
    in_order,
    named_rows,
    sum_rows,
    take_rows,
)

__all__ = ["ROWS", "Carried", "Clipping", "clipped_step", "fused_step"]

ROWS = 32  # whose gradients are summed before they are applied


class Rest(NamedTuple):
    """What is left to do once the queries' gradients are known."""

    at_queries: Floats  # (b, w)
    anchors: Pairs
    rows: Ids  # (a,) the rows that are anchors
    values: Floats  # (a, w) their gradients as candidates


class Carried(NamedTuple):
    """A table, and a second one with what float32 has no room for."""

    table: Floats
    carry: Floats


class Clipping(NamedTuple):
    """How far a triple may move rows: by the bound at most, and weighed by a share."""

    bound: float
    share: float
    least: float  # no norm is taken to be below this share of what a triple's parts are apart


def fused_step(
    decoder: Decoder,
    objective: Objective,
    rule: Rule,
    dense: bool,
    entity: Moving,
    relation: Moving,
    batch: Batch,
) -> float:
    """Move both tables by the gradient of a batch's mean loss, which is returned.

    `dense` moves rows without a gradient too.
    """
    kind, target = int(decoder.comparison), Target.of(decoder, objective)
    ids = (batch.anchors, batch.relations, batch.candidates)
    if decoder.operator is not None:
        operation = (int(decoder.operator), decoder.unit, batch.num_tails)
        return _WHOLE[kind](target, rule, dense, entity, relation, *ids, *operation)
    h, r = take_rows(entity.table, batch.anchors), take_rows(relation.table, batch.relations)
    queries, back = decoder.queries(h, r, batch.num_tails)
    loss, rest = _FIRST[kind](target, rule, dense, entity, *ids, queries)
    _finish(rule, dense, entity, relation, batch.relations, rest, *back(rest.at_queries))
    return loss


def clipped_step(
    decoder: Decoder,
    objective: Objective,
    clipping: Clipping,
    rate: float,
    entity: Carried,
    relation: Carried,
    batch: Batch,
) -> float:
    """Move carried rows by the sum of a batch's clipped gradients; return the mean loss of its triples.

    A part of what one triple adds is rounded like any other one's, so that a sum tells of it by no more than
    `rounding_share` says. A triple whose gradient is not finite adds nothing.
    """
    assert decoder.operator is not None
    kind, target = int(decoder.comparison), Target.of(decoder, objective)
    operation = (int(decoder.operator), decoder.unit, batch.num_tails)
    ids = (batch.anchors, batch.relations, batch.candidates)
    return _CLIPPED[kind](target, clipping, np.float32(rate), entity, relation, *ids, *operation)


@compiled
def _begin(
    kind: int,
    target: Target,
    rule: Rule,
    dense: bool,
    entity: Moving,
    anchors: Ids,
    relations: Ids,
    candidates: Ids,
    queries: Floats,
) -> tuple[float, Rest]:
    """Scores, slopes, gradients of all pairs; the rows that are no anchor are moved."""
    b, width = queries.shape
    pairs, by_anchor = group(candidates, len(entity.table)), group(anchors, len(entity.table))
    _, coefficients, losses = judge(kind, target, entity.table, relations, candidates, queries, pairs)
    ordered = in_order(coefficients, pairs)
    share = np.float32(1 / b)
    for p in range(ordered.shape[0]):
        ordered[p] *= share
    others, rows = divided_rows(pairs, by_anchor, dense)
    at_queries = np.zeros((b, width), dtype=np.float32)
    room = np.empty((ROWS, width), dtype=np.float32)
    for start in range(0, len(others), ROWS):
        block = others[start : start + ROWS]
        add_both_gradients(kind, queries, entity.table, ordered, pairs, block, at_queries, room)
        move(rule, entity, block, room)
    values = np.empty((len(rows), width), dtype=np.float32)
    add_both_gradients(kind, queries, entity.table, ordered, pairs, rows, at_queries, values)
    return _mean(losses), Rest(at_queries, by_anchor, rows, values)


@compiled
def _mean(losses: Floats) -> float:
    total = 0.0
    for i in range(losses.shape[0]):
        total += losses[i]
    return float(total / losses.shape[0])


@compiled
def _finish(
    rule: Rule,
    dense: bool,
    entity: Moving,
    relation: Moving,
    relations: Ids,
    rest: Rest,
    at_anchors: Floats,
    at_relations: Floats,
) -> None:
    """Move the anchors, which have a gradient as such too, and the relations."""
    add_rows(at_anchors, rest.anchors, rest.rows, rest.values)
    move(rule, entity, rest.rows, rest.values)
    by_relation = group(relations, len(relation.table))
    rows = np.arange(len(relation.table), dtype=np.int32)
    if not dense:
        rows = named_rows(by_relation, by_relation)
    values = np.zeros((len(rows), relation.table.shape[1]), dtype=np.float32)
    add_rows(at_relations, by_relation, rows, values)
    move(rule, relation, rows, values)


@compiled
def _clip(clipping: Clipping, norms: Floats, queries: Floats, *parts: Floats) -> None:
    """Weigh the parts of each triple, rows of all these arrays; broken ones are silenced, queries too."""
    weights = np.empty_like(norms)
    clipping_weights(norms, clipping.bound, clipping.share, weights)
    for b in range(norms.shape[0]):
        if not abs(norms[b]) < np.inf:
            queries[b] = 0  # an infinite one times a coefficient of 0 is not a number
    for rows in parts:
        for b in range(rows.shape[0]):
            broken = not abs(norms[b]) < np.inf
            for k in range(rows.shape[1]):
                rows[b, k] = np.float32(0) if broken else rows[b, k] * weights[b]


@compiled
def _move_entities(
    kind: int,
    rate: np.float32,
    entity: Carried,
    queries: Floats,
    coefficients: Floats,
    pairs: Pairs,
    at_anchors: Floats,
    by_anchor: Pairs,
) -> None:
    """Sum the gradients of the rows that a batch names, a few at a time, and move them at once."""
    table, ordered = entity.table, in_order(coefficients, pairs)
    rows = named_rows(pairs, by_anchor)
    room = np.empty((ROWS, table.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), ROWS):
        block = rows[start : start + ROWS]
        for row in rows[start + ROWS : start + 2 * ROWS]:
            fetch_carrying(table, entity.carry, row)
        write_candidate_gradients(kind, queries, table, ordered, pairs, block, room)
        add_rows(at_anchors, by_anchor, block, room)
        crowded = crowded_rows(pairs, by_anchor, block, MOST_ROUNDED)
        if len(crowded):
            sums = np.zeros((len(crowded), table.shape[1]))
            sum_candidate_gradients(kind, queries, table, ordered, pairs, block[crowded], sums)
            sum_rows(at_anchors, by_anchor, block[crowded], sums)
            _replace(room, crowded, sums)
        move_carrying(rate, table, entity.carry, block, room)


@compiled
def _move_relations(rate: np.float32, relation: Carried, relations: Ids, at_relations: Floats) -> None:
    """The same for the rows of relations."""
    pairs = group(relations, len(relation.table))
    rows = named_rows(pairs, pairs)
    values = np.zeros((len(rows), at_relations.shape[1]), dtype=np.float32)
    add_rows(at_relations, pairs, rows, values)
    crowded = crowded_rows(pairs, pairs, rows, 2 * MOST_ROUNDED)
    if len(crowded):
        sums = np.zeros((len(crowded), at_relations.shape[1]))
        sum_rows(at_relations, pairs, rows[crowded], sums)
        _replace(values, crowded, sums)
    move_carrying(rate, relation.table, relation.carry, rows, values)


@compiled
def _replace(rows: Floats, places: Ids, sums: Doubles) -> None:
    for i in range(places.shape[0]):
        for k in range(sums.shape[1]):
            rows[places[i], k] = sums[i, k]


# A kernel per comparison, so that a model compiles its own and no other.


def _clipped(kind: int) -> Callable[..., float]:
    @compiled
    def clipped_of_kind(
        target: Target,
        clipping: Clipping,
        rate: np.float32,
        entity: Carried,
        relation: Carried,
        anchors: Ids,
        relations: Ids,
        candidates: Ids,
        operator: int,
        unit: float,
        num_tails: int,
    ) -> float:
        table = entity.table
        pairs, by_anchor = group(candidates, len(table)), group(anchors, len(table))
        h, r = take_rows(table, anchors), take_rows(relation.table, relations)
        factors, queries = forward(operator, unit, h, r, num_tails)
        compared, slopes, losses = judge(kind, target, table, relations, candidates, queries, pairs)
        at_queries = np.empty_like(queries)
        sum_query_gradients(kind, queries, table, in_order(slopes, pairs), pairs, at_queries)
        at_h, at_r = backward(operator, unit, h, r, factors, num_tails, at_queries)
        norms = np.empty(len(anchors), dtype=np.float32)
        least = clipping.least
        norms_of_triples(
            kind, queries, table, anchors, candidates, compared, slopes, at_h, at_r, least, norms
        )
        _clip(clipping, norms, queries, slopes, at_h, at_r)
        _move_entities(kind, rate, entity, queries, slopes, pairs, at_h, by_anchor)
        _move_relations(rate, relation, relations, at_r)
        return _mean(losses)

    return clipped_of_kind


def _first(kind: int) -> Callable[..., tuple[float, Rest]]:
    @compiled
    def first_of_kind(
        target: Target,
        rule: Rule,
        dense: bool,
        entity: Moving,
        anchors: Ids,
        relations: Ids,
        candidates: Ids,
        queries: Floats,
    ) -> tuple[float, Rest]:
        return _begin(kind, target, rule, dense, entity, anchors, relations, candidates, queries)

    return first_of_kind


def _whole(kind: int) -> Callable[..., float]:
    @compiled
    def whole_of_kind(
        target: Target,
        rule: Rule,
        dense: bool,
        entity: Moving,
        relation: Moving,
        anchors: Ids,
        relations: Ids,
        candidates: Ids,
        operator: int,
        unit: float,
        num_tails: int,
    ) -> float:
        h, r = take_rows(entity.table, anchors), take_rows(relation.table, relations)
        factors, queries = forward(operator, unit, h, r, num_tails)
        loss, rest = _begin(kind, target, rule, dense, entity, anchors, relations, candidates, queries)
        at_h, at_r = backward(operator, unit, h, r, factors, num_tails, rest.at_queries)
        _finish(rule, dense, entity, relation, relations, rest, at_h, at_r)
        return loss

    return whole_of_kind


_FIRST = [_first(int(kind)) for kind in Comparison]
_CLIPPED = [_clipped(int(kind)) for kind in Comparison]
_WHOLE = [_whole(int(kind)) for kind in Comparison]
