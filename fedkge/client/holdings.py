"""Which parameters of a model are shared, as rows; which of them this client holds; where rows come from.

A shared row starts from a secret that clients have in common and from its label: holders start alike, and the
server cannot tell a label by its row. Rows that are not shared start from the client's own secret, and
so do those of local labels, which stay at home.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Ids
from fedkge.client.models import Model, build_model
from fedkge.client.models.initial import seed_key
from fedkge.crypto.keys import KEY_SIZE, derive_key
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.labels import common_rows
from fedkge.experiment import ModelSettings, PrivacySettings

__all__ = [
    "Holding",
    "RowSource",
    "build_from",
    "common_labels",
    "labels_of",
    "simulated_source",
    "triples_behind",
]


@dataclass(frozen=True, eq=False)
class Holding:
    """Which rows of a shared parameter this client has."""

    rows: NDArray[np.int64]  # shared row of each own row; −1 for those of local labels
    local: NDArray[
        np.int64
    ]  # the own rows that are shared, by shared row: their own order is not for telling
    places: NDArray[np.int64]  # where each of them stands among the shared rows

    @classmethod
    def of(cls, rows: NDArray[np.int64], shared: NDArray[np.int32] | None) -> Holding:
        """`shared` are the numbers of the shared rows, ascending; None: it is not known yet, so none are."""
        if shared is None:
            nothing = np.zeros(0, dtype=np.int64)
            return cls(rows, nothing, nothing)
        local = _by_shared_row(rows, np.flatnonzero(np.isin(rows, shared)))
        return cls(rows, local, np.searchsorted(shared, rows[local]))

    @classmethod
    def of_all(cls, rows: NDArray[np.int64]) -> Holding:
        """All rows are shared but those of local labels, as in the open."""
        local = _by_shared_row(rows, np.flatnonzero(rows >= 0))
        return cls(rows, local, rows[local])

    @property
    def ids(self) -> NDArray[np.int64]:
        """(k,) the shared row numbers of the rows in `local`."""
        return self.rows[self.local]

    def first(self, count: int) -> Ids:
        """(count,) the own row of each of the first shared numbers; −1 where it has none.

        The FedR authors' FedE draws negatives so, below the number of a client's entities, whoever has them.
        """
        rows = np.full(count, -1, dtype=np.int32)
        early = self.ids < count
        rows[self.ids[early]] = self.local[early]
        return rows


def _by_shared_row(rows: NDArray[np.int64], local: NDArray[np.int64]) -> NDArray[np.int64]:
    return local[np.argsort(rows[local], kind="stable")]


def labels_of(model: Model, graph: KnowledgeGraph, name: str) -> tuple[str, ...]:
    """The label of each row of a table."""
    return graph.labels[model.specs[name].vocabulary]


def triples_behind(model: Model, graph: KnowledgeGraph, name: str) -> NDArray[np.float32]:
    """(rows,) how many train triples each row of a parameter occurs in; at least one."""
    rows = len(model.rows[name])
    if name not in model.specs:
        return np.full(rows, max(len(graph.train), 1), dtype=np.float32)
    columns = [0, 2] if model.specs[name].vocabulary == "entity" else [1]
    counts = np.bincount(graph.train[:, columns].ravel(), minlength=rows)
    return np.maximum(counts, 1).astype(np.float32)  # a row that only held-out triples name still counts


@dataclass(frozen=True)
class RowSource:
    """What the initial values of a shared parameter come from: a key, and labels or what stands for them."""

    key: bytes
    names: tuple[str, ...] | None = None  # of the common labels, in their order; None: the labels themselves

    @classmethod
    def of_seed(cls, seed: int, name: str) -> RowSource:
        """Anybody who knows a label knows its row."""
        return cls(seed_key(seed, name))

    @classmethod
    def of_secret(cls, secret: bytes, per_label: bool) -> RowSource:
        """What a union gave: one key, or a secret for each label."""
        if not per_label:
            return cls(secret)
        names = (secret[start : start + KEY_SIZE].hex() for start in range(0, len(secret), KEY_SIZE))
        return cls(b"", tuple(names))


def simulated_source(privacy: PrivacySettings, seed: int, name: str) -> RowSource:
    """What clients of a simulation have in common: where a deployment has a secret, one from the seed.

    No view of the server alone may use it, and with `rows_from_seed` or labels in the clear it is no secret.
    """
    if not privacy.secure_aggregation or privacy.union == "plain" or privacy.rows_from_seed:
        return RowSource.of_seed(seed, name)
    group = derive_key(str(seed).encode(), b"fedkge simulated group key")
    return RowSource(derive_key(group, b"fedkge rows" + name.encode()))


def common_labels(model: Model, graph: KnowledgeGraph, name: str) -> list[str]:
    """The labels of a table that are names for every client, in the order of `common_rows`."""
    labels = labels_of(model, graph, name)
    return [labels[row] for row in common_rows(labels)]


def build_from(
    settings: ModelSettings, graph: KnowledgeGraph, shared: Mapping[str, RowSource], secret: bytes
) -> Model:
    """A model whose shared parameters start alike at all clients, and whose others start from a secret."""

    def own_key(name: str) -> bytes:
        return blake2b(f"own rows/{name}".encode(), digest_size=32, key=secret).digest()

    keys = {name: source.key for name, source in shared.items() if source.names is None}
    model = build_model(settings, graph, lambda name: keys.get(name) or own_key(name))
    for name, source in shared.items():
        if name not in model.tables:
            continue
        labels = labels_of(model, graph, name)
        common = common_rows(labels)
        if source.names is not None:
            model.tables[name][common] = model.initial_table(name, source.names, settings, source.key)
        elif len(common) < len(labels):
            home = np.setdiff1d(np.arange(len(labels)), common)
            own = [labels[row] for row in home]
            model.tables[name][home] = model.initial_table(name, own, settings, own_key(name))
    return model
