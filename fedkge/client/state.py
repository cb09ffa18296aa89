"""A client's private state on its own disk: one file per round that may be needed again."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from fedkge.client.kernels.arrays import Floats
from fedkge.errors import DataError
from fedkge.storage import staged, storage_errors

__all__ = ["ClientState", "StateFiles"]


@dataclass(frozen=True)
class ClientState:
    """What a client is after a round: its parameters, and what it told the server about that round."""

    round: int
    tables: Mapping[str, Floats]
    metadata: Mapping[str, Any]
    weights: Mapping[str, Floats] = field(default_factory=dict)
    optimizer: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # empty unless kept between rounds
    reference: Mapping[str, Floats] = field(default_factory=dict)  # the shared rows as last broadcast
    sent: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)  # which of them travelled last
    memory: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # of the strategy
    private: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # of private training
    buffers: Mapping[str, Floats] = field(default_factory=dict)  # of the model, such as running statistics
    own: Mapping[str, Floats] = field(
        default_factory=dict
    )  # shared rows that training goes on from, if others


_GROUPS = ("weights", "optimizer", "reference", "sent", "memory", "private", "buffers", "own")


class StateFiles:
    """The states of one client of one run, by round; `durable` ones outlive a power cut.

    Privacy ledgers stand in `ledgers`, if they outlive the run, else among the states.
    """

    def __init__(self, folder: Path, durable: bool = False, ledgers: Path | None = None) -> None:
        self.folder = folder
        self.durable = durable
        self.ledgers = ledgers
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def save(self, state: ClientState) -> None:
        metadata = {"round": str(state.round), "metadata": json.dumps(state.metadata)}
        arrays = dict(state.tables)
        for group in _GROUPS:
            arrays |= {f"{group}/{key}": array for key, array in getattr(state, group).items()}
        with staged(self._path(state.round), private=True, durable=self.durable) as path:
            save_file(arrays, path, metadata)

    def load(self, round: int) -> ClientState:
        path = self._path(round)
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata()
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        except (OSError, SafetensorError) as error:
            raise DataError(
                f"{path}: the client's state cannot be read ({error}); start the run anew"
            ) from error
        groups: dict[str, dict[str, NDArray[Any]]] = {group: {} for group in ("tables", *_GROUPS)}
        for key, array in arrays.items():
            group, slash, name = key.partition("/")
            groups[group if slash else "tables"][name if slash else key] = array
        return ClientState(int(metadata["round"]), metadata=json.loads(metadata["metadata"]), **groups)

    def save_arrays(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Something that stays the same for the whole run."""
        with staged(self.folder / f"{name}.safetensors", private=True, durable=self.durable) as path:
            save_file(dict(arrays), path)

    def load_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        path = self.folder / f"{name}.safetensors"
        return load_file(path) if path.exists() else {}

    def rounds(self) -> list[int]:
        """The rounds there are, ascending."""
        return sorted(
            int(path.stem.removeprefix("round-")) for path in self.folder.glob("round-*.safetensors")
        )

    def newest(self, until: int) -> ClientState | None:
        """The last state not after a round."""
        fitting = [round for round in self.rounds() if round <= until]
        return self.load(fitting[-1]) if fitting else None

    def forget_after(self, round: int) -> None:
        """A run goes on from here: what came later never happened."""
        for later in (other for other in self.rounds() if other > round):
            self._path(later).unlink()

    def prune(self, keep: Collection[int], until: int) -> None:
        """Remove the states up to a round that nobody will ask for again."""
        for old in self.rounds():
            if old < until and old not in keep:
                self._path(old).unlink(missing_ok=True)

    def _path(self, round: int) -> Path:
        return self.folder / f"round-{round:06}.safetensors"
