"""Where the right answer stands among all that an attack could have given."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.reconstruction.algorithm import (
    ImpossibleError,
    global_rows,
    identify,
    local_rows,
    pool_of,
    relation_model,
)
from fedkge.attacks.reconstruction.alignment import ranks
from fedkge.attacks.reconstruction.scoring import positions, right_names
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import UNKNOWN, Rows, View

__all__ = ["ranks_of"]

Ranks = NDArray[np.int64]


def ranks_of(view: View, truth: Truth, target: int) -> dict[str, Ranks]:
    """Ranks of the right entity of each unnamed row, and of the right relation of each true pair."""
    ranks_by_kind: dict[str, Ranks] = {}
    try:
        rows = local_rows(view, target) if view.last.gee is None else global_rows(view)
        if rows.masked or (rows.names == UNKNOWN).any():
            ranks_by_kind["entity"] = _entity_ranks(view, truth, rows, target)
        ranks_by_kind["relation"] = _relation_ranks(view, truth, rows, target)
    except ImpossibleError:
        pass  # what cannot be attacked has no ranks
    return ranks_by_kind


def _entity_ranks(view: View, truth: Truth, rows: Rows, target: int) -> Ranks:
    pool = pool_of(view)
    pool_row = pool.rows_of(right_names(view, truth, rows, target))
    overlap = np.flatnonzero(pool_row != UNKNOWN)
    return ranks(rows.values[overlap], pool.values, pool_row[overlap])


def _relation_ranks(view: View, truth: Truth, rows: Rows, target: int) -> Ranks:
    model, names = relation_model(view)
    row_of = positions(view, truth, identify(rows, view), target)
    index_of = np.full(len(truth.relation_ids) + 1, UNKNOWN, dtype=np.int64)
    index_of[truth.number_relations([view.relations[name] for name in names])] = np.arange(len(names))
    head, relation, tail = truth.clients[target].train.T
    heads, tails, right = row_of[head], row_of[tail], index_of[truth.relations(target)[relation]]
    usable = (heads != UNKNOWN) & (tails != UNKNOWN) & (right != UNKNOWN)
    h, t = rows.values[heads[usable]], rows.values[tails[usable]]
    return model.ranks(h, t, right[usable])
