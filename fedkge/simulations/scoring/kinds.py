"""Kinds of relations: how many answers they have on either side (Bordes et al., 2013)."""

from __future__ import annotations

from fedkge.client.training.negatives import answer_counts
from fedkge.datasets import KnowledgeGraph

__all__ = ["KINDS", "UNSEEN", "relation_kinds"]

KINDS = ("1-1", "1-N", "N-1", "N-N")
UNSEEN = "unseen"  # of a relation without a train triple nothing can be counted
_SEVERAL = 1.5


def relation_kinds(graph: KnowledgeGraph) -> list[str]:
    """The kind of each relation by the graph's train triples: N where 1.5 answers or more are the mean."""
    return [
        UNSEEN if tails == 0 else f"{'N' if heads >= _SEVERAL else '1'}-{'N' if tails >= _SEVERAL else '1'}"
        for tails, heads in zip(*(counts.tolist() for counts in answer_counts(graph)), strict=True)
    ]
