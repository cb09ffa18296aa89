"""Secure sums: private set union first, then two exchanges per sum, of which the server sees the total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.agreement import plan_of, union_session, weights_digest
from fedkge.covers import KEY_SIZE, thin_words, veil
from fedkge.crypto import DIGEST_WORDS, UNION_MODES, Roster, SharedTable, UnionServer
from fedkge.errors import DataError, DropoutError, FederationError, ProtocolError
from fedkge.exchange import Download, Table, Upload
from fedkge.experiment import Experiment
from fedkge.metrics import RANKING, TRAINING, MetricSums
from fedkge.server.messenger import Messenger
from fedkge.server.privacy import Privacy
from fedkge.server.records import Records
from fedkge.server.sums.sessions import Sessions, Sum, Total
from fedkge.server.sums.sums import (
    Final,
    Scores,
    Shape,
    Steps,
    Sums,
    Tables,
    Then,
    Training,
    hello_of,
    shapes_of,
)
from fedkge.strategy import WEIGHTS, Strategy

__all__ = ["SecureSums"]

_EXPECTED = {"relation": 1024}  # a first guess at a union's size; it doubles on demand
_MOST_EXPECTED = 16384
_MOST_ATTEMPTS = 3  # of one sum

Counts = NDArray[np.int64]
Words = NDArray[np.uint32]


class SecureSums(Sums):
    """Knows how many clients hold each row, and sums over the roster; who drops out counts as unmoved."""

    def __init__(
        self, experiment: Experiment, strategy: Strategy, messenger: Messenger, records: Records, run: str
    ) -> None:
        self.settings = experiment.federation
        self.options = experiment.privacy
        self.strategy = strategy
        self.messenger = messenger
        self.run = run
        self.roster = _read_roster(records, experiment.data.clients)
        self.sessions = Sessions(messenger, records.count_start())
        self.counts: dict[str, Counts] = {}
        self.digests: dict[str, bytes] = {}  # of the unions' lists
        self.delivered: dict[int, int] = {}  # client -> the round whose tables it has
        self.held_back = 0  # rounds whose sum left out rows that dropouts would have laid bare

    # Before the first round.

    def join(self, num_clients: int, round: int, tables: Tables) -> Tables:
        """Unite labels and count holders, unless a checkpoint has that already."""
        try:
            return self._set_up(num_clients, round, tables)
        except ProtocolError as error:
            raise FederationError(
                f"the set-up needs every client of the roster ({error}); the reasons are in failures.csv: "
                "mend the client named there and resume, or begin a new run with a roster without it"
            ) from error

    def _set_up(self, num_clients: int, round: int, tables: Tables) -> Tables:
        fresh = not self.counts
        unions = {name: self._union(name) for name in self._may_have_labels} if fresh else {}
        requests = {f"union {name}": next(iter(union.requests.values())) for name, union in unions.items()}
        metadata = {**hello_of(self.settings.strategy, self.strategy), "secure": True, "fresh": fresh}
        uploads = self.messenger.meet(num_clients, Download(round, metadata=metadata, protocol=requests))
        shapes = shapes_of(uploads)
        if not fresh:
            self._plan(
                {
                    name: SharedTable(
                        len(self.counts[name]),
                        shapes[name].width,
                        self.digests[name],
                        table.ids,
                        self._holders(name, table),
                    )
                    for name, table in tables.items()
                }
            )
            return tables
        unions = {name: union for name, union in unions.items() if shapes[name].kind == "table"}
        self._unite(round, unions, uploads)
        self._plan({name: _laid_out(shape, unions.get(name)) for name, shape in shapes.items()})
        tables = self._count(
            round, {f"listing {name}": each.listing_message() for name, each in unions.items()}
        )
        shared = {
            name: Table(table.ids, table.rows[:, :0], self._holders(name, table))
            for name, table in tables.items()
        }
        self.sessions.acted.broadcast(tables)  # offsets of zero, which clients start from without being told
        self.sessions.prepare(Sum("delta", round + 1), "setup", Download(round, shared))
        self.delivered = dict.fromkeys(self.messenger.clients, round)
        return tables

    @property
    def _may_have_labels(self) -> list[str]:
        """What is shared, but for weights that only clients can name; clients say which of it are tables."""
        return sorted(name for name in self.strategy.shared if name != WEIGHTS)

    def _union(self, name: str) -> UnionServer:
        _, kind = UNION_MODES[self.options.union]
        session = union_session(self.roster, self.run, name, self.options)
        expected = _EXPECTED.get(name, _MOST_EXPECTED)
        return kind(session, expected=expected, attempt=self.sessions.first_attempt)

    def _unite(self, round: int, unions: Mapping[str, UnionServer], uploads: Mapping[int, Upload]) -> None:
        while True:
            with self.sessions.clock():
                for name, union in unions.items():
                    key = f"union {name}"
                    if not union.done:
                        replies = {c: up.protocol[key] for c, up in uploads.items() if key in up.protocol}
                        self._collect(union, replies, round)
            asked: dict[int, dict[str, bytes]] = {}
            for name, union in unions.items():
                for client, request in union.requests.items():
                    asked.setdefault(client, {})[f"union {name}"] = request
            if not asked:
                return
            uploads = self.messenger.ask(  # a union knows itself whether enough have answered
                dict.fromkeys(asked, Download(round)), "query.union", "union", round, asked, fewest=0
            )

    def _collect(self, union: UnionServer, replies: Mapping[int, bytes], round: int) -> None:
        """Take what is good of a step of a union; whoever sends anything else has dropped out of it."""
        while True:
            try:
                union.collect(replies)
                return
            except ProtocolError as error:
                if error.culprit is None or error.culprit not in replies:
                    raise
                self.messenger.blame(error.culprit, error, "union", round)
                replies = {client: reply for client, reply in replies.items() if client != error.culprit}

    def _count(self, round: int, listings: Mapping[str, bytes]) -> Tables:
        """How many clients hold each row: once per roster, over all of it. Rows that few hold stay home."""
        self.sessions.prepare(Sum("holders", None), "union", Download(round, protocol=listings))
        total = self.sessions.sum(
            Sum("holders", None), self.messenger.clients, Download(round), "query.count", "union"
        )
        start, tables = 0, {}
        for name, table in self.sessions.plan.tables.items():
            counts = total.words[start : start + table.num_rows].astype(np.int64)
            if counts.max(initial=0) > len(self.roster):
                raise FederationError(f"more than all clients hold a {name} row; one of them counted falsely")
            self.counts[name] = counts
            shared = np.flatnonzero(counts >= self.options.holders).astype(np.int32)
            tables[name] = Table(shared, np.zeros((len(shared), table.width), np.float32))
            start += table.num_rows
        self.sessions.plan = self.sessions.plan.with_shared(
            {name: table.ids for name, table in tables.items()},
            {name: self._holders(name, table) for name, table in tables.items()},
        )
        self.digests = {name: table.digest for name, table in self.sessions.plan.tables.items()}
        return tables

    def _plan(self, tables: Mapping[str, SharedTable]) -> None:
        self.sessions.plan = plan_of(self.roster, self.run, self.options, tables)

    # Rounds.

    def steps(
        self, round: int, clients: Sequence[int], tables: Tables, metadata: Mapping[str, Any], then: Then
    ) -> Steps:
        download = Download(round, self._broadcast(round - 1, tables), metadata)
        following = Sum("valid", round) if then == "evaluate" else Sum("delta", round + 1)
        total = self._sum(Sum("delta", round), clients, download, "train", "train", following)
        return Steps(self._means(total, tables), _training(total))

    def scores(self, round: int, tables: Tables, then: Then) -> Scores:
        following = Sum("delta", round + 1) if then == "train" else Sum("test", round)
        download, clients = Download(round, self._broadcast(round, tables)), self.messenger.clients
        total = self._sum(Sum("valid", round), clients, download, "evaluate", "evaluate", following)
        self.delivered.update(dict.fromkeys(total.survivors, round))
        return _scores(total.words, total)

    def final(self, round: int, best: int) -> Final:
        ask, clients = Download(round, metadata={"best": best}), self.messenger.clients
        try:
            total = self.sessions.sum(Sum("test", round), clients, ask, "evaluate.test", "test")
        except DropoutError as error:
            raise FederationError(
                f"the final test needs every client ({error}; see failures.csv). "
                f"{self.messenger.records.remedy}"
            ) from error
        ranked, digest = np.split(total.words, [RANKING.num_words])
        assert len(digest) == DIGEST_WORDS
        return Final(_scores(ranked, total), {-1: digest.astype("<u4").tobytes().hex()}, total.metadata)

    def _sum(
        self, wanted: Sum, clients: Sequence[int], download: Download, kind: str, phase: str, following: Sum
    ) -> Total:
        """A sum; whoever spoils it is left out of a new attempt, as far as clients have revealed nothing."""
        sessions = self.sessions
        for attempt in range(_MOST_ATTEMPTS):
            asked = [client for client in clients if client not in sessions.excluded]
            try:
                total = sessions.sum(wanted, asked, download, kind, phase, following)
            except DropoutError:
                left = set(asked) - sessions.culprits
                if len(left) < self.fewest or len(left) == len(asked) or attempt == _MOST_ATTEMPTS - 1:
                    raise
                sessions.excluded |= sessions.culprits
            else:
                sessions.excluded = set()
                return total
        raise AssertionError  # the last attempt returns or raises

    def _broadcast(self, round: int, tables: Tables) -> Tables:
        """The whole table for everybody, or nothing if everybody has it: the server cannot select rows."""
        current = all(self.delivered.get(client) == round for client in self.messenger.clients)
        return {} if current else tables

    def _means(self, total: Total, tables: Tables) -> dict[str, NDArray[np.float64]]:
        """Σ steps / holders, where a client that dropped out counts as unmoved."""
        start, means = 0, {}
        self._uncover(total)
        for name, table in tables.items():
            words = total.words[start : start + table.rows.size].reshape(table.rows.shape)
            divisor = self.counts[name][table.ids][:, None]
            means[name] = self.sessions.plan.fixed_point.decode(words, divisor=divisor)
            start += table.rows.size
        return means

    def _uncover(self, total: Total) -> None:
        """Lift the veils from thin rows, or leave the rows unmoved if a single key is missing."""
        thin = thin_words(self.sessions.plan.tables, self.options, len(self.roster))
        if not len(thin):
            return
        keys = [(total.veils.get(client, b""), -1) for client in total.survivors]
        if all(len(key) == KEY_SIZE for key, _ in keys):
            veil(total.words, thin, keys)
        else:
            total.words[thin] = 0
            self.held_back += 1

    def _holders(self, name: str, table: Table) -> NDArray[np.int32]:
        return self.counts[name][table.ids].astype(np.int32)

    # What is known, and kept.

    @property
    def fewest(self) -> int:
        return self.sessions.plan.threshold

    @property
    def seconds(self) -> float:
        return self.sessions.seconds

    @property
    def holders(self) -> Mapping[str, NDArray[Any]]:
        return self.counts

    def outcome(self, tables: Tables) -> Tables:
        """Sorted by their values: row numbers come from pseudonyms, which differ from run to run."""
        ordered = {}
        for name, table in tables.items():
            order = np.lexsort(table.rows.T) if table.rows.size else np.arange(len(table))
            ordered[name] = Table(np.arange(len(table), dtype=np.int32), table.rows[order])
        return ordered

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        counts = {f"counts/{name}": counts for name, counts in self.counts.items()}
        digests = {f"digest/{name}": np.frombuffer(raw, np.uint8) for name, raw in self.digests.items()}
        purpose, round, survivors = self.sessions.last or ("", None, [])
        last = {f"last/{purpose}": np.array([-1 if round is None else round, *survivors], np.int32)}
        return {**counts, **digests, **last, "held/rounds": np.array([self.held_back])}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for key, array in arrays.items():
            group, _, name = key.partition("/")
            if group == "counts":
                self.counts[name] = array
            elif group == "digest":
                self.digests[name] = array.tobytes()
            elif group == "held":
                self.held_back = int(array[0])
            elif group == "last":
                round, *survivors = map(int, array)
                self.sessions.last = name, None if round < 0 else round, survivors

    def privacy(self, clip_rate: float) -> Privacy:
        return Privacy.with_sums(
            self.options.union,
            {name: len(counts) for name, counts in self.counts.items()},
            {name: int((counts < self.options.holders).sum()) for name, counts in self.counts.items()},
            clip_rate,
            len(self.roster),
            self.fewest,
            self.options.consistency,
            self._covers(),
            self.options.colluders,
            self.held_back,
            self.options.rows_from_seed,
        )

    def _covers(self) -> dict[str, float]:
        """What share of the shared rows has which cover: holders less the clients assumed to collude."""
        counts = np.concatenate([np.zeros(0, dtype=np.int64), *self.counts.values()])
        shared = np.maximum(counts[counts >= self.options.holders] - self.options.colluders, 0)
        covers, rows = np.unique(shared, return_counts=True)
        return {str(cover): int(num) / len(shared) for cover, num in zip(covers, rows, strict=True)}


def _laid_out(shape: Shape, union: UnionServer | None) -> SharedTable:
    if union is None:
        return SharedTable(shape.rows, shape.width, weights_digest(shape.rows, shape.width))
    return SharedTable(union.listing.num_rows, shape.width, union.listing.digest)


def _training(total: Total) -> Training:
    scalars, num = TRAINING.decode(total.words[-TRAINING.num_words :]), len(total.survivors)
    return Training(
        {"all": scalars["loss"] / num},
        scalars["seconds"],
        int(scalars["triples"]),
        scalars["rss_mb"] / num,  # a mean: no maximum sums
        scalars["crypto"],
        scalars["clipped"],
        scalars["values"],
    )


def _scores(words: Words, total: Total) -> Scores:
    scalars = RANKING.decode(words)
    return Scores(MetricSums.from_scalars(scalars), scalars["seconds"], said=total.metadata)


def _read_roster(records: Records, num_clients: int) -> Roster:
    path = records.folder / "roster.txt"
    try:
        roster = Roster.from_text(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(
            f"{path}: secure aggregation needs the clients' public keys, one per line ({error.strerror}); "
            "collect them from the clients"
        ) from error
    if len(roster) != num_clients:
        raise DataError(f"{path}: {len(roster)} public keys for {num_clients} clients; give one per client")
    return roster
