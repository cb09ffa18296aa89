"""How long the gradient of one triple with all its negatives is, without writing that gradient down.

A candidate's part is a coefficient times ∂comparison / ∂row, whose length has a closed form. Where one entity
stands in several places of a triple (a negative drawn twice, a negative that is the target, a candidate that
is the anchor) its parts add up before they are squared: squaring them apart could report too little.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from fedkge.client.kernels.arrays import Floats
from fedkge.client.kernels.gradients import MOST_ROUNDED, TripleGradients
from fedkge.client.kernels.lengths import norms_of_rows, norms_of_triples

__all__ = ["CANCELLING", "CARRIED", "clipping_norms", "rounding_share", "triple_norms"]

CARRIED = 2.0**-10  # of a triple's bound: what the carried rows of lazy noise are rounded by, at most
CANCELLING = 4.0  # how many times its norm the parts of a clipped triple may be together
_UNIT = 2.0**-24  # rounding of float32


def rounding_share(num_candidates: int) -> float:
    """By how much of its bound rounding adds to what one triple changes in the sums of a batch, at most.

    A triple names num_candidates + 2 rows, and k parts of one row are rounded k times, by the unit of what
    they come to. Of more than MOST_ROUNDED parts the sum is in double precision, so a row has an error
    of MOST_ROUNDED² · unit · CANCELLING bounds, with the triple and without it.
    """
    return 2 * MOST_ROUNDED**2 * _UNIT * CANCELLING * sqrt(num_candidates + 2) + CARRIED


def clipping_norms(gradients: TripleGradients, table: Floats) -> Floats:
    """(b,) norms to clip by: those of `triple_norms`, or a share of what a triple's parts are apart.

    Parts are rounded before they cancel, so that a norm which believed in the difference alone would let
    rounding errors through that are as large as the parts.
    """
    return triple_norms(gradients, table, 1 / CANCELLING)


def triple_norms(gradients: TripleGradients, table: Floats, least: float = 0.0) -> Floats:
    """(b,) Euclidean norms of what each triple asks for, over all entity and relation rows together.

    Args:
        least: no norm is below this share of what the parts would come to if none took from another.
    """
    batch = gradients.batch
    norms = np.empty(len(batch.anchors), dtype=np.float32)
    if gradients.candidate_rows is not None:
        norms_of_rows(
            len(table),
            batch.anchors,
            batch.candidates,
            gradients.candidate_rows,
            gradients.anchor_rows,
            gradients.relation_rows,
            least,
            norms,
        )
    else:
        norms_of_triples(
            gradients.comparison,
            gradients.queries,
            table,
            batch.anchors,
            batch.candidates,
            gradients.compared,
            gradients.coefficients,
            gradients.anchor_rows,
            gradients.relation_rows,
            least,
            norms,
        )
    return norms
