"""What an adversary has: a View, each part of it marked as received or granted, saved and loaded whole.

The names follow Table 3 of FedR (Zhang et al., 2022): global and local, entity and relation embeddings. A
row's name is the index of its label among those that the adversary knows: a View has no other numbering.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedkge.errors import DataError
from fedkge.experiment import ModelSettings
from fedkge.storage import staged

__all__ = ["UNKNOWN", "Handover", "Movement", "Rows", "Snapshot", "Source", "View"]

UNKNOWN = -1  # the name of a row that nobody has named

Names = NDArray[np.int64]


class Source(StrEnum):
    """Where a part of a view comes from."""

    RECEIVED = "received"  # the protocol brings it to this adversary, or one of its members owns it
    GRANTED = "granted"  # an assumption gives it: the protocol sends nothing of the kind


@dataclass(frozen=True, eq=False)
class Rows:
    """Embedding rows (n, d), and their names (n,) as far as the adversary can tell; order says nothing."""

    names: Names  # (n,) indices of the view's labels of this kind, or UNKNOWN
    values: NDArray[np.float32]  # (n, d)
    source: Source = Source.RECEIVED
    masked: bool = False  # as they travelled, under the masks of secure aggregation

    def __len__(self) -> int:
        return len(self.names)

    def rows_of(self, names: Names) -> NDArray[np.int64]:
        """The index of the row of each name, in the shape of `names`; UNKNOWN where there is none."""
        size = int(max(names.max(initial=0), self.names.max(initial=0))) + 2  # the last is UNKNOWN's
        row_of = np.full(size, UNKNOWN, dtype=np.int64)
        named = np.flatnonzero(self.names != UNKNOWN)
        row_of[self.names[named]] = named
        return row_of[names]

    def pick(self, indices: NDArray[Any]) -> Rows:
        """Some of the rows, by their indices (k,)."""
        return replace(self, names=self.names[indices], values=self.values[indices])


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The embeddings of one round."""

    round: int
    gee: Rows | None = None  # global entity embeddings, (n, entity width)
    gre: Rows | None = None  # global relation embeddings, (n, relation width)
    lee: Mapping[int, Rows] = field(default_factory=dict)  # client -> its local entity embeddings
    lre: Mapping[int, Rows] = field(default_factory=dict)  # client -> its local relation embeddings


@dataclass(frozen=True, eq=False)
class Handover:
    """The element–embedding pairs that one colluder hands over, and its train triples among them."""

    client: int
    entity: Rows  # (n, entity width)
    relation: Rows  # (k, relation width)
    triples: Names  # (n, 3) names of head, relation, tail; both ends are among the entities handed over


@dataclass(frozen=True, eq=False)
class Movement:
    """How the shared rows of a table moved in the first recorded rounds, as a server sees it: by number."""

    ids: Names  # (n,) the numbers of the shared rows
    names: Names  # (n,) indices of the view's labels of this kind, or UNKNOWN
    steps: NDArray[np.float32]  # (rounds, n, w) over all clients; the first counts from the initial rows
    rounds: tuple[int, ...]
    holders: Names  # (n,) by how many clients each step is divided; ones where nobody counts them


