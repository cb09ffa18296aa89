"""A server that acts: it pushes triples apart in what it sends, and watches who pulls them together again.

After the active attacks of Hu et al. (2023) on federated knowledge graphs. In the open it may send every
client rows of its own. Under secure aggregation masks are bound to what a client was sent, so that a sum over
clients who were sent different rows does not unmask: it must send all the same rows, and sees their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedkge.attacks.behaviours.tampering import apart, push_apart
from fedkge.attacks.initial_rows import initial_rows
from fedkge.attacks.membership.central.signals import scores
from fedkge.attacks.membership.federated.relation_fit import fitted_relations
from fedkge.attacks.membership.guesses import Values
from fedkge.client.models import MODELS
from fedkge.client.state import StateFiles
from fedkge.exchange import Table
from fedkge.experiment import Experiment
from fedkge.server.loop import Federation
from fedkge.server.progress import Observer
from fedkge.server.records import Records
from fedkge.server.sums import OpenSums, SecureSums, Steps, Sums, Then
from fedkge.server.sums.sums import Tables

__all__ = ["ActingServer", "Asked", "Colluder", "asked_in"]

Ids = NDArray[np.int64]
Target = int | None  # a client, or None for all of them behind a sum

_UNSHARED = -1  # the row number of a label whose row does not travel


@dataclass(frozen=True, eq=False)
class Asked:
    """The triples that the server asks about, and when; what the answers are is not here."""

    triples: Ids  # (n, 3) numbers of entities and relations
    rounds: Ids  # (n,) the round in which each is pushed apart, or 0 for never

    @cached_property
    def numbered(self) -> Ids:
        """(n, 3) the triples with their relations numbered from 0."""
        _, relation = np.unique(self.triples[:, 1], return_inverse=True)
        numbered: Ids = np.stack([self.triples[:, 0], relation, self.triples[:, 2]], axis=1)
        return numbered

    def during(self, round: int) -> Ids:
        return np.flatnonzero(self.rounds == round)


def asked_in(
    triples: Ids, num_entities: int, rounds: Sequence[int], rng: np.random.Generator
) -> NDArray[np.int64]:
    """(n,) the round of each triple, so that no entity is in two of one round; 0 for those that are left."""
    when = np.zeros(len(triples), dtype=np.int64)
    for round in rounds:
        waiting = np.flatnonzero(when == 0)
        when[waiting[apart(triples[waiting], num_entities, rng)]] = round
    return when


@dataclass(frozen=True)
class Colluder:
    """A client that tells the server the row numbers of its own labels."""

    client: int
    labels: tuple[str, ...]  # of its entities, in its own order

    def rows(self, states: Path) -> Mapping[str, int]:
        """By label, from what this client keeps; a label that few hold has no row."""
        rows = StateFiles(states / f"client-{self.client}").load_arrays("holdings")["entity.rows"]
        return dict(zip(self.labels, rows.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class _Exchange:
    """Entity rows as a target was sent them, and as they came back."""

    sent: NDArray[np.float32]  # (entities, w)
    back: NDArray[np.float32]


class ActingServer:
    """What one malicious server does and sees; it is called in place of the honest Federation.

    In a round of the plan it pushes that round's triples apart, for their target alone where it can. The
    honest round before is its control: the same scores, from what it would have sent anyway.
    """

    def __init__(
        self,
        experiment: Experiment,
        entities: Sequence[str],
        asked: Mapping[Target, Asked],
        colluders: Sequence[Colluder],
        strength: float,
        rng: np.random.Generator,
    ) -> None:
        self.experiment = experiment
        self.entities = tuple(entities)
        self.asked = asked
        self.colluders = colluders
        self.strength = strength
        self.rng = rng
        self.signals = {
            target: {name: np.full(len(about.triples), np.nan) for name in SIGNALS}
            for target, about in asked.items()
        }
        self._last: dict[Target, _Exchange] = {}
        self._relations: dict[Target, NDArray[np.float32]] = {}
        self._rows: Ids | None = None
        self._initial: NDArray[np.float32] | None = None

    def __call__(
        self, experiment: Experiment, records: Records, observer: Observer | None = None, run: str = ""
    ) -> Federation:
        """The federation that this server runs."""
        return _ActingFederation(self, experiment, records, observer, run)

    # What the sums ask.

    def acts(self, target: Target, round: int) -> bool:
        return target in self.asked and bool(len(self.asked[target].during(round)))

    def altered(self, target: Target, round: int, table: Table, row_of: Callable[[], Ids]) -> Table:
        """The entity offsets to send to a target in a round."""
        rows = self._rows_in(table, row_of)
        entity, triples = self._entity_rows(table, rows), self._triples(target, round, rows)
        if not len(triples):
            return table
        relation = self._relations[target] = self._fitted(target, entity, rows)
        kind = MODELS[self.experiment.model.name]
        model = kind.of_rows(self.experiment.model, entity.copy(), relation)
        push_apart(model, triples.astype(np.int32), self.strength)
        pushed = np.unique(triples[:, [0, 2]])
        change = model.entity.numpy()[pushed] - entity[pushed]
        offsets = table.rows.copy()
        offsets[np.searchsorted(table.ids, rows[pushed])] += change
        return replace(table, rows=offsets)

    def watch(self, target: Target, round: int, sent: Table, step: Table, row_of: Callable[[], Ids]) -> None:
        """Take note of what came back."""
        rows = self._rows_in(sent, row_of)
        moved = sent.rows.copy()
        moved[np.searchsorted(sent.ids, step.ids)] += step.rows
        now = _Exchange(self._entity_rows(sent, rows), self._entity_rows(replace(sent, rows=moved), rows))
        if self.acts(target, round) and target in self._relations:
            self._score(target, round, now, rows)
        self._last[target] = now

    def _score(self, target: Target, round: int, now: _Exchange, rows: Ids) -> None:
        about, triples = self.asked[target].during(round), self._triples(target, round, rows)
        usable = self._usable(self.asked[target].triples[about], rows)
        relation = self._relations.pop(target)

        def under(entity: NDArray[np.float32]) -> Values:
            model = MODELS[self.experiment.model.name].of_rows(self.experiment.model, entity, relation)
            return scores(model, triples.astype(np.int32))

        before = self._last.get(target)
        values = {"repair": under(now.back) - under(now.sent)}
        if before is not None:
            values["score (passive)"] = under(before.back)
            values["gain (passive)"] = under(before.back) - under(before.sent)
            values["repair above the gain"] = values["repair"] - values["gain (passive)"]
        for name, value in values.items():
            self.signals[target][name][about[usable]] = value

    # Rows.

    def _rows_in(self, table: Table, row_of: Callable[[], Ids]) -> Ids:
        """(entities,) the row of each label in a table; a union may number labels whose rows stay away."""
        if self._rows is None:
            self._rows = row_of()
            self._initial = initial_rows(self.experiment, "entity", self.entities)
        rows: Ids = np.where(np.isin(self._rows, table.ids), self._rows, _UNSHARED)
        return rows

    def _entity_rows(self, table: Table, rows: Ids) -> NDArray[np.float32]:
        """(entities, w) initial rows plus offsets; rows that do not travel stay as they began."""
        assert self._initial is not None
        entity = self._initial.copy()
        there = np.flatnonzero(rows != _UNSHARED)
        entity[there] += table.rows[np.searchsorted(table.ids, rows[there])]
        return entity

    def _usable(self, triples: Ids, rows: Ids) -> NDArray[np.bool_]:
        usable: NDArray[np.bool_] = (rows[triples[:, [0, 2]]] != _UNSHARED).all(axis=1)
        return usable

    def _triples(self, target: Target, round: int, rows: Ids) -> Ids:
        """The round's triples whose rows travel."""
        triples = self.asked[target].numbered[self.asked[target].during(round)]
        return triples[self._usable(triples, rows)]

    def _fitted(self, target: Target, entity: NDArray[np.float32], rows: Ids) -> NDArray[np.float32]:
        """Relation rows, which nobody sent: those under which all triples asked about look truest."""
        triples = self.asked[target].numbered
        usable = triples[self._usable(triples, rows)].astype(np.int32)
        return fitted_relations(self.experiment.model, entity, usable, triples[:, 1].max() + 1, self.rng)


