"""Who holds which element: read in the clear, guessed from counts, or sought in masked vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.assessment import Assessment
from fedkge.attacks.reconstruction.algorithm import ImpossibleError
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import UNKNOWN, Rows, View

__all__ = ["held", "masked_presence"]

Ids = NDArray[np.int64]

_Z = 1.96


def held(assessment: Assessment, truth: Truth, kind: str) -> None:
    """Recall and precision of what the adversary says that the target holds of a table.

    The baselines are those of as many claims at random: where everyone holds nearly all, recall is cheap.
    """
    view, target = assessment.view, assessment.target
    if not (view.entities if kind == "entity" else view.relations):
        raise ImpossibleError(f"this adversary knows no {kind} by its label")
    if kind in view.presence:
        claimed, note = view.presence[kind][target], "read: the server is told who holds what"
    elif kind in view.holders:
        claimed, note = likely_held(view, kind), "guessed from how many clients hold each row"
    else:
        raise ImpossibleError(f"nothing tells this adversary which client holds which {kind}")
    labels, held_numbers = _numbers(view, truth, kind, target)
    is_held = np.isin(labels, held_numbers)
    hits, by_chance = int(is_held[claimed].sum()), float(is_held.mean()) * len(claimed)
    assessment.share(
        f"{kind} recall", hits, len(held_numbers), baseline=by_chance / max(len(held_numbers), 1), note=note
    )
    assessment.share(f"{kind} precision", hits, len(claimed), baseline=float(is_held.mean()), note=note)


def likely_held(view: View, kind: str) -> Ids:
    """The names that more than half of the clients outside the coalition hold."""
    counts = view.holders[kind].copy()
    for other in view.handed:
        rows: Rows = getattr(other, kind)
        counts[rows.names] -= 1
    return np.flatnonzero(2 * counts > view.num_clients - len(view.handed))


def masked_presence(assessment: Assessment, truth: Truth) -> None:
    """A row that is not held moves by zero: does its masked form tell it from the others?"""
    view, target = assessment.view, assessment.target
    for kind, local in (("entity", view.last.lee), ("relation", view.last.lre)):
        rows = local.get(target)
        if rows is None or not rows.masked or not (rows.names != UNKNOWN).any():
            continue
        rows = rows.pick(np.flatnonzero(rows.names != UNKNOWN))
        labels, held_numbers = _numbers(view, truth, kind, target)
        there = np.isin(labels[rows.names], held_numbers)
        if there.all() or not there.any():
            assessment.impossible(f"presence AUC ({kind})", "the target holds all of the rows, or none")
            continue
        area, error = _area(np.linalg.norm(rows.values, axis=1), there)
        interval = (max(area - _Z * error, 0.0), min(area + _Z * error, 1.0))
        assessment.add(f"presence AUC ({kind})", area, interval=interval, baseline=0.5, count=len(rows))


def _numbers(view: View, truth: Truth, kind: str, target: int) -> tuple[Ids, Ids]:
    """The common numbers of the adversary's labels, and of what the target holds."""
    if kind == "entity":
        return truth.number_entities(view.entities), truth.entities(target)
    return truth.number_relations(view.relations), truth.relations(target)


def _area(scores: NDArray[np.float32], positive: NDArray[np.bool_]) -> tuple[float, float]:
    """The area under the ROC curve, and its error where scores say nothing (Mann and Whitney, 1947)."""
    n, m = int(positive.sum()), int((~positive).sum())
    from scipy.stats import rankdata  # a second to import

    area = (rankdata(scores)[positive].sum() - n * (n + 1) / 2) / (n * m)
    return float(area), float(np.sqrt((n + m + 1) / (12 * n * m)))
