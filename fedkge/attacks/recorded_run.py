"""Recorded runs: what the server received, what clients held at the end, and the truth apart from both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from fedkge.attacks.truth import Truth
from fedkge.client.state import StateFiles
from fedkge.datasets import load_graph
from fedkge.errors import InputError
from fedkge.experiment import Experiment
from fedkge.server.transcript import Recording
from fedkge.storage import staged
from fedkge.strategy import shared_by

__all__ = ["KINDS", "RecordedRun", "keep_states"]

KINDS = ("entity", "relation")  # the tables that views are made of
_OTHERS = "own."  # before the names of a client's other parameters


def keep_states(folder: Path, states: Path, num_clients: int) -> None:
    """Every client's tables of the last recorded round, so that any of them can be made a colluder later."""
    last = Recording(folder / "transcript").rounds[-1]
    for number in range(num_clients):
        files = StateFiles(states / f"client-{number}")
        state = files.newest(last)
        if state is None:
            raise InputError(f"{states}: client {number} kept no state of round {last}; run it again")
        tables = {kind: state.tables[kind] for kind in KINDS if kind in state.tables}
        others = {**state.tables, **state.weights, **state.buffers}
        tables |= {f"{_OTHERS}{name}": array for name, array in others.items() if name not in KINDS}
        held = {}
        for key, rows in files.load_arrays("holdings").items():
            if key.endswith(".rows"):
                held[f"rows.{key.removesuffix('.rows')}"] = rows.astype(np.int64)
        with staged(folder / "transcript" / "clients" / f"client-{number}.safetensors", private=True) as path:
            save_file({**tables, **held}, path)


@dataclass(frozen=True)
class RecordedRun:
    """A run folder with a transcript; fedkge.attacks.coalition cuts each adversary's view from it."""

    folder: Path

    @cached_property
    def recording(self) -> Recording:
        return Recording(self.folder / "transcript")

    @cached_property
    def experiment(self) -> Experiment:
        path = self.folder / "experiment.toml"
        if not self.folder.exists():
            raise InputError(f"{self.folder}: no such folder; give the folder of a run")
        if not path.is_file():
            raise InputError(
                f"{self.folder} is not a run folder (it has no experiment.toml); give the folder of a run"
            )
        return Experiment.load(path)

    @cached_property
    def truth(self) -> Truth:
        folders = (self.folder / "data" / f"client-{number}" for number in range(self.num_clients))
        states = [load_file(path) for path in map(self._state, range(self.num_clients)) if path.is_file()]
        complete = len(states) == self.num_clients
        rows = {kind: tuple(state[f"rows.{kind}"] for state in states) for kind in self.shared if complete}
        return Truth(tuple(map(load_graph, folders)), rows)

    @property
    def num_clients(self) -> int:
        return self.experiment.data.clients

    @property
    def shared(self) -> tuple[str, ...]:
        """The tables that travel; weights that belong to no label are in no view."""
        shared = shared_by(self.experiment.federation)
        return tuple(kind for kind in KINDS if kind in shared)

    @property
    def secure(self) -> bool:
        return self.experiment.privacy.secure_aggregation and bool(self.shared)

    def state(self, client: int) -> Mapping[str, NDArray[np.float32]]:
        """A client's tables (labels, width) at the end, and `rows.<table>` (labels,): their shared rows."""
        path = self._state(client)
        if not path.is_file():
            raise InputError(
                f"{path}: the run ended before its clients' states were kept; resume or run again"
            )
        absent = {kind: np.zeros((len(self.labels(client, kind)), 0), np.float32) for kind in KINDS}
        return absent | load_file(path)

    def parameters(self, client: int) -> Mapping[str, NDArray[np.float32]]:
        """All that a client's model was at the end, whether it travelled or not."""
        arrays = self.state(client)
        others = {name.removeprefix(_OTHERS): arrays[name] for name in arrays if name.startswith(_OTHERS)}
        return {kind: arrays[kind] for kind in KINDS if arrays[kind].shape[1]} | others

    def _state(self, client: int) -> Path:
        return self.folder / "transcript" / "clients" / f"client-{client}.safetensors"

    def labels(self, client: int, kind: str) -> tuple[str, ...]:
        graph = self.truth.clients[client]
        return graph.entity_labels if kind == "entity" else graph.relation_labels
