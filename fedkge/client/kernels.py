"""A batch in three passes: scores, then the slope of the loss at each score, then gradients of rows.

Between the passes stand the per-triple quantities (slopes of the target and of every negative, and the
gradient at the query), so that whatever acts on single triples, such as clipping, acts before any sum.
"""

from __future__ import annotations

import numpy as np

from fedkge.client.arrays import Floats, Ids, Offsets, Pairs
from fedkge.client.comparisons import Comparison, candidate_gradients, compare_pairs, query_gradients
from fedkge.client.compiled import compiled
from fedkge.client.losses import loss_and_slopes

__all__ = ["add_rows", "candidate_gradients", "compare_pairs", "group", "query_gradients", "slopes"]

_DOT, _L2 = int(Comparison.DOT), int(Comparison.L2)


def group(ids: Ids, num_rows: int) -> Pairs:
    """Group a (batch, candidates) array of row numbers by row; a negative number is no candidate."""
    starts = np.zeros(num_rows + 1, dtype=np.int64)
    places = np.empty(ids.size, dtype=np.int32)
    owners = np.empty(ids.size, dtype=np.int32)
    _group(ids.reshape(len(ids), -1), starts, places, owners)
    return Pairs(starts, places, owners)


@compiled
def _group(ids: Ids, starts: Offsets, places: Ids, owners: Ids) -> None:
    """A counting sort: stable, so that sums do not depend on anything but the batch."""
    num_rows = starts.shape[0] - 1
    flat = ids.ravel()
    for row in flat:
        if row >= 0:
            starts[row + 1] += 1
    for row in range(num_rows):
        starts[row + 1] += starts[row]
    width = ids.shape[1]
    for b in range(ids.shape[0]):
        for j in range(width):
            row = ids[b, j]
            if row >= 0:
                places[starts[row]] = b * width + j
                owners[starts[row]] = b
                starts[row] += 1
    for row in range(num_rows, 0, -1):  # filling moved each start to its stop
        starts[row] = starts[row - 1]
    starts[0] = 0


@compiled
def slopes(
    kind: int,
    loss: int,
    margin: np.float32,
    temperature: np.float32,
    compared: Floats,
    scale: Floats,
    out: Floats,
    losses: Floats,
) -> None:
    """From comparisons (b, 1 + n) to losses (b,) and ∂loss / ∂comparison (b, 1 + n)."""
    sign = np.float32(1) if kind == _DOT else np.float32(-1)
    shift = np.float32(0) if kind == _DOT else margin
    scores = np.empty(compared.shape[1], dtype=np.float32)
    for b in range(compared.shape[0]):
        slope = sign * scale[b]
        for j in range(scores.shape[0]):
            # An absent candidate is NaN-free infinity of either sign: it must come out as -inf.
            absent = abs(compared[b, j]) == np.inf
            scores[j] = -np.inf if absent else shift + slope * compared[b, j]
        losses[b] = loss_and_slopes(loss, scores, margin, temperature, out[b])
        for j in range(scores.shape[0]):
            out[b, j] *= slope
        if kind == _L2:  # ∂|x| = x / |x|: the gradient kernels multiply by x
            for j in range(scores.shape[0]):
                out[b, j] = out[b, j] / compared[b, j] if compared[b, j] > 0 else np.float32(0)


@compiled
def add_rows(source: Floats, pairs: Pairs, rows: Ids, out: Floats) -> None:
    """out[i] += the source rows of every pair that names table row rows[i]."""
    starts, places, _ = pairs
    for i in range(rows.shape[0]):
        g = out[i]
        for p in range(starts[rows[i]], starts[rows[i] + 1]):
            s = source[places[p]]
            for k in range(g.shape[0]):
                g[k] += s[k]
