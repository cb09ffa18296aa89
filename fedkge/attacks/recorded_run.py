"""Recorded runs as adversaries saw them: the server, its colluders, a curious client; and the truth apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from fedkge.attacks.collusion import hand_over
from fedkge.attacks.initial_rows import initial_rows, moved
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import UNKNOWN, Handover, Rows, Snapshot, Source, View
from fedkge.client.state import StateFiles
from fedkge.crypto import FixedPoint
from fedkge.crypto.wire import HEADER_SIZE
from fedkge.datasets import load_graph
from fedkge.errors import InputError, SettingError
from fedkge.exchange import Table, Upload
from fedkge.experiment import Experiment
from fedkge.seeding import draw
from fedkge.server.transcript import Recording
from fedkge.storage import staged
from fedkge.strategy import STRATEGIES

__all__ = ["RecordedRun", "check_adversary", "keep_states"]

_KINDS = ("entity", "relation")
_LEAK = 7  # tells the draw of leaked pairs from the other draws of a seed

Names = NDArray[np.int64]
Values = NDArray[np.float32]


def check_adversary(experiment: Experiment) -> None:
    """Refuse an adversary that this federation cannot have."""
    adversary, clients = experiment.adversary, experiment.data.clients
    if adversary.attacks and adversary.record == "off":
        raise SettingError(
            'adversary.attacks: nothing is recorded that they could attack; set adversary.record = "last"'
        )
    check_colluders(adversary.colluders, clients)


def check_colluders(colluders: Sequence[int], clients: int) -> None:
    if len(set(colluders)) < len(colluders):
        raise SettingError(f"adversary.colluders: {list(colluders)} names a client twice; name each once")
    for colluder in colluders:
        if not 0 <= colluder < clients:
            raise SettingError(
                f"adversary.colluders: client {colluder} is not in the roster; choose from 0 to {clients - 1}"
            )


def keep_states(folder: Path, states: Path, num_clients: int) -> None:
    """Every client's tables of the last recorded round, so that any of them can be made a colluder later."""
    last = Recording(folder / "transcript").rounds[-1]
    for number in range(num_clients):
        files = StateFiles(states / f"client-{number}")
        state = files.newest(last)
        if state is None:
            raise InputError(f"{states}: client {number} kept no state of round {last}; run it again")
        tables = {kind: state.tables[kind] for kind in _KINDS}
        held = {}
        for key, rows in files.load_arrays("holdings").items():
            if key.endswith(".rows"):
                held[f"rows.{key.removesuffix('.rows')}"] = rows.astype(np.int64)
        with staged(folder / "transcript" / "clients" / f"client-{number}.safetensors", private=True) as path:
            save_file({**tables, **held}, path)


@dataclass(frozen=True)
class RecordedRun:
    """A run folder with a transcript, from which each adversary's view is cut."""

    folder: Path

    @cached_property
    def recording(self) -> Recording:
        return Recording(self.folder / "transcript")

    @cached_property
    def experiment(self) -> Experiment:
        path = self.folder / "experiment.toml"
        if not path.is_file():
            raise InputError(
                f"{self.folder} is not a run folder (it has no experiment.toml); give the folder of a run"
            )
        return Experiment.load(path)

    @cached_property
    def truth(self) -> Truth:
        folders = (self.folder / "data" / f"client-{number}" for number in range(self.num_clients))
        return Truth(tuple(map(load_graph, folders)))

    @property
    def num_clients(self) -> int:
        return self.experiment.data.clients

    @property
    def shared(self) -> tuple[str, ...]:
        return STRATEGIES[self.experiment.federation.strategy].shared

    @property
    def secure(self) -> bool:
        return self.experiment.privacy.secure_aggregation and bool(self.shared)

    def views(self, colluders: Sequence[int], leak_ratio: float) -> list[View]:
        """Every adversary's view of this run: the server alone, with its colluders, and a client alone."""
        self._check(colluders, leak_ratio)
        server = _Coalition(self, (), 0.0, server=True)
        found = [server.masked() if self.secure else server.uploads()]
        if colluders:
            allied = _Coalition(self, tuple(colluders), leak_ratio, server=True)
            found += [allied.masked(), allied.aggregate()] if self.secure else [allied.uploads()]
            if "entity" not in self.shared:
                found.append(allied.granted())
            found.append(_Coalition(self, tuple(colluders[:1]), 1.0, server=False).alone())
        return found

    def _check(self, colluders: Sequence[int], leak_ratio: float) -> None:
        if not 0 < leak_ratio <= 1:
            raise SettingError(
                f"leak ratio {leak_ratio:g}: expected a number above 0 and at most 1, such as 0.3"
            )
        check_colluders(colluders, self.num_clients)
        if len(colluders) == self.num_clients:
            raise SettingError(
                f"adversary.colluders: all {self.num_clients} clients collude, and nobody is left to attack; "
                "name fewer"
            )
        if not self.shared:
            raise InputError(
                f"{self.folder}: {self.experiment.federation.strategy} sends no embeddings, so its server "
                "has no view to attack; record a run of FedE, FedR or FedER"
            )

    def state(self, client: int) -> Mapping[str, NDArray[np.float32]]:
        path = self.folder / "transcript" / "clients" / f"client-{client}.safetensors"
        if not path.is_file():
            raise InputError(
                f"{path}: the run ended before its clients' states were kept; resume or run again"
            )
        return load_file(path)

    def labels(self, client: int, kind: str) -> tuple[str, ...]:
        graph = self.truth.clients[client]
        return graph.entity_labels if kind == "entity" else graph.relation_labels


