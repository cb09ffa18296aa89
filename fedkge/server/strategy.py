"""Strategies: which tables travel and how rows merge, over one visible loop of rounds."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar

import numpy as np
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedkge.errors import FederationError
from fedkge.exchange import Download, Table, Upload
from fedkge.experiment import Experiment
from fedkge.metrics import MetricSums
from fedkge.seeding import generator
from fedkge.server.aggregation import mean_over_holders
from fedkge.server.ledger import Ledger
from fedkge.server.messenger import Messenger
from fedkge.server.privacy import Privacy
from fedkge.server.progress import Observer, Progress
from fedkge.server.records import Records
from fedkge.server.transcript import Transcript
from fedkge.server.union import PlainUnion

__all__ = ["STRATEGIES", "Central", "FedE", "FedER", "FedR", "Federation", "Local", "Outcome", "accounts_of"]

_log = logging.getLogger(__name__)


@dataclass
class Standing:
    """Where a run stands; a checkpoint is this and the tables."""

    round: int = 0
    best_round: int = 0
    best_mrr: float = -1.0
    stale: int = 0  # evaluations since the best one
    target_round: int | None = None
    target_bytes: int | None = None
    settled: int = 0  # the round of the last checkpoint
    trained: float = 0.0  # seconds of local training, all clients
    triples: int = 0
    ranked: float = 0.0  # seconds of ranking, all clients
    evaluated: int = 0
    peak_rss_mb: float = 0.0
    crypto: float = 0.0  # seconds of cryptography, all parties
    clipped: float = 0.0
    values: float = 0.0  # numbers that went through the clip


@dataclass(frozen=True)
class Outcome:
    """What a finished run found."""

    standing: Standing
    valid: MetricSums
    test: MetricSums
    per_client: Mapping[int, Mapping[str, MetricSums]]
    digests: Mapping[int, str]
    tables: Mapping[str, Table]
    labels: Mapping[str, tuple[str, ...]]
    setup_seconds: float  # until every client had joined
    seconds: float  # from then on
    privacy: Privacy


class Federation(Strategy):
    """A Flower strategy over our own loop: join, rounds, early stop, test, with checkpoints between."""

    shared: ClassVar[tuple[str, ...]] = ()

    def __init__(self, experiment: Experiment, records: Records, observer: Observer | None = None) -> None:
        self.experiment = experiment
        self.settings = experiment.federation
        self.records = records
        self.observer = observer
        self.transcript = Transcript(records.folder / "transcript", experiment.adversary.record)
        self.ledger = Ledger()
        self.standing = Standing()
        self.tables: dict[str, Table] = {}
        self.unions: dict[str, PlainUnion] = {}
        self.messenger: Messenger
        self.delivered: dict[int, int] = {}  # client -> the round whose tables it has

    def start(self, grid: Grid, num_clients: int, resume: bool = False) -> Outcome:  # type: ignore[override]
        """The whole run. Clients bring their own initial rows, so there are no initial arrays to send."""
        began = time.perf_counter()
        if not (resume and self._resume()):
            self.records.restart()
        self.transcript.forget_after(self.standing.round)
        self.messenger = Messenger(grid, self.settings, self.ledger, self.records, self.transcript)
        self.join(num_clients)
        self.transcript.settle_union(self.holder_counts())
        joined = time.perf_counter()
        while not self.finished:
            round = self.standing.round + 1
            self.train(round)
            self.transcript.settle_round(round, self.tables, may_end=self.evaluates(round))
            if self.evaluates(round):
                self.evaluate(round)
                self.checkpoint()
        return self.test(setup=joined - began, joined=joined)

    @property
    def finished(self) -> bool:
        return self.standing.round >= self.settings.rounds or self.standing.stale >= self.settings.patience

    def evaluates(self, round: int) -> bool:
        return round % self.settings.evaluate_every == 0 or round == self.settings.rounds

    def train(self, round: int) -> None:
        uploads = self.messenger.ask(self.configure_train(round), "train", "train", round)
        self.aggregate_train(round, uploads)

    def evaluate(self, round: int) -> None:
        uploads = self.messenger.ask(self.configure_evaluate(round), "evaluate", "evaluate", round)
        self.aggregate_evaluate(round, uploads)

    def join(self, num_clients: int) -> None:
        """Meet the clients and give every shared label its row."""
        hello = Download(self.standing.round, facts={"shared": list(self.shared)})
        uploads = self.messenger.meet(num_clients, hello)
        for name in self.shared:
            self.unions[name] = PlainUnion.of(
                {c: upload.facts["labels"][name] for c, upload in uploads.items()}
            )
        rows = {client: Download(hello.round, self._rows_of(client)) for client in self.messenger.clients}
        if len(self.messenger.ask(rows, "query.assign", "union", hello.round)) < num_clients:
            raise FederationError(
                "a client vanished while rows were assigned; the reasons are in failures.csv"
            )

    def configure_train(self, round: int) -> Mapping[int, Download]:  # type: ignore[override]
        """The clients of a round, and what each is sent."""
        facts = {"keep": [self.standing.best_round, self.standing.settled], "settled": self.standing.settled}
        return {client: Download(round, self._news(client), facts) for client in self._participants(round)}

    def aggregate_train(self, round: int, replies: Mapping[int, Upload]) -> None:  # type: ignore[override]
        """Merge the uploads into the shared tables; rows that nobody sent stay as they were."""
        uploads = list(replies.values())
        for name in self.shared:
            merged = mean_over_holders(uploads, name, weighted=self.settings.weighting == "triples")
            if merged is not None:
                self.tables[name] = _updated(self.tables.get(name), merged)
        self.standing.round = round
        self.standing.trained += sum(float(upload.facts["seconds"]) for upload in uploads)
        self.standing.triples += sum(upload.facts["triples"] for upload in uploads)
        self.standing.peak_rss_mb = max(
            [self.standing.peak_rss_mb, *(float(upload.facts["rss_mb"]) for upload in uploads)]
        )
        losses = {
            client: upload.facts["loss"]
            for client, upload in sorted(replies.items())
            if upload.facts["loss"] is not None
        }
        self.records.add(
            "metrics", ((round, client, "train", "loss", loss) for client, loss in losses.items())
        )
        self._observe(loss=float(np.mean(list(losses.values()))) if losses else 0.0)

    def note_spending(self, round: int, said: Mapping[int, Mapping[str, Any]]) -> None:
        """Write down what clients say about the cost of their private training."""
        accounts = accounts_of(said)
        rows = [(round, client, "train", "epsilon", each["epsilon"]) for client, each in accounts.items()]
        self.records.add("metrics", rows)

    def configure_evaluate(self, round: int) -> Mapping[int, Download]:  # type: ignore[override]
        return {client: Download(round, self._news(client)) for client in self.messenger.clients}

    def aggregate_evaluate(self, round: int, replies: Mapping[int, Upload]) -> None:  # type: ignore[override]
        """The mean over all validation triples decides what is best and when to stop."""
        self.delivered.update(dict.fromkeys(replies, round))
        self.note_spending(round, {client: upload.facts for client, upload in replies.items()})
        self.judge(round, self._measured(round, "valid", replies))

    def judge(self, round: int, total: MetricSums) -> None:
        """Note whether a round is the best so far, and whether it reaches the target."""
        mrr = total.means().get("mrr", 0.0)
        standing = self.standing
        if mrr > standing.best_mrr or not total.count:  # nothing to choose by: the last round stands
            standing.best_round, standing.best_mrr, standing.stale = round, mrr, 0
        else:
            standing.stale += 1
        target = self.settings.target_mrr
        if target is not None and standing.target_round is None and mrr >= target:
            standing.target_round, standing.target_bytes = round, self.ledger.total(until=round)
        self._observe(mrr=mrr)

    def test(self, setup: float, joined: float) -> Outcome:
        """Every client goes back to the best round and ranks its test triples."""
        ask = Download(self.standing.round, facts={"best": self.standing.best_round})
        messages = dict.fromkeys(self.messenger.clients, ask)
        replies = self.messenger.ask(messages, "evaluate.test", "test", self.standing.round)
        if len(replies) < len(messages):
            raise FederationError(
                f"{len(messages) - len(replies)} clients did not answer the final test (see failures.csv); "
                "resume the run to test again"
            )
        best = self.standing.best_round
        accounts = accounts_of({client: upload.facts for client, upload in replies.items()})
        splits = {split: self._measured(best, split, replies) for split in ("valid", "test")}
        per_client = {
            client: {split: MetricSums.from_json(replies[client].facts[split]) for split in splits}
            for client in sorted(replies)
        }
        return Outcome(
            self.standing,
            splits["valid"],
            splits["test"],
            per_client,
            {client: str(replies[client].facts["digest"]) for client in sorted(replies)},
            self.tables,
            {name: union.labels for name, union in self.unions.items()},
            setup,
            time.perf_counter() - joined,
            replace(Privacy.without_protection(self.shared), accounts=accounts),
        )

    def summary(self) -> None:
        """Say what this strategy shares."""
        _log.info("%s shares %s", type(self).__name__, " and ".join(self.shared) or "nothing")

    def checkpoint(self) -> None:
        """Everything needed to go on from here."""
        self.standing.settled = self.standing.round
        arrays = {
            f"{name}.{part}": getattr(t, part) for name, t in self.tables.items() for part in ("ids", "rows")
        }
        arrays |= self.settled_arrays()
        arrays["empty"] = np.zeros(0, dtype=np.float32)  # a file of no tables is not a file
        self.records.save_checkpoint(arrays, vars(self.standing))

    def holder_counts(self) -> Mapping[str, NDArray[Any]]:
        """How many clients hold each shared row, where that is all the server knows."""
        return {}

    def settled_arrays(self) -> Mapping[str, NDArray[Any]]:
        """What a checkpoint holds beside the tables."""
        return {}

    def restore_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take back what `settled_arrays` gave."""

    def _resume(self) -> bool:
        found = self.records.load_checkpoint()
        if found is None:
            return False
        arrays, facts = found
        self.standing = Standing(**facts)
        self.ledger = Ledger.read(self.records.folder / "messages.csv")
        names = {key.partition(".")[0] for key in arrays if "." in key}
        self.tables = {name: Table(arrays[f"{name}.ids"], arrays[f"{name}.rows"]) for name in sorted(names)}
        self.restore_arrays(arrays)
        return True

    def _participants(self, round: int) -> Sequence[int]:
        """Who takes part: a random share of the clients, less those that drop out."""
        clients = np.array(self.messenger.clients)
        seed = self.experiment.seed
        chosen = generator(seed, "sample", round).permutation(clients)[
            : ceil(self.settings.fraction * len(clients))
        ]
        drawn = generator(seed, "dropout", round).random(len(clients))
        present = [int(client) for client in np.sort(chosen) if drawn[client] >= self.settings.dropout]
        lost = sorted(set(map(int, chosen)) - set(present))
        self.records.add("failures", ((round, "train", client, "dropped out (simulated)") for client in lost))
        return present

    def _news(self, client: int) -> Mapping[str, Table]:
        """The rows that a client holds, unless it has them already."""
        if not self.tables or self.delivered.get(client) == self.standing.round:
            return {}
        news = {}
        for name, table in self.tables.items():
            held = np.sort(self.unions[name].rows[client])
            news[name] = table.pick(held[np.isin(held, table.ids)])
        return news

    def _rows_of(self, client: int) -> Mapping[str, Table]:
        rows = {name: union.rows[client] for name, union in self.unions.items()}
        return {name: Table(ids, np.empty((len(ids), 0), dtype=np.float32)) for name, ids in rows.items()}

    def _measured(self, round: int, split: str, replies: Mapping[int, Upload]) -> MetricSums:
        parts = {
            client: MetricSums.from_json(upload.facts[split]) for client, upload in sorted(replies.items())
        }
        total = MetricSums.total(parts.values())
        self.standing.ranked += sum(float(upload.facts[f"{split}_seconds"]) for upload in replies.values())
        self.standing.evaluated += total.count
        rows = [
            (round, client, split, metric, value)
            for client, part in [*parts.items(), ("all", total)]
            for metric, value in part.means().items()
        ]
        self.records.add("metrics", rows)
        return total

    def _observe(self, loss: float | None = None, mrr: float | None = None) -> None:
        if self.observer is None:
            return
        total = self.ledger.total()
        self.observer(
            Progress(self.standing.round, self.settings.rounds, loss, mrr, self.standing.best_mrr, total)
        )


