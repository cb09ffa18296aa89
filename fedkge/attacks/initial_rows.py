"""Rows out of what travels: initial rows of known labels, offsets of the server, steps of clients.

A simulation derives the initial rows of shared tables from the seed, so whoever knows a label knows its row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedkge.client.holdings import row_key
from fedkge.client.models import MODELS
from fedkge.exchange import Table
from fedkge.experiment import Experiment

__all__ = ["initial_rows", "moved"]


def initial_rows(experiment: Experiment, kind: str, labels: Sequence[str]) -> NDArray[np.float32]:
    """(n, w) the rows of a shared table before any training."""
    model = MODELS[experiment.model.name]
    return model.initial_table(kind, labels, experiment.model, row_key(kind, experiment.seed))


def moved(before: Table, step: Table) -> Table:
    """The offsets of a client's rows after a round, from the offsets it was sent and its step."""
    return Table(step.ids, before.pick(step.ids).rows + step.rows)