@dataclass(frozen=True)
class _Coalition:
    """The parties of one adversary, and what they can put together."""

    run: RecordedRun
    colluders: tuple[int, ...]
    leak_ratio: float
    server: bool

    # The views.

    def uploads(self) -> View:
        """Nothing is protected: each client's rows, by name, in every recorded round."""
        shots = []
        for round in self.run.recording.rounds:
            tables, uploads = self.run.recording.tables(round), self.run.recording.uploads(round)
            before = self.run.recording.before(round)
            local: dict[str, dict[int, Rows]] = {kind: {} for kind in _KINDS}
            for client, upload in uploads.items():
                for kind, table in upload.tables.items():
                    local[kind][client] = self._named(kind, moved(before[kind], table))
            whole = {kind: self._named(kind, tables[kind]) if kind in tables else None for kind in _KINDS}
            shots.append(
                Snapshot(round, whole["entity"], whole["relation"], local["entity"], local["relation"])
            )
        return self._view("uploads", shots, presence=self._presence())

    def masked(self) -> View:
        """Secure aggregation: each client's vector as it travelled, read as if it were not masked."""
        shots = []
        for round in self.run.recording.rounds:
            local: dict[str, dict[int, Rows]] = {kind: {} for kind in _KINDS}
            for client, upload in self.run.recording.uploads(round).items():
                for kind, rows in self._unpacked(round, upload).items():
                    local[kind][client] = rows
            shots.append(Snapshot(round, lee=local["entity"], lre=local["relation"]))
        return self._view("masked uploads", shots, sums_only=True)

    def aggregate(self) -> View:
        """Secure aggregation: the sums, and what a colluder's names and initial rows make of them."""
        return self._view("aggregate", self._broadcasts(), presence=self._presence(), sums_only=True)

    def granted(self) -> View:
        """The assumption of FedR's section 4.2: each client's entity rows too, without names."""
        shots = list(self._broadcasts() if self.run.secure else self.uploads().rounds)
        rows = {
            client: Rows(np.full(len(table), UNKNOWN, dtype=np.int64), table, Source.GRANTED)
            for client in range(self.run.num_clients)
            if client not in self.colluders
            for table in [self.run.state(client)["entity"]]
        }
        shots[-1] = replace(shots[-1], lee=rows)
        return self._view("granted entity rows", shots, presence=self._presence(), sums_only=self.run.secure)

    def alone(self) -> View:
        """A client that is curious by itself: its own pairs, and what the server sends it."""
        return self._view("broadcasts", self._broadcasts(), sums_only=self.run.secure)

    # Their parts.

    @cached_property
    def vocabulary(self) -> Mapping[str, tuple[str, ...]]:
        """The labels that the coalition knows: those of its clients, and those that the server read."""
        found = {}
        for kind in _KINDS:
            known: dict[str, None] = {}
            if self.server and kind in self.run.shared:
                known.update(dict.fromkeys(self._read_labels(kind)))
            for client in self.colluders:
                known.update(dict.fromkeys(self.run.labels(client, kind)))
            found[kind] = tuple(known)
        return found

    def _read_labels(self, kind: str) -> Iterable[str]:
        """What the server reads in the clear."""
        union = self.run.recording.union(kind)
        if union is not None:
            return union.names
        if self.run.experiment.privacy.union == "plain":
            return sorted({label for c in range(self.run.num_clients) for label in self.run.labels(c, kind)})
        return ()

    @cached_property
    def _name_of(self) -> Mapping[str, Mapping[str, int]]:
        return {
            kind: {label: n for n, label in enumerate(labels)} for kind, labels in self.vocabulary.items()
        }

    def _own_names(self, client: int, kind: str) -> Names:
        """The name of each of a client's labels, UNKNOWN if the coalition does not know it."""
        return self._names(kind, self.run.labels(client, kind))

    def _names(self, kind: str, labels: Sequence[str]) -> Names:
        name_of = self._name_of[kind]
        return np.fromiter((name_of.get(label, UNKNOWN) for label in labels), np.int64, len(labels))

    @cached_property
    def _row_names(self) -> Mapping[str, Names]:
        """The name of each shared row, by its number."""
        found = {}
        for kind in self.run.shared:
            union = self.run.recording.union(kind)
            if union is not None:
                found[kind] = self._names(kind, union.names)
                continue
            names = np.full(len(self.run.recording.holders[kind]), UNKNOWN, dtype=np.int64)
            readable = self.server and self.run.experiment.privacy.union == "plain"
            for client in range(self.run.num_clients) if readable else self.colluders:
                names[self.run.state(client)[f"rows.{kind}"]] = self._own_names(client, kind)
            found[kind] = names
        return found

    def _named(self, kind: str, offsets: Table) -> Rows:
        """Rows by name: their initial rows, which follow from the labels, plus offsets."""
        names = self._row_names[kind][offsets.ids]
        labels = [self.vocabulary[kind][name] for name in names]
        return Rows(names, initial_rows(self.run.experiment, kind, labels) + offsets.rows)

    def _unpacked(self, round: int, upload: Upload) -> dict[str, Rows]:
        """A masked vector, after the header and its length, cut into the rows that it would hold unmasked."""
        words = np.frombuffer(upload.protocol["masked"][HEADER_SIZE + 8 :], dtype="<u4").astype(np.uint32)
        point = FixedPoint(self.run.experiment.privacy.clip, self.run.num_clients)
        start, found = 0, {}
        for kind, table in sorted(self.run.recording.tables(round).items()):
            values = point.decode(words[start : start + table.rows.size]).reshape(table.rows.shape)
            found[kind] = Rows(self._row_names[kind][table.ids], values.astype(np.float32), masked=True)
            start += table.rows.size
        return found

    def _broadcasts(self) -> list[Snapshot]:
        """The global rows of the coalition's clients: initial rows plus offsets."""
        shots = []
        for round in self.run.recording.rounds:
            whole = {kind: self._global(kind, round) for kind in self.run.shared}
            shots.append(Snapshot(round, whole.get("entity"), whole.get("relation")))
        return shots

    def _global(self, kind: str, round: int) -> Rows:
        table = self.run.recording.tables(round)[kind]
        names, values = [], []
        for client in self.colluders:
            state = self.run.state(client)
            rows = state[f"rows.{kind}"]
            local = np.flatnonzero(np.isin(rows, table.ids))
            place = np.searchsorted(table.ids, rows[local])
            labels = self.run.labels(client, kind)
            initial = initial_rows(self.run.experiment, kind, [labels[row] for row in local])
            names.append(self._own_names(client, kind)[local])
            values.append(initial + table.rows[place])
        distinct, first = np.unique(np.concatenate(names), return_index=True)
        return Rows(distinct, np.concatenate(values)[first])

    def _presence(self) -> Mapping[str, Mapping[int, Names]]:
        """Who holds what, where the union or the uploads tell the server."""
        if self.run.secure and self.run.experiment.privacy.union in ("private", "oprf"):
            return {}
        found = {}
        for kind in self.run.shared:
            held = {client: self._own_names(client, kind) for client in range(self.run.num_clients)}
            found[kind] = {client: names[names != UNKNOWN] for client, names in held.items()}
        return found

    def _holders(self) -> Mapping[str, Names]:
        if not (self.server and self.run.secure):
            return {}
        found = {}
        for kind, counts in self.run.recording.holders.items():
            names = self._row_names[kind]
            known = np.zeros(len(self.vocabulary[kind]), dtype=np.int64)
            known[names[names != UNKNOWN]] = counts[names != UNKNOWN]
            found[kind] = known
        return found

    def _handed(self) -> tuple[Handover, ...]:
        found = []
        for client in self.colluders:
            state = self.run.state(client)
            rng = draw(self.run.experiment.seed, _LEAK, client)
            names = {kind: self._own_names(client, kind) for kind in _KINDS}
            tables = {kind: state[kind] for kind in _KINDS}
            graph = self.run.truth.clients[client]  # its own, which it may show
            found.append(hand_over(client, graph, tables, names, self.leak_ratio, rng))
        return tuple(found)

    def _view(
        self,
        name: str,
        shots: Sequence[Snapshot],
        presence: Mapping[str, Mapping[int, Names]] | None = None,
        sums_only: bool = False,
    ) -> View:
        parties = [*(["server"] if self.server else []), *(f"client {client}" for client in self.colluders)]
        tables = self.run.recording.tables(self.run.recording.rounds[-1])
        holders = self.run.recording.holders
        return View(
            name,
            " + ".join(parties),
            self.run.experiment.federation.strategy,
            self.run.experiment.model,
            self.run.num_clients,
            self.vocabulary["entity"],
            self.vocabulary["relation"],
            tuple(shots),
            self._handed(),
            self.leak_ratio,
            presence or {},
            self._holders(),
            {kind: len(holders.get(kind, table.ids)) for kind, table in tables.items()}
            if self.server
            else {},
            sums_only,
        )
