"""The loop of a federation over open or secure sums: join, rounds, early stop, test; checkpoints between."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from fedkge.agreement import run_name
from fedkge.errors import DropoutError, FederationError
from fedkge.exchange import Table
from fedkge.experiment import Experiment
from fedkge.metrics import MetricSums
from fedkge.seeding import generator
from fedkge.server.ledger import Ledger
from fedkge.server.messenger import Messenger
from fedkge.server.privacy import Privacy
from fedkge.server.progress import Observer, Progress
from fedkge.server.records import Records
from fedkge.server.sums import OpenSums, Scores, SecureSums, Steps, Sums, Then, Training
from fedkge.server.transcript import Transcript
from fedkge.strategy import build_strategy

__all__ = ["Federation", "Outcome", "RunState"]

_log = logging.getLogger(__name__)
_MOST_LOST_SUMS = 3  # one after the other, before the run gives up


@dataclass
class RunState:
    """Where a run stands; a checkpoint is this, the tables and the strategy's memory."""

    round: int = 0
    best_round: int = 0
    best_mrr: float = -1.0
    best_valid: Mapping[str, Any] | None = None  # the validation scores that made it the best
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

    state: RunState
    valid: MetricSums
    test: MetricSums
    per_client: Mapping[int, Mapping[str, MetricSums]]
    digests: Mapping[int, str]
    tables: Mapping[str, Table]  # offsets of the shared rows from their initial rows
    setup_seconds: float  # until every client had joined
    seconds: float  # from then on
    privacy: Privacy


