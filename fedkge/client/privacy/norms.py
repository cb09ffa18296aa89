"""How long the gradient of one triple with all its negatives is, without writing that gradient down.

A candidate's part is a coefficient times ∂comparison / ∂row, whose length has a closed form. Where one entity
stands in several places of a triple (a negative drawn twice, a negative that is the target, a candidate that
is the anchor) its parts add up before they are squared: squaring them apart could report too little.
"""

from __future__ import annotations

import numpy as np

from fedkge.client.kernels.arrays import Floats
from fedkge.client.kernels.gradients import TripleGradients
from fedkge.client.kernels.lengths import norms_of_rows, norms_of_triples

__all__ = ["triple_norms"]


def triple_norms(gradients: TripleGradients, table: Floats) -> Floats:
    """(b,) Euclidean norms of what each triple asks for, over all entity and relation rows together."""
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
            norms,
        )
    return norms
