"""The shared table of entities as a run ended with it, by label: rows that single clients cannot name.

A client receives the rows of all shared entities, as offsets from initial rows that only a label gives; of
entities that it does not hold it does not know the label. Whoever simulates all clients does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedkge.client.holdings import Holding
from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.models import MODELS
from fedkge.client.state import StateFiles
from fedkge.datasets import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.simulations.trained.client_model import Trained
from fedkge.strategy import shared_by

__all__ = ["SharedRows", "check_union"]


@dataclass(frozen=True, eq=False)
class SharedRows:
    """The entities that have a shared row, and their rows."""

    labels: tuple[str, ...]
    rows: Floats  # (n, w)

    @classmethod
    def read(cls, states: Path, graphs: Sequence[KnowledgeGraph], table: str, best: int) -> SharedRows:
        """From the states of the clients that hold them: all holders were sent the same rows."""
        known: dict[str, Floats] = {}
        found = [
            (state.round, client, state.reference.get(table))
            for client in range(len(graphs))
            if (state := _files(states, client).newest(best)) is not None
        ]
        # One who missed the last broadcast has older rows.
        for _, client, rows in sorted(found, key=lambda each: (-each[0], each[1])):
            if rows is None:
                continue
            labels = graphs[client].entity_labels
            for row, entity in zip(rows, _shared_rows(_files(states, client), table), strict=True):
                known.setdefault(labels[entity], row)
        names = tuple(sorted(known))
        return cls(names, np.array([known[name] for name in names], dtype=np.float32))

    def extend(self, client: Trained) -> tuple[Trained, Ids]:
        """The client with the entities that it does not hold, and which of all have a shared row."""
        graph, model = client.graph, client.model
        held = {label: number for number, label in enumerate(graph.entity_labels)}
        new = [place for place, label in enumerate(self.labels) if label not in held]
        labels = (*graph.entity_labels, *(self.labels[place] for place in new))
        wider = replace(graph, entity_labels=labels, classes=())
        table = type(model).entity_table
        parameters = model.parameters | model.state_buffers
        if new:
            parameters[table] = np.concatenate([parameters[table], self.rows[new]])
        shared = [held[label] for label in self.labels if label in held]
        offered = np.concatenate([shared, np.arange(len(held), len(labels))]).astype(np.int32)
        extended = type(model).restore(model.settings, wider, parameters)
        return replace(client, graph=wider, model=extended), np.unique(offered)


def check_union(experiment: Experiment) -> None:
    """Refuse candidates of the union where nobody has rows of entities that a client does not hold."""
    name = experiment.federation.strategy
    if experiment.evaluation.candidates != "union" or name == "Central":
        return
    model, shared = MODELS[experiment.model.name], shared_by(experiment.federation)
    place = 'evaluation.candidates = "union"'
    remedy = 'set it to "own" or "all"'
    tables = [
        table for table, spec in model.table_specs(experiment.model).items() if spec.vocabulary == "entity"
    ]
    if missing := [table for table in tables if table not in shared]:
        raise SettingError(
            f"{place}: {name} does not share {missing[0]} rows, so that no row is known of an entity that a "
            f"client does not hold; {remedy}, or take a strategy that shares them, such as FedE"
        )
    if model.has_encoder:
        raise SettingError(
            f"{place}: {experiment.model.name} encodes its rows from a client's own graph, which lacks the "
            f"entities of others; {remedy}"
        )


def _files(states: Path, client: int) -> StateFiles:
    return StateFiles(states / f"client-{client}")


def _shared_rows(files: StateFiles, table: str) -> NDArray[np.int64]:
    """The own rows that are shared, in the order of the state's reference."""
    arrays = files.load_arrays("holdings")
    rows, shared = arrays[f"{table}.rows"], arrays.get(f"{table}.shared")
    is_counted = f"{table}.shape" in arrays
    return (Holding.of(rows, shared) if is_counted else Holding.of_all(rows)).local
