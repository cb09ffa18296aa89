"""Kinds of relations, by how many answers they have, and of questions, by which of their ends were seen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Ids
from fedkge.client.training.negatives import answer_counts
from fedkge.datasets import KnowledgeGraph

__all__ = ["ENDS", "KINDS", "UNSEEN", "question_ends", "relation_kinds"]

KINDS = ("1-1", "1-N", "N-1", "N-N")
UNSEEN = "unseen"  # of a relation without a train triple nothing can be counted
# Of triples: whether both entities have train triples. Then of questions, which of the ends has none.
ENDS = ("seen", UNSEEN, "unseen-asked", "unseen-given", "unseen-both")
_SEVERAL = 1.5


def relation_kinds(graph: KnowledgeGraph) -> list[str]:
    """The kind of each relation by the graph's train triples: N where 1.5 answers or more are the mean.

    Bordes et al., 2013.
    """
    return [
        UNSEEN if tails == 0 else f"{'N' if heads >= _SEVERAL else '1'}-{'N' if tails >= _SEVERAL else '1'}"
        for tails, heads in zip(*(counts.tolist() for counts in answer_counts(graph)), strict=True)
    ]


def question_ends(triples: Ids, side: str, seen: NDArray[np.bool_]) -> NDArray[np.str_]:
    """(n,) which end of each question has no train triples: the one asked for, or the one given."""
    head, _, tail = triples.T
    asked, given = (tail, head) if side == "tail" else (head, tail)
    names = np.array([["unseen-both", "unseen-asked"], ["unseen-given", "seen"]])
    ends: NDArray[np.str_] = names[seen[asked].astype(int), seen[given].astype(int)]
    return ends
