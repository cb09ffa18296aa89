"""The metrics of FedR's Tables 1 and 4, as its authors' code computes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.assessment import Assessment
from fedkge.attacks.reconstruction.algorithm import (
    Identified,
    ImpossibleError,
    global_rows,
    identify,
    local_rows,
    pool_of,
    relation_model,
)
from fedkge.attacks.reconstruction.scoring import positions, right_names
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import UNKNOWN, Rows

__all__ = ["published", "trr_from_err"]


def published(assessment: Assessment, truth: Truth, rotate: bool) -> None:
    """ERR and TRR of one client; `rotate` superposes the spaces before rows are compared."""
    try:
        if assessment.view.last.gee is not None:
            _table_1(assessment, truth)
        else:
            _table_4(assessment, truth, local_rows(assessment.view, assessment.target), rotate)
    except ImpossibleError as error:
        assessment.impossible("ERR", str(error))
        assessment.impossible("TRR", str(error))


def trr_from_err(err: float, num_entities: int, num_triples: int) -> float:
    """Table 4's TRR divides matched entities by triples, so it says nothing beyond ERR."""
    return err * num_entities / num_triples


def _table_1(assessment: Assessment, truth: Truth) -> None:
    """FedE: ERR is the overlap of pool and target; TRR infers relations of true pairs from global rows."""
    view, target = assessment.view, assessment.target
    identified = identify(global_rows(view), view)
    row_of = positions(view, truth, identified, target)
    assessment.share(
        "ERR", int((row_of != UNKNOWN).sum()), len(row_of), note="overlap alone: no embedding is used"
    )
    _trr(assessment, truth, identified, row_of)


def _table_4(assessment: Assessment, truth: Truth, rows: Rows, rotate: bool) -> None:
    """FedR: ERR counts rows whose nearest colluder's row is their own; TRR divides these by the triples."""
    view, target = assessment.view, assessment.target
    identified = identify(replace(rows, names=np.full(len(rows), UNKNOWN)), view, rotate=rotate)
    right = right_names(view, truth, rows, target)
    hits = int(((identified.names == right) & (right != UNKNOWN)).sum())
    graph = truth.clients[target]
    chance = np.isin(right[right != UNKNOWN], pool_of(view).names).sum() / len(pool_of(view))
    assessment.share("ERR", hits, graph.num_entities, baseline=float(chance / graph.num_entities))
    if rows.masked:  # their position in the vector names them, so that pairs can be granted
        named = identify(rows, view)
        _trr(assessment, truth, named, positions(view, truth, named, target))
        return
    value = trr_from_err(hits / graph.num_entities, graph.num_entities, len(graph.train))
    assessment.add("TRR", value, count=len(graph.train), note="matched entities over triples: ERR·|E|/|T|")


def _trr(assessment: Assessment, truth: Truth, identified: Identified, row_of: NDArray[np.int64]) -> None:
    """TRR: how many train triples get their own relation when their pair is given.

    The baseline deals the same guesses to the pairs at random.
    """
    view, target = assessment.view, assessment.target
    model, names = relation_model(view)
    head, relation, tail = truth.clients[target].train.T
    heads, tails = row_of[head], row_of[tail]
    usable = (heads != UNKNOWN) & (tails != UNKNOWN)
    infer = model.invert if model.inverts else model.best
    guessed = infer(identified.rows.values[heads[usable]], identified.rows.values[tails[usable]]).relations
    labels = truth.number_relations([view.relations[name] for name in names])
    right, size = truth.relations(target)[relation[usable]], len(truth.relation_ids)
    counts = [np.bincount(numbers, minlength=size) for numbers in (labels[guessed], right)]
    chance = float(counts[0] @ counts[1]) / max(len(right), 1)
    hits = int((labels[guessed] == right).sum())
    assessment.share("TRR", hits, len(head), baseline=chance / len(head))
