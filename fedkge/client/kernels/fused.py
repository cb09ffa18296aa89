"""A training step in one compiled call, or in two around a query that torch makes.

Between compiled calls the interpreter's lock is held: clients in other threads would wait for it. Gradients
are applied a few rows at a time, while they are in the cache. No row is read after it was moved: a row that
is no anchor is read with its own pairs only, and those that are anchors come last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.kernels.compiled import compiled
from fedkge.client.kernels.corruption import Batch
from fedkge.client.kernels.descent import Moving, Rule, move
from fedkge.client.kernels.gradients import Decoder, Objective, Target, judge
from fedkge.client.kernels.operators import backward, forward
from fedkge.client.kernels.pairwise import add_both_gradients
from fedkge.client.kernels.scatter import (
    Pairs,
    add_rows,
    divided_rows,
    group,
    in_order,
    named_rows,
    take_rows,
)

__all__ = ["ROWS", "fused_step"]

ROWS = 32  # whose gradients are summed before they are applied


class Rest(NamedTuple):
    """What is left to do once the queries' gradients are known."""

    at_queries: Floats  # (b, w)
    anchors: Pairs
    rows: Ids  # (a,) the rows that are anchors
    values: Floats  # (a, w) their gradients as candidates


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
    total = 0.0
    for i in range(b):
        total += losses[i]
    return total / b, Rest(at_queries, by_anchor, rows, values)


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


# A kernel per comparison, so that a model compiles its own and no other.


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
_WHOLE = [_whole(int(kind)) for kind in Comparison]