@dataclass(frozen=True, eq=False)
class View:
    """All that one adversary knows: what the protocol brought it, and what a stated grant gave it.

    Names are indices into `entities` or `relations`; UNKNOWN is the name of what it cannot name.
    """

    name: str  # which view of the run, such as "uploads" or "masked uploads"
    adversary: str  # such as "server", "server + client 0" or "client 0"
    strategy: str
    model: ModelSettings
    num_clients: int
    entities: tuple[str, ...]  # the labels that the adversary knows
    relations: tuple[str, ...]
    rounds: tuple[Snapshot, ...]  # ascending; a single one if only the last was recorded
    handed: tuple[Handover, ...] = ()  # by colluders; by itself, if the adversary is a client
    leak_ratio: float = 1.0
    presence: Mapping[str, Mapping[int, Names]] = field(default_factory=dict)  # table -> client -> (k,) names
    holders: Mapping[str, Names] = field(default_factory=dict)  # table -> (labels,) clients behind each
    union: Mapping[str, int] = field(default_factory=dict)  # table -> rows in all, named or not
    sums_only: bool = False  # whether the server saw sums over clients in place of uploads
    seed: int = 0  # of the run, which all parties know
    movement: Mapping[str, Movement] = field(default_factory=dict)  # table -> what a server saw of its rows

    @property
    def last(self) -> Snapshot:
        """The last recorded round."""
        return self.rounds[-1]

    @property
    def targets(self) -> list[int]:
        """The clients that are not the adversary's own."""
        colluders = {other.client for other in self.handed}
        return [client for client in range(self.num_clients) if client not in colluders]

    @cached_property
    def fields(self) -> Mapping[str, Source]:
        """The parts that are there, and where each comes from."""
        fields: dict[str, Source] = {}
        for name in ("gee", "gre", "lee", "lre"):
            part = getattr(self.last, name)
            rows = list(part.values()) if isinstance(part, Mapping) else [part] * (part is not None)
            if rows:
                label = f"masked {name.upper()}" if rows[0].masked else name.upper()
                fields[label] = rows[0].source
        for name in ("presence", "holders", "union"):
            if getattr(self, name):
                fields[name] = Source.RECEIVED
        if self.handed:
            fields["EEP"] = Source.RECEIVED
        return fields

    @property
    def granted(self) -> tuple[str, ...]:
        """The parts that an assumption gave."""
        return tuple(name for name, source in self.fields.items() if source is Source.GRANTED)

    def save(self, path: Path) -> None:
        """One safetensors file, whole or absent."""
        arrays: dict[str, NDArray[Any]] = {"empty": np.zeros(0, dtype=np.float32)}
        marks: dict[str, list[Any]] = {}
        for key, rows in self._rows():
            arrays[f"{key}.names"], arrays[f"{key}.values"] = rows.names, np.ascontiguousarray(rows.values)
            marks[key] = [rows.source.value, rows.masked]
        for other in self.handed:
            arrays[f"handed.{other.client}.triples"] = np.ascontiguousarray(other.triples)
        for table, clients in self.presence.items():
            for client, names in clients.items():
                arrays[f"presence.{table}.{client}"] = names
        for table, counts in self.holders.items():
            arrays[f"holders.{table}"] = counts
        for table, movement in self.movement.items():
            for part in _MOVEMENT:
                arrays[f"movement.{table}.{part}"] = np.ascontiguousarray(getattr(movement, part))
        metadata = {name: getattr(self, name) for name in _METADATA} | {
            "model": self.model.model_dump(),
            "rounds": [shot.round for shot in self.rounds],
            "marks": marks,
        }
        with staged(path) as partial:
            save_file(arrays, partial, {"view": json.dumps(metadata)})

    @classmethod
    def load(cls, path: Path) -> View:
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = json.loads(file.metadata()["view"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: not a saved view ({error}); save one with View.save") from error
        rows = {
            key: Rows(arrays[f"{key}.names"], arrays[f"{key}.values"], Source(source), masked)
            for key, (source, masked) in metadata.pop("marks").items()
        }
        clients = sorted({int(key.split(".")[1]) for key in rows if key.startswith("handed.")})
        handed = (
            Handover(
                c, rows[f"handed.{c}.entity"], rows[f"handed.{c}.relation"], arrays[f"handed.{c}.triples"]
            )
            for c in clients
        )
        presence: dict[str, dict[int, Names]] = {}
        for key in arrays:
            if key.startswith("presence."):
                _, table, client = key.split(".")
                presence.setdefault(table, {})[int(client)] = arrays[key]
        return cls(
            rounds=tuple(_snapshot(round, rows) for round in metadata.pop("rounds")),
            model=ModelSettings(**metadata.pop("model")),
            entities=tuple(metadata.pop("entities")),
            relations=tuple(metadata.pop("relations")),
            handed=tuple(handed),
            presence=presence,
            holders={k.removeprefix("holders."): a for k, a in arrays.items() if k.startswith("holders.")},
            movement=_movements(arrays),
            **metadata,
        )

    def _rows(self) -> Iterator[tuple[str, Rows]]:
        for shot in self.rounds:
            for name in ("gee", "gre"):
                if (rows := getattr(shot, name)) is not None:
                    yield f"{shot.round}.{name}", rows
            for name in ("lee", "lre"):
                for client, rows in getattr(shot, name).items():
                    yield f"{shot.round}.{name}.{client}", rows
        for other in self.handed:
            yield f"handed.{other.client}.entity", other.entity
            yield f"handed.{other.client}.relation", other.relation


_METADATA = (
    "name",
    "adversary",
    "strategy",
    "num_clients",
    "entities",
    "relations",
    "leak_ratio",
    "union",
    "sums_only",
    "seed",
)
_MOVEMENT = ("ids", "names", "steps", "rounds", "holders")


def _movements(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Movement]:
    movements = {}
    for table in (
        key.split(".")[1] for key in arrays if key.startswith("movement.") and key.endswith(".ids")
    ):
        ids, names, steps, rounds, holders = (arrays[f"movement.{table}.{part}"] for part in _MOVEMENT)
        movements[table] = Movement(ids, names, steps, tuple(rounds.tolist()), holders)
    return movements


def _snapshot(round: int, rows: Mapping[str, Rows]) -> Snapshot:
    def local(name: str) -> dict[int, Rows]:
        start = f"{round}.{name}."
        return {int(key.removeprefix(start)): part for key, part in rows.items() if key.startswith(start)}

    return Snapshot(round, rows.get(f"{round}.gee"), rows.get(f"{round}.gre"), local("lee"), local("lre"))
