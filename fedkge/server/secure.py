"""A federation whose server sees sums: private set union first, then two exchanges per secure sum."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedkge.crypto import DIGEST_WORDS, UNION_MODES, Plan, Roster, SharedTable, UnionServer, union_session
from fedkge.errors import DataError, DropoutError, FederationError
from fedkge.exchange import Download, Table, Upload
from fedkge.experiment import Experiment
from fedkge.metrics import RANKING, TRAINING, MetricSums
from fedkge.server.privacy import Privacy
from fedkge.server.progress import Observer
from fedkge.server.records import Records
from fedkge.server.strategy import Federation, Outcome, accounts_of
from fedkge.server.sums import SecureSums, Sum, Total

__all__ = ["SecureFederation"]

_log = logging.getLogger(__name__)
_EXPECTED = {"relation": 1024, "entity": 16384}  # a first guess at a union's size; it doubles on demand
_MOST_LOST_ROUNDS = 3  # one after the other, before the run gives up

Counts = NDArray[np.int64]


class SecureFederation(Federation):
    """The same loop over sums; the tables hold offsets from initial rows that the server does not know."""

    def __init__(
        self,
        experiment: Experiment,
        records: Records,
        observer: Observer | None,
        shared: tuple[str, ...],
    ) -> None:
        super().__init__(experiment, records, observer)
        self.sharing = shared
        self.roster = _read_roster(records, experiment.data.clients)
        self.counts: dict[str, Counts] = {}
        self.digests: dict[str, bytes] = {}  # of the unions' lists
        self.sums: SecureSums
        self._lost = 0

    def start(self, grid: Grid, num_clients: int, resume: bool = False) -> Outcome:  # type: ignore[override]
        self._run = str(grid.run.run_id)
        return super().start(grid, num_clients, resume)

    def join(self, num_clients: int) -> None:
        """Meet the clients; unite their labels and count holders, unless a checkpoint has that already."""
        self.sums = SecureSums(self.messenger, self.records.count_start())
        round = self.standing.round
        unions = {} if self.counts else {name: self._union(name) for name in sorted(self.sharing)}
        letters = {f"union {name}": next(iter(union.requests.values())) for name, union in unions.items()}
        facts = {"shared": list(self.sharing), "secure": True}
        uploads = self.messenger.meet(num_clients, Download(round, facts=facts, letters=letters))
        widths = _widths(uploads)
        if unions:
            self._unite(unions, uploads)
            digests = {name: union.listing.digest for name, union in unions.items()}
            sizes = {name: union.listing.num_rows for name, union in unions.items()}
            self.sums.plan = self._plan(
                {name: SharedTable(sizes[name], widths[name], digests[name]) for name in unions}
            )
            self._count(round, {f"listing {name}": union.listing_message() for name, union in unions.items()})
            shared = {name: _blank(table.ids) for name, table in self.tables.items()}
            self.sums.prepare(Sum("delta", round + 1), "setup", Download(round, shared))
            self.delivered = dict.fromkeys(self.messenger.clients, round)
        else:
            self.sums.plan = self._plan(
                {
                    name: SharedTable(len(self.counts[name]), widths[name], self.digests[name], table.ids)
                    for name, table in self.tables.items()
                }
            )

    def train(self, round: int) -> None:
        """One round; too many dropouts leave the tables as they were."""
        clients = self._participants(round)
        following = Sum("valid", round) if self.evaluates(round) else Sum("delta", round + 1)
        facts = {"keep": [self.standing.best_round, self.standing.settled], "settled": self.standing.settled}
        download = Download(round, self._broadcast(), facts)
        try:
            total = self.sums.sum(Sum("delta", round), clients, download, "train", "train", following)
        except DropoutError as error:
            self._lose(round, "train", error, expected=len(clients) < self.sums.plan.threshold)
            self.standing.round = round
            return
        self._lost = 0
        self._move(total)
        self.standing.round = round
        self._note_training(round, total)

    def evaluate(self, round: int) -> None:
        """The scores of all clients together decide what is best; without them the round is none."""
        clients = self.messenger.clients
        following = Sum("delta", round + 1) if round < self.settings.rounds else Sum("test", round)
        download = Download(round, self._broadcast())
        try:
            total = self.sums.sum(Sum("valid", round), clients, download, "evaluate", "evaluate", following)
        except DropoutError as error:
            self._lose(round, "evaluate", error, expected=False)
            return
        self.delivered.update(dict.fromkeys(total.survivors, round))
        self.note_spending(round, total.facts)
        self.judge(round, self._scores(round, "valid", total.words))

    def test(self, setup: float, joined: float) -> Outcome:
        """Every client goes back to the best round; scores and digests arrive as sums over all."""
        round, best = self.standing.round, self.standing.best_round
        ask = Download(round, facts={"best": best})
        clients = self.messenger.clients
        try:
            total = self.sums.sum(Sum("test", round), clients, ask, "evaluate.test", "test")
        except DropoutError as error:
            raise FederationError(
                f"the final test needs every client ({error}; see failures.csv); resume the run to test again"
            ) from error
        half = RANKING.num_words
        valid = self._scores(best, "valid", total.words[:half])
        test = self._scores(best, "test", total.words[half : 2 * half])
        digest = total.words[2 * half :].astype("<u4").tobytes().hex()
        assert len(total.words) == 2 * half + DIGEST_WORDS
        self.standing.crypto += self.sums.seconds
        accounts = accounts_of(total.facts)
        return Outcome(
            self.standing,
            valid,
            test,
            {},  # no client's own scores are known here
            {-1: digest},
            {name: _sorted(table) for name, table in self.tables.items()},
            {},
            setup,
            time.perf_counter() - joined,
            replace(self._privacy(), accounts=accounts),
        )

    def summary(self) -> None:
        mode = self.experiment.privacy.union
        _log.info("sums of %s rows are shared after a %s union", " and ".join(self.sharing), mode)

    def holder_counts(self) -> Mapping[str, NDArray[Any]]:
        return self.counts

    def settled_arrays(self) -> Mapping[str, NDArray[Any]]:
        counts = {f"{name}.counts": counts for name, counts in self.counts.items()}
        digests = {f"{name}.digest": np.frombuffer(each, np.uint8) for name, each in self.digests.items()}
        return {**counts, **digests}

    def restore_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.counts = {name: arrays[f"{name}.counts"] for name in self.tables}
        self.digests = {name: arrays[f"{name}.digest"].tobytes() for name in self.tables}

    # Before the first round.

    def _union(self, name: str) -> UnionServer:
        _, kind = UNION_MODES[self.experiment.privacy.union]
        session = union_session(self.roster, self._run, name, self.experiment.privacy)
        return kind(session, expected=_EXPECTED[name], attempt=self.sums.first_attempt)

    def _unite(self, unions: Mapping[str, UnionServer], uploads: Mapping[int, Upload]) -> None:
        round = self.standing.round
        while True:
            with self.sums.clock():
                for name, union in unions.items():
                    letter = f"union {name}"
                    if not union.done:
                        union.collect(
                            {c: up.letters[letter] for c, up in uploads.items() if letter in up.letters}
                        )
            asked: dict[int, dict[str, bytes]] = {}
            for name, union in unions.items():
                for client, request in union.requests.items():
                    asked.setdefault(client, {})[f"union {name}"] = request
            if not asked:
                return
            uploads = self.messenger.ask(  # a union knows itself whether enough have answered
                dict.fromkeys(asked, Download(round)), "query.union", "union", round, asked, fewest=0
            )

    def _count(self, round: int, listings: Mapping[str, bytes]) -> None:
        """How many clients hold each row: once per roster, and over all of it."""
        self.sums.prepare(Sum("holders", None), "union", Download(round, letters=listings))
        total = self.sums.sum(
            Sum("holders", None), self.messenger.clients, Download(round), "query.count", "union"
        )
        fewest, start, shared = self.experiment.privacy.min_holders, 0, {}
        for name, table in self.sums.plan.tables.items():
            counts = total.words[start : start + table.num_rows].astype(np.int64)
            if counts.max(initial=0) > len(self.roster):
                raise FederationError(f"more than all clients hold a {name} row; one of them counted falsely")
            self.counts[name] = counts
            shared[name] = np.flatnonzero(counts >= fewest).astype(np.int32)
            self.tables[name] = Table(shared[name], np.zeros((len(shared[name]), table.width), np.float32))
            start += table.num_rows
        self.sums.plan = self.sums.plan.with_shared(shared)
        self.digests = {name: table.digest for name, table in self.sums.plan.tables.items()}

    def _plan(self, tables: Mapping[str, SharedTable]) -> Plan:
        privacy = self.experiment.privacy
        quorum, known = privacy.quorum(len(self.roster)), dict(sorted(tables.items()))
        return Plan(self.roster, self._run, quorum, privacy.clip, privacy.consistency, known)

    # Rounds.

    def _broadcast(self) -> Mapping[str, Table]:
        """The whole table for everybody, or nothing if everybody has it: the server cannot select rows."""
        current = all(self.delivered.get(c) == self.standing.round for c in self.messenger.clients)
        return {} if current else self.tables

    def _move(self, total: Total) -> None:
        """table += ΣΔ / holders, rounded as it will travel, so that both sides have the same rows."""
        start, point = 0, self.sums.plan.fixed_point
        precision = np.float16 if self.settings.precision == "float16" else np.float32
        for name, table in self.tables.items():
            size = table.rows.size
            words = total.words[start : start + size].reshape(table.rows.shape)
            moved = point.decode(words, divisor=self.counts[name][table.ids][:, None])
            rows = (table.rows.astype(np.float64) + moved).astype(precision)
            self.tables[name] = replace(table, rows=rows.astype(np.float32))
            start += size

    def _note_training(self, round: int, total: Total) -> None:
        figures, num = TRAINING.decode(total.words[-TRAINING.num_words :]), len(total.survivors)
        standing = self.standing
        standing.trained += figures["seconds"]
        standing.triples += int(figures["triples"])
        standing.crypto += figures["crypto"]
        standing.clipped += figures["clipped"]
        standing.values += figures["values"]
        standing.peak_rss_mb = max(standing.peak_rss_mb, figures["rss_mb"] / num)  # a mean: no maximum sums
        loss = figures["loss"] / num
        self.records.add("metrics", [(round, "all", "train", "loss", loss)])
        self._observe(loss=loss)

    def _scores(self, round: int, split: str, words: NDArray[np.uint32]) -> MetricSums:
        figures = RANKING.decode(words)
        total = MetricSums.from_scalars(figures)
        self.standing.ranked += figures["seconds"]
        self.standing.evaluated += total.count
        rows = [(round, "all", split, metric, value) for metric, value in total.means().items()]
        self.records.add("metrics", rows)
        return total

    def _lose(self, round: int, phase: str, error: DropoutError, expected: bool) -> None:
        """Nothing was summed: note it, and give up if that goes on without being simulated."""
        self.records.add("failures", [(round, phase, "all", f"nothing summed: {error}")])
        _log.warning("round %d, %s: nothing summed: %s", round, phase, error)
        self._lost += not expected
        if self._lost >= _MOST_LOST_ROUNDS:
            raise FederationError(
                f"{self._lost} sums in a row failed, the last in round {round}: {error}; the reasons are in "
                f"{self.records.folder / 'failures.csv'}. The last checkpoint is intact: resume later"
            ) from error

    def _privacy(self) -> Privacy:
        fewest = self.experiment.privacy.min_holders
        standing = self.standing
        return Privacy.with_sums(
            self.experiment.privacy.union,
            {name: len(counts) for name, counts in self.counts.items()},
            {name: int((counts < fewest).sum()) for name, counts in self.counts.items()},
            standing.clipped / standing.values if standing.values else 0.0,
            len(self.roster),
            self.sums.plan.threshold,
            self.experiment.privacy.consistency,
        )


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


def _widths(uploads: Mapping[int, Upload]) -> dict[str, int]:
    found = {tuple(sorted(upload.facts["widths"].items())) for upload in uploads.values()}
    if len(found) != 1:
        raise FederationError("clients have rows of different widths; do all use the same model.dim?")
    return dict(found.pop())


def _blank(ids: NDArray[np.int32]) -> Table:
    return Table(ids, np.empty((len(ids), 0), dtype=np.float32))


def _sorted(table: Table) -> Table:
    """In an order of its own: row numbers come from pseudonyms, which differ from run to run."""
    order = np.lexsort(table.rows.T) if table.rows.size else np.arange(len(table))
    return Table(np.arange(len(table), dtype=np.int32), table.rows[order])
