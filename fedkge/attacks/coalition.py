"""Who attacks a recorded run, and what they can put together: the server, its colluders, a curious client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.collusion import hand_over
from fedkge.attacks.encoders import OwnEncoder, encoded, of_inputs
from fedkge.attacks.initial_rows import initial_rows, moved
from fedkge.attacks.recorded_run import KINDS, RecordedRun
from fedkge.attacks.view import UNKNOWN, Handover, Movement, Rows, Snapshot, Source, View
from fedkge.client.models import MODELS
from fedkge.crypto import FixedPoint
from fedkge.crypto.aggregation import masked_words
from fedkge.datasets.labels import is_local
from fedkge.errors import InputError, SettingError
from fedkge.exchange import Table, Upload
from fedkge.experiment import Experiment
from fedkge.seeding import draw

__all__ = ["Coalition", "check_adversary", "check_colluders", "views_of"]

_FIRST_ROUNDS = 3  # whose steps the server's view keeps by row number
_LEAK = 7  # tells the draw of leaked pairs from the other draws of a seed

Names = NDArray[np.int64]


def check_adversary(experiment: Experiment) -> None:
    """Refuse an adversary that this federation cannot have."""
    adversary = experiment.adversary
    if adversary.attacks and adversary.record == "off":
        raise SettingError(
            'adversary.attacks: nothing is recorded that they could attack; set adversary.record = "last"'
        )
    check_colluders(adversary.colluders, experiment.data.clients)


def check_colluders(colluders: Sequence[int], num_clients: int) -> None:
    """Refuse clients that are named twice or are not there."""
    if len(set(colluders)) < len(colluders):
        raise SettingError(f"adversary.colluders: {list(colluders)} names a client twice; name each once")
    for colluder in colluders:
        if not 0 <= colluder < num_clients:
            raise SettingError(
                f"adversary.colluders: client {colluder} is not in the roster; choose from 0 to "
                f"{num_clients - 1}"
            )


def views_of(run: RecordedRun, colluders: Sequence[int], leak_ratio: float) -> list[View]:
    """Every adversary's view of a run: the server alone, with its colluders, and the first of these alone.

    Of a model with an encoder there are two of each that a colluder is part of: rows as they travelled, and
    put through the first colluder's own encoder.
    """
    views = list(_views_of(run, colluders, leak_ratio))
    through = [
        encoded(view, coalition.own_encoder)
        for view, coalition in views
        if coalition.colluders and coalition.encodes and not _is_masked(view)
    ]
    return [of_inputs(view) for view, _ in views] + [view for view in through if view is not None]


def _is_masked(view: View) -> bool:
    return any(rows.masked for rows in view.last.lee.values())


def _views_of(
    run: RecordedRun, colluders: Sequence[int], leak_ratio: float
) -> Iterator[tuple[View, Coalition]]:
    """Each view with whose it is."""
    _check(run, colluders, leak_ratio)
    server = Coalition(run, (), 0.0, server=True)
    yield (server.masked() if run.secure else server.uploads()), server
    if colluders:
        allied = Coalition(run, tuple(colluders), leak_ratio, server=True)
        for view in [allied.masked(), allied.aggregate()] if run.secure else [allied.uploads()]:
            yield view, allied
        if "entity" not in run.shared:
            yield allied.granted(), allied
        alone = Coalition(run, tuple(colluders[:1]), 1.0, server=False)
        yield alone.alone(), alone


def _check(run: RecordedRun, colluders: Sequence[int], leak_ratio: float) -> None:
    if not 0 < leak_ratio <= 1:
        raise SettingError(f"leak ratio {leak_ratio:g}: expected a number above 0 and at most 1, such as 0.3")
    check_colluders(colluders, run.num_clients)
    if len(colluders) == run.num_clients:
        raise SettingError(
            f"adversary.colluders: all {run.num_clients} clients collude, and nobody is left to attack; "
            "name fewer"
        )
    if not run.shared:
        raise InputError(
            f"{run.folder}: {run.experiment.federation.strategy} sends no rows of entities or relations, so "
            "its server has no view that attacks look at; record a run of FedE, FedR or FedER"
        )


@dataclass(frozen=True)
class Coalition:
    """The parties of one adversary, and what they can put together."""

    run: RecordedRun
    colluders: tuple[int, ...]
    leak_ratio: float  # the share of its entities that each colluder hands over
    server: bool  # whether the server is one of them

    # The views.

    def uploads(self) -> View:
        """Nothing is protected: each client's rows, by name, in every recorded round."""
        shots, recording = [], self.run.recording
        for round in recording.rounds:
            before = recording.before(round)
            local = {
                client: {
                    kind: self._named(kind, moved(before[kind], table))
                    for kind, table in upload.tables.items()
                    if kind in self.run.shared
                }
                for client, upload in recording.uploads(round).items()
            }
            tables = recording.tables(round)
            whole = {kind: self._named(kind, tables[kind]) for kind in self.run.shared}
            shots.append(_snapshot(round, whole, local))
        return self._view("uploads", shots, presence=self._presence())

    def masked(self) -> View:
        """Secure aggregation: each client's vector as it travelled, read as if it were not masked."""
        shots, recording = [], self.run.recording
        for round in recording.rounds:
            uploads = recording.uploads(round)
            local = {client: self._unpacked(round, upload) for client, upload in uploads.items()}
            shots.append(_snapshot(round, {}, local))
        return self._view("masked uploads", shots, sums_only=True)

    def aggregate(self) -> View:
        """Secure aggregation: the sums, and what a colluder's names and initial rows make of them."""
        return self._view("aggregate", self._broadcasts(), presence=self._presence(), sums_only=True)

    def granted(self) -> View:
        """The assumption of FedR's section 4.2: each client's entity rows too, without names."""
        shots = list(self._broadcasts() if self.run.secure else self.uploads().rounds)
        tables = {
            client: self.run.state(client)["entity"]
            for client in range(self.run.num_clients)
            if client not in self.colluders
        }
        rows = {
            client: Rows(np.full(len(table), UNKNOWN, dtype=np.int64), table, Source.GRANTED)
            for client, table in tables.items()
        }
        shots[-1] = replace(shots[-1], lee=rows)
        return self._view("granted entity rows", shots, presence=self._presence(), sums_only=self.run.secure)

    def alone(self) -> View:
        """A client that is curious by itself: its own pairs, and what the server sends it."""
        return self._view("broadcasts", self._broadcasts(), sums_only=self.run.secure)

    # Encoders.

    @property
    def encodes(self) -> bool:
        return MODELS[self.run.experiment.model.name].has_encoder

    @property
    def own_encoder(self) -> OwnEncoder:
        """The first colluder's."""
        client = self.colluders[0]
        return OwnEncoder(
            client,
            self.run.experiment.model,
            self.run.truth.clients[client],
            self.run.parameters(client),
            self._names_of(client, "entity"),
            self._names_of(client, "relation"),
        )

    # Names.

    @cached_property
    def vocabulary(self) -> Mapping[str, tuple[str, ...]]:
        """The labels that the coalition knows: those of its clients, and those that the server read."""
        vocabulary = {}
        for kind in KINDS:
            known: dict[str, None] = {}
            if self.server and kind in self.run.shared:
                known.update(dict.fromkeys(self._read_labels(kind)))
            for client in self.colluders:
                known.update(dict.fromkeys(self.run.labels(client, kind)))
            vocabulary[kind] = tuple(known)
        return vocabulary

    def _read_labels(self, kind: str) -> Iterable[str]:
        """What the server reads in the clear."""
        union = self.run.recording.union(kind)
        if union is not None:
            return union.names
        if self.run.experiment.privacy.union == "plain":
            held = (label for c in range(self.run.num_clients) for label in self.run.labels(c, kind))
            return sorted({label for label in held if not is_local(label)})
        return ()

    @cached_property
    def _name_of(self) -> Mapping[str, Mapping[str, int]]:
        return {
            kind: {label: n for n, label in enumerate(labels)} for kind, labels in self.vocabulary.items()
        }

    def _names(self, kind: str, labels: Sequence[str]) -> Names:
        """The name of each label, UNKNOWN if the coalition does not know it."""
        name_of = self._name_of[kind]
        return np.fromiter((name_of.get(label, UNKNOWN) for label in labels), np.int64, len(labels))

    def _names_of(self, client: int, kind: str) -> Names:
        return self._names(kind, self.run.labels(client, kind))

    @cached_property
    def _row_names(self) -> Mapping[str, Names]:
        """The name of each shared row, by its number."""
        row_names = {}
        for kind in self.run.shared:
            union = self.run.recording.union(kind)
            if union is not None:
                row_names[kind] = self._names(kind, union.names)
                continue
            names = np.full(len(self.run.recording.holders[kind]), UNKNOWN, dtype=np.int64)
            readable = self.server and self.run.experiment.privacy.union == "plain"
            for client in range(self.run.num_clients) if readable else self.colluders:
                rows = self.run.state(client)[f"rows.{kind}"]
                names[rows[rows >= 0]] = self._names_of(client, kind)[rows >= 0]
            row_names[kind] = names
        return row_names

    # Rows.

    def _named(self, kind: str, offsets: Table) -> Rows:
        """Rows by name: their initial rows, which follow from the labels, plus offsets."""
        names = self._row_names[kind][offsets.ids]
        labels = [self.vocabulary[kind][name] for name in names]
        return Rows(names, initial_rows(self.run.experiment, kind, labels) + offsets.rows)

    def _unpacked(self, round: int, upload: Upload) -> dict[str, Rows]:
        """A masked vector cut into the rows that it would hold unmasked."""
        words = masked_words(upload.protocol["masked"])
        point = FixedPoint(self.run.experiment.privacy.clip, self.run.num_clients)
        start, unpacked = 0, {}
        for kind, table in sorted(self.run.recording.tables(round).items()):
            if kind in self.run.shared:
                values = point.decode(words[start : start + table.rows.size]).reshape(table.rows.shape)
                names = self._row_names[kind][table.ids]
                unpacked[kind] = Rows(names, values.astype(np.float32), masked=True)
            start += table.rows.size
        return unpacked

    def _broadcasts(self) -> list[Snapshot]:
        """The global rows of the coalition's clients: initial rows plus offsets."""
        return [
            _snapshot(round, {kind: self._global(kind, round) for kind in self.run.shared}, {})
            for round in self.run.recording.rounds
        ]

    def _global(self, kind: str, round: int) -> Rows:
        table = self.run.recording.tables(round)[kind]
        names, values = [], []
        for client in self.colluders:
            rows = self.run.state(client)[f"rows.{kind}"]
            local = np.flatnonzero(np.isin(rows, table.ids))
            labels = self.run.labels(client, kind)
            initial = initial_rows(self.run.experiment, kind, [labels[row] for row in local])
            names.append(self._names_of(client, kind)[local])
            values.append(initial + table.rows[np.searchsorted(table.ids, rows[local])])
        distinct, first = np.unique(np.concatenate(names), return_index=True)
        return Rows(distinct, np.concatenate(values)[first])

    # What is known beside rows.

    def _presence(self) -> Mapping[str, Mapping[int, Names]]:
        """Who holds what, where the union or the uploads tell the server."""
        if self.run.secure and self.run.experiment.privacy.union in ("private", "oprf"):
            return {}
        presence = {}
        for kind in self.run.shared:
            held = {client: self._names_of(client, kind) for client in range(self.run.num_clients)}
            presence[kind] = {client: names[names != UNKNOWN] for client, names in held.items()}
        return presence

    def _holders(self) -> Mapping[str, Names]:
        if not (self.server and self.run.secure):
            return {}
        holders = {}
        for kind, counts in self.run.recording.holders.items():
            names = self._row_names[kind]
            known = np.zeros(len(self.vocabulary[kind]), dtype=np.int64)
            known[names[names != UNKNOWN]] = counts[names != UNKNOWN]
            holders[kind] = known
        return holders

    def _movement(self) -> Mapping[str, Movement]:
        """What the server saw of the shared rows, whose initial rows it need not know."""
        rounds, movement = self.run.recording.rounds[:_FIRST_ROUNDS], {}
        for kind in self.run.shared if self.server else ():
            steps: list[NDArray[np.float32]] = []
            for round in rounds:
                after = self.run.recording.tables(round)[kind]
                before = self.run.recording.before(round)[kind].rows if steps else np.float32(0)
                steps.append(after.rows - before)
            ids, counted = after.ids.astype(np.int64), self.run.recording.holders.get(kind)
            holders = np.ones(len(ids), np.int64) if counted is None else counted[ids].astype(np.int64)
            movement[kind] = Movement(
                ids, self._row_names[kind][ids], np.stack(steps), tuple(rounds), holders
            )
        return movement

    def _handed(self) -> tuple[Handover, ...]:
        handed = []
        for client in self.colluders:
            state = self.run.state(client)
            rng = draw(self.run.experiment.seed, _LEAK, client)
            names = {kind: self._names_of(client, kind) for kind in KINDS}
            tables = {kind: state[kind] for kind in KINDS}
            graph = self.run.truth.clients[client]  # its own, which it may show
            handed.append(hand_over(client, graph, tables, names, self.leak_ratio, rng))
        return tuple(handed)

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
            self.run.experiment.seed,
            self._movement(),
        )


def _snapshot(round: int, whole: Mapping[str, Rows], local: Mapping[int, Mapping[str, Rows]]) -> Snapshot:
    """Global rows by table, and those of each client by table."""
    lee, lre = (
        {client: tables[kind] for client, tables in local.items() if kind in tables} for kind in KINDS
    )
    return Snapshot(round, whole.get("entity"), whole.get("relation"), lee, lre)
