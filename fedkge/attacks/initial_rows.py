"""Rows out of what travels: initial rows of known labels, offsets of the server, steps of clients.

A simulation derives what the clients have in common from the seed. Only views of clients, of who colludes
with one, and of a server that reads the labels may ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedkge.client.holdings import simulated_source
from fedkge.client.models import MODELS
from fedkge.exchange import Table
from fedkge.experiment import Experiment

__all__ = ["initial_rows", "moved"]


def initial_rows(experiment: Experiment, kind: str, labels: Sequence[str]) -> NDArray[np.float32]:
    """(n, w) the rows of a shared table before any training."""
    source = simulated_source(experiment.privacy, experiment.seed, kind)
    return MODELS[experiment.model.name].initial_table(kind, labels, experiment.model, source.key)


def moved(before: Table, step: Table) -> Table:
    """The offsets of a client's rows after a round, from the offsets it was sent and its step."""
    return Table(step.ids, before.pick(step.ids).rows + step.rows)
