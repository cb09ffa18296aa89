"""How uploads become one table: a pure function, in float64, of uploads sorted by client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedkge.errors import MessageError
from fedkge.exchange import Table, Upload

__all__ = ["mean_over_holders"]


def mean_over_holders(uploads: Sequence[Upload], name: str, weighted: bool = False) -> Table | None:
    """The mean of each row over the clients that sent it; None when nobody sent the table.

    Weighted: by the number of triples behind each client's row. Sorting makes float sums the same everywhere.
    """
    parts = [
        upload.tables[name] for upload in sorted(uploads, key=lambda u: u.client) if name in upload.tables
    ]
    if not parts:
        return None
    if len({part.rows.shape[1] for part in parts}) != 1:
        raise MessageError(f"clients sent '{name}' rows of different widths; do all use the same model.dim?")
    ids = np.unique(np.concatenate([part.ids for part in parts]))
    total = np.zeros((len(ids), parts[0].rows.shape[1]), dtype=np.float64)
    weight = np.zeros(len(ids), dtype=np.float64)
    holders = np.zeros(len(ids), dtype=np.int32)
    for part in parts:
        place = np.searchsorted(ids, part.ids)
        share = _weights(part) if weighted else np.ones(len(part))
        total[place] += part.rows * share[:, None]
        weight[place] += share
        holders[place] += 1
    return Table(ids, (total / weight[:, None]).astype(np.float32), holders)


def _weights(part: Table) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    if part.weights is None:
        raise MessageError("weighted aggregation needs the number of triples behind each row")
    return np.maximum(
        part.weights.astype(np.float64), 1.0
    )  # a row that only held-out triples name still counts