class Federation:
    """One run. Tables hold offsets from initial rows, which the server need not know."""

    def __init__(
        self, experiment: Experiment, records: Records, observer: Observer | None = None, run: str = ""
    ) -> None:
        self.experiment = experiment
        self.run = run or run_name(experiment, {})
        self.settings = experiment.federation
        self.records = records
        self.observer = observer
        self.strategy = build_strategy(experiment.federation)
        self.transcript = Transcript(records.folder / "transcript", experiment.adversary.record)
        self.ledger = Ledger()
        self.state = RunState()
        self.tables: dict[str, Table] = {}
        self.sums: Sums
        self._lost = 0  # sums in a row

    def start(self, grid: Grid, num_clients: int, resume: bool = False) -> Outcome:
        """The whole run, from the first message to the test."""
        began = time.perf_counter()
        arrays = self._resume() if resume else None
        if arrays is None:
            self.records.restart()
        self.transcript.forget_after(self.state.round)
        self.sums = self._build_sums(grid)
        self.sums.restore(arrays or {})
        self.tables = dict(self.sums.join(num_clients, self.state.round, self.tables))
        if self.sums.arrays() and not arrays:  # clients settle on the union with their first step
            self.checkpoint()
        self.transcript.settle_union(self.sums.holders)
        joined = time.perf_counter()
        while not self.finished:
            round, before = self.state.round + 1, dict(self.tables)
            self.train(round)
            self.transcript.settle_round(round, before, self.tables, may_end=self.evaluates(round))
            if self.evaluates(round):
                self.evaluate(round)
                self.checkpoint()
        return self.test(setup=joined - began, joined=joined)

    @property
    def finished(self) -> bool:
        return self.state.round >= self.settings.rounds or self.state.stale >= self.settings.patience

    def evaluates(self, round: int) -> bool:
        return round % self.settings.evaluate_every == 0 or round == self.settings.rounds

    def train(self, round: int) -> None:
        """One round; too many dropouts leave the tables as they were."""
        clients = self._participants(round)
        metadata = {"keep": [self.state.best_round, self.state.settled], "settled": self.state.settled}
        then: Then = "evaluate" if self.evaluates(round) else "train"
        try:
            steps = self.sums.steps(round, clients, self.tables, metadata, then)
        except DropoutError as error:
            self._lose(round, "train", error, expected=len(clients) < self.sums.fewest)
            self.state.round = round
            return
        self._lost = 0
        self.apply(steps)
        self.state.round = round
        self._note_training(round, steps.training)

    def apply(self, steps: Steps) -> None:
        """Move the tables as the strategy says, rounded as they travel: both sides have the same rows."""
        precision = np.float16 if self.settings.precision == "float16" else np.float32
        for name, table in self.tables.items():
            if self.strategy.needs_uploads:
                rows = self.strategy.merge(name, table.rows, steps.uploads[name])
            else:
                rows = self.strategy.update(name, table.rows, steps.means[name].astype(np.float32))
            if rows.shape != table.rows.shape or not np.isfinite(rows).all():
                raise FederationError(
                    f"{self.settings.strategy} made '{name}' rows of shape {rows.shape} where finite numbers "
                    f"of shape {table.rows.shape} are expected; mend the strategy"
                )
            self.tables[name] = replace(table, rows=rows.astype(precision).astype(np.float32))

    def evaluate(self, round: int) -> None:
        """The scores of all clients together decide what is best; without them the round is none."""
        try:
            scores = self.sums.scores(round, self.tables, "train" if round < self.settings.rounds else "test")
        except DropoutError as error:
            self._lose(round, "evaluate", error, expected=False)
            return
        accounts = _accounts(scores.said)
        spent = [(round, client, "train", "epsilon", told["epsilon"]) for client, told in accounts.items()]
        self.records.add("metrics", spent)
        self._note_scores(round, "valid", scores)
        complete = all(told.get("complete", True) for told in accounts.values())
        self.judge(round, scores.total, complete)

    def judge(self, round: int, total: MetricSums, complete: bool = True) -> None:
        """Note whether a round is the best so far, and whether it reaches the target.

        As long as private training is not complete the last round stands, and no later one has to beat it:
        validation cannot see what confidential triples add.
        """
        mrr, state = total.means().get("mrr", 0.0), self.state
        if mrr > state.best_mrr or not total.count:  # nothing to choose by: the last round stands
            state.best_round, state.best_mrr, state.stale = round, mrr if complete else -1.0, 0
            state.best_valid = total.to_json()
        else:
            state.stale += 1
        target = self.settings.target_mrr
        if target is not None and state.target_round is None and mrr >= target:
            state.target_round, state.target_bytes = round, self.ledger.total(until=round)
        self._observe(mrr=mrr)

    def test(self, setup: float, joined: float) -> Outcome:
        """Every client goes back to the best round and ranks its test triples.

        Validation scores are those that chose the round: summed once more, over other clients, the two sums
        would differ by single clients' scores.
        """
        state = self.state
        final = self.sums.final(state.round, state.best_round)
        self._note_scores(state.best_round, "test", final.test)
        valid = MetricSums.from_json(state.best_valid) if state.best_valid else MetricSums.total([])
        state.crypto += self.sums.seconds
        privacy = self.sums.privacy(state.clipped / state.values if state.values else 0.0)
        return Outcome(
            state,
            valid,
            final.test.total,
            {
                client: {"valid": final.valid[client], "test": scores}
                for client, scores in final.test.by_client.items()
            },
            final.digests,
            self.sums.outcome(self.tables),
            setup,
            time.perf_counter() - joined,
            replace(privacy, accounts=_accounts(final.said)),
        )

    def checkpoint(self) -> None:
        """Everything needed to go on from here."""
        self.state.settled = self.state.round
        arrays = {
            f"{part}/{name}": getattr(t, part) for name, t in self.tables.items() for part in ("ids", "rows")
        }
        memory = self.strategy.memory.items()
        arrays |= {f"memory/{name}": np.ascontiguousarray(array) for name, array in memory}
        arrays |= self.sums.arrays()
        arrays["empty"] = np.zeros(0, dtype=np.float32)  # a file of no tables is not a file
        self.records.save_checkpoint(arrays, vars(self.state))

    def _resume(self) -> Mapping[str, Any] | None:
        checkpoint = self.records.load_checkpoint()
        if checkpoint is None:
            return None
        arrays, state = checkpoint
        self.state = RunState(**state)
        self.ledger = Ledger.read(self.records.folder / "messages.csv")
        names = sorted(key.removeprefix("ids/") for key in arrays if key.startswith("ids/"))
        self.tables = {name: Table(arrays[f"ids/{name}"], arrays[f"rows/{name}"]) for name in names}
        self.strategy.memory = {
            key.removeprefix("memory/"): array for key, array in arrays.items() if key.startswith("memory/")
        }
        return arrays

    def _build_sums(self, grid: Grid) -> Sums:
        messenger = Messenger(grid, self.settings, self.ledger, self.records, self.transcript)
        if self.strategy.shared and self.experiment.privacy.secure_aggregation:
            return SecureSums(self.experiment, self.strategy, messenger, self.records, self.run)
        return OpenSums(self.experiment, self.strategy, messenger)

    def _participants(self, round: int) -> Sequence[int]:
        """Who takes part: a random share of the clients, less those that drop out."""
        clients = np.array(self.sums.messenger.clients)
        seed = self.experiment.seed
        chosen = generator(seed, "sample", round).permutation(clients)[
            : ceil(self.settings.fraction * len(clients))
        ]
        drawn = generator(seed, "dropout", round).random(len(clients))
        present = [int(client) for client in np.sort(chosen) if drawn[client] >= self.settings.dropout]
        lost = sorted(set(map(int, chosen)) - set(present))
        self.records.add("failures", ((round, "train", client, "dropped out (simulated)") for client in lost))
        return present

    def _note_training(self, round: int, training: Training) -> None:
        state = self.state
        state.trained += training.seconds
        state.triples += training.triples
        state.crypto += training.crypto
        state.clipped += training.clipped
        state.values += training.values
        state.peak_rss_mb = max(state.peak_rss_mb, training.rss_mb)
        losses = training.losses
        self.records.add(
            "metrics", ((round, client, "train", "loss", loss) for client, loss in losses.items())
        )
        self._observe(loss=float(np.mean(list(losses.values()))) if losses else 0.0)

    def _note_scores(self, round: int, split: str, scores: Scores) -> None:
        self.state.ranked += scores.seconds
        self.state.evaluated += scores.total.count
        rows = [
            (round, client, split, metric, value)
            for client, part in [*scores.by_client.items(), ("all", scores.total)]
            for metric, value in part.means().items()
        ]
        self.records.add("metrics", rows)

    def _lose(self, round: int, phase: str, error: DropoutError, expected: bool) -> None:
        """Nothing was summed: note it, and give up if that goes on without being simulated."""
        self.records.add("failures", [(round, phase, "all", f"nothing summed: {error}")])
        _log.warning("round %d, %s: nothing summed: %s", round, phase, error)
        self._lost += not expected
        if self._lost >= _MOST_LOST_SUMS:
            raise FederationError(
                f"{self._lost} sums in a row failed, the last in round {round}: {error}; the reasons are in "
                f"{self.records.folder / 'failures.csv'}. {self.records.remedy}"
            ) from error

    def _observe(self, loss: float | None = None, mrr: float | None = None) -> None:
        if self.observer is not None:
            total, state = self.ledger.total(), self.state
            self.observer(Progress(state.round, self.settings.rounds, loss, mrr, state.best_mrr, total))


def _accounts(said: Mapping[int, Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """What clients with private training say about it."""
    return {client: told["privacy"] for client, told in sorted(said.items()) if "privacy" in told}
