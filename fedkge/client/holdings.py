"""Which parameters of a model are shared, as rows; which of them this client holds; where rows come from."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from fedkge.client.models import Model, build_model
from fedkge.client.models.initial import seed_key
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import ModelSettings

__all__ = ["Holding", "build_from", "labels_of", "row_key", "triples_behind"]


@dataclass(frozen=True, eq=False)
class Holding:
    """Which rows of a shared parameter this client has."""

    rows: NDArray[np.int64]  # shared row of each own row
    local: NDArray[np.int64]  # the own rows that are shared
    places: NDArray[np.int64]  # where each of them stands among the shared rows

    @classmethod
    def of(cls, rows: NDArray[np.int64], shared: NDArray[np.int32] | None) -> Holding:
        """`shared` are the numbers of the shared rows, ascending; None: it is not known yet, so none are."""
        if shared is None:
            nothing = np.zeros(0, dtype=np.int64)
            return cls(rows, nothing, nothing)
        local = np.flatnonzero(np.isin(rows, shared))
        return cls(rows, local, np.searchsorted(shared, rows[local]))

    @classmethod
    def of_all(cls, rows: NDArray[np.int64]) -> Holding:
        """All rows are shared, as in the open."""
        return cls(rows, np.arange(len(rows)), rows)

    @property
    def ids(self) -> NDArray[np.int64]:
        """(k,) the shared row numbers of the rows in `local`."""
        return self.rows[self.local]


def labels_of(model: Model, graph: KnowledgeGraph, name: str) -> tuple[str, ...]:
    """The label of each row of a table."""
    return graph.entity_labels if model.specs[name].vocabulary == "entity" else graph.relation_labels


def triples_behind(model: Model, graph: KnowledgeGraph, name: str) -> NDArray[np.float32]:
    """(rows,) how many train triples each row of a parameter occurs in; at least one."""
    rows = len(model.rows[name])
    if name not in model.specs:
        return np.full(rows, max(len(graph.train), 1), dtype=np.float32)
    columns = [0, 2] if model.specs[name].vocabulary == "entity" else [1]
    counts = np.bincount(graph.train[:, columns].ravel(), minlength=rows)
    return np.maximum(counts, 1).astype(np.float32)  # a row that only held-out triples name still counts


def row_key(name: str, seed: int, secret: bytes | None = None) -> bytes:
    """The key that the initial rows of a parameter come from, together with their labels.

    Without a secret it follows from the run's seed, alike for all clients: for shared parameters.
    """
    if secret is None:
        return seed_key(seed, name)
    return blake2b(f"own rows/{name}".encode(), digest_size=32, key=secret).digest()


def build_from(
    settings: ModelSettings, graph: KnowledgeGraph, shared: tuple[str, ...], seed: int, secret: bytes
) -> Model:
    """A model whose shared parameters start alike at all clients, and whose others start from a secret."""
    return build_model(settings, graph, lambda name: row_key(name, seed, None if name in shared else secret))