class Local(Federation):
    """Nothing is shared: every client for itself."""


class FedE(Federation):
    """Entity rows are averaged over the clients that hold them (Chen et al., 2021)."""

    shared = ("entity",)


class FedR(Federation):
    """Relation rows are averaged over holders; entity rows never leave a client (Zhang et al., 2022)."""

    shared = ("relation",)


class FedER(Federation):
    """Both tables are averaged over the clients that hold each row."""

    shared = ("entity", "relation")


class Central(Local):
    """One client that holds all triples: the upper bound, without privacy."""


STRATEGIES: dict[str, type[Federation]] = {
    "Local": Local,
    "FedE": FedE,
    "FedR": FedR,
    "FedER": FedER,
    "Central": Central,
}


def accounts_of(said: Mapping[int, Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """What clients with private training say about it."""
    return {client: facts["privacy"] for client, facts in sorted(said.items()) if "privacy" in facts}


def _updated(old: Table | None, new: Table) -> Table:
    """The old table with new rows in the place of the same numbers."""
    if old is None:
        return new
    ids = np.union1d(old.ids, new.ids).astype(np.int32)
    rows = np.empty((len(ids), new.rows.shape[1]), dtype=np.float32)
    rows[np.searchsorted(ids, old.ids)] = old.rows
    rows[np.searchsorted(ids, new.ids)] = new.rows
    return Table(ids, rows)