SIGNALS = ("score (passive)", "gain (passive)", "repair", "repair above the gain")


class _ActingFederation(Federation):
    """The honest loop over sums that the server meddles with."""

    def __init__(self, server: ActingServer, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.server = server

    def _build_sums(self, grid: Grid) -> Sums:
        sums = super()._build_sums(grid)
        if isinstance(sums, SecureSums):
            states = self.records.folder / "clients" / f"run-{self.run}"
            return _ActingSecureSums(self.server, sums, states)
        assert isinstance(sums, OpenSums)
        return _ActingOpenSums(self.server, sums)


class _ActingOpenSums(OpenSums):
    """Sends rows of its own to each client that it asks about."""

    def __init__(self, server: ActingServer, honest: OpenSums) -> None:
        vars(self).update(vars(honest))
        self.server = server
        self._training: int | None = None  # the round in which rows go out for training
        self._sent: dict[int, Table] = {}

    def steps(
        self, round: int, clients: Sequence[int], tables: Tables, metadata: Mapping[str, Any], then: Then
    ) -> Steps:
        self._training, self._sent = round, {}
        for client in clients:
            if self.server.acts(client, round):
                self.delivered.pop(client, None)  # it gets its rows, even if it has them
        try:
            steps = super().steps(round, clients, tables, metadata, then)
        finally:
            self._training = None
        for client, step in steps.uploads["entity"].items():
            sent = self._sent.get(client) or tables["entity"].pick(self._held(client))
            self.server.watch(client, round, sent, step, self._named_rows)
        return steps

    def _news(self, client: int, round: int, tables: Tables) -> Tables:
        news = dict(super()._news(client, round, tables))
        if self._training is not None and self.server.acts(client, self._training):
            news["entity"] = self._sent[client] = self.server.altered(
                client, self._training, news["entity"], self._named_rows
            )
        return news

    def _held(self, client: int) -> NDArray[np.int32]:
        return np.sort(self.rows["entity"][client]).astype(np.int32)

    def _named_rows(self) -> Ids:
        """The server reads labels in the open."""
        row_of = {label: row for row, label in enumerate(self.listings["entity"].names)}
        return _numbers(row_of, self.server.entities)


class _ActingSecureSums(SecureSums):
    """Sends all clients the same altered rows, and sees what their steps add up to."""

    def __init__(self, server: ActingServer, honest: SecureSums, states: Path) -> None:
        vars(self).update(vars(honest))
        self.server = server
        self.states = states

    def steps(
        self, round: int, clients: Sequence[int], tables: Tables, metadata: Mapping[str, Any], then: Then
    ) -> Steps:
        sent = dict(tables)
        if self.server.acts(None, round):
            sent["entity"] = self.server.altered(None, round, tables["entity"], self._named_rows)
            self.delivered = {}  # all get the rows, even if they have them
        steps = super().steps(round, clients, sent, metadata, then)
        mean = Table(sent["entity"].ids, steps.means["entity"].astype(np.float32))
        self.server.watch(None, round, sent["entity"], mean, self._named_rows)
        return steps

    def _named_rows(self) -> Ids:
        """Whoever colludes names its rows; nobody else does."""
        row_of: dict[str, int] = {}
        for colluder in self.server.colluders:
            row_of |= colluder.rows(self.states)
        return _numbers(row_of, self.server.entities)


def _numbers(row_of: Mapping[str, int], labels: Sequence[str]) -> Ids:
    return np.fromiter((row_of.get(label, _UNSHARED) for label in labels), np.int64, len(labels))
