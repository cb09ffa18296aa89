"""One client of a federation: its own graph, its own model, and an answer to each thing the server asks."""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Mapping
from math import isfinite
from time import perf_counter
from typing import Any

import numpy as np

from fedkge.client.kernels.arrays import Floats
from fedkge.client.models import Model, build_model
from fedkge.client.models.initial import seed_key
from fedkge.client.privacy import PrivacyAccount, kept_secret, simulated_secret
from fedkge.client.state import ClientState, StateFiles
from fedkge.client.training.evaluate import evaluate, per_triple
from fedkge.client.training.loop import TrainResult, train
from fedkge.client.training.optimizers import State
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.exchange import Download, Table, Upload
from fedkge.experiment import DPSettings, Experiment
from fedkge.seeding import generator

__all__ = ["Participant"]

LAST = 2**31  # no run has this many rounds


class Participant:
    """Knows its own labelled triples and what the server sent, nothing else.

    Between two messages everything that matters is in `self.model`, `self.round` and the state files.
    In a simulation, the secret of private training comes from the seed.
    """

    def __init__(
        self,
        client: int,
        graph: KnowledgeGraph,
        experiment: Experiment,
        files: StateFiles,
        every_round: bool,
        simulated: bool = False,
    ) -> None:
        self.client = client
        self.graph = graph
        self.experiment = experiment
        self.files = files
        self.every_round = every_round  # whether the process may vanish between two messages
        self.account = self._open_account(simulated)
        # What may be counted without noise.
        self.public = self.account.mechanism.public(graph) if self.account else graph
        self.model: Model
        self.round: int  # the last round trained
        self.facts: Mapping[str, Any]  # what was said of it
        self.optimizer: State | None  # kept between rounds only if so configured
        self.rows = files.load_rows()  # table -> shared row of each local row
        self.restore(until=LAST)

    def join(self, download: Download) -> Upload:
        """Say which labels of the shared tables it holds; a resumed run starts from an earlier round."""
        self.files.forget_after(download.round)
        self.restore(download.round)
        labels = {"entity": self.graph.entity_labels, "relation": self.graph.relation_labels}
        held = {name: list(labels[name]) for name in download.facts["shared"]}
        counts = {name: len(self.graph[name]) for name in ("train", "valid", "test")}
        return self.upload(download.round, facts={"labels": held, "triples": counts})

    def assign(self, download: Download) -> Upload:
        """Learn which shared rows its labels have."""
        self.rows = {name: table.ids for name, table in download.tables.items()}
        self.files.save_rows(self.rows)
        return self.upload(download.round)

    def train(self, download: Download) -> Upload:
        """Take the server's rows, train some epochs, and give back the rows that are shared."""
        if self.round != download.round:  # asked again about a round that is done: the answer is the same
            self.merge(download.tables)
            self.files.prune(download.facts["keep"], until=download.facts["settled"])
            self._train(download.round)
        tables = {name: self.shared(name) for name in self.rows}
        return self.upload(download.round, tables, self.facts)

    def evaluate(self, download: Download) -> Upload:
        """Take the server's rows and rank the validation triples; this state may turn out to be the best."""
        self.merge(download.tables)
        self.save(download.round)
        spent = {"privacy": {"epsilon": self.account.spent()}} if self.account else {}
        return self.upload(download.round, facts={**self.measure("valid"), **spent})

    def test(self, download: Download) -> Upload:
        """Go back to the best round and rank the test triples."""
        self.restore(download.facts["best"])
        facts = {**self.measure("test"), **self.measure("valid"), "digest": self.digest()}
        report = {"privacy": self.account.report()} if self.account else {}
        return self.upload(download.round, facts={**facts, **report})

    def restore(self, until: int) -> None:
        """The state after a round, or the initial one."""
        self.model = build_model(self.experiment.model, self.public, self.experiment.seed)
        if self.experiment.federation.own_entities:
            self.model.tables["entity"][:] = self._own_entities()
        self.round, self.facts, self.optimizer = 0, {}, None
        state = self.files.newest(until)
        if state is None:
            return
        for name, table in self.model.tables.items():
            table[:] = state.tables[name]
        self.round, self.facts = state.round, state.facts
        self.optimizer = dict(state.optimizer) or None

    def save(self, round: int) -> None:
        """Keep what it is after a round."""
        self.files.save(ClientState(round, self.kept(), self.optimizer or {}, self.facts))

    def kept(self) -> Mapping[str, Floats]:
        """The tables that a state file holds."""
        return self.model.tables

    def merge(self, tables: Mapping[str, Table]) -> None:
        """Put the server's rows in the place of its own."""
        for name, table in tables.items():
            mine = self.rows[name]
            order = np.argsort(mine)
            local = order[np.searchsorted(mine, table.ids, sorter=order)]
            self.model.tables[name][local] = table.rows

    def shared(self, name: str) -> Table:
        """Its rows of a shared table."""
        weights = None
        if self.experiment.federation.weighting == "triples":
            columns = self.graph.train[:, [0, 2]] if name == "entity" else self.graph.train[:, 1]
            weights = np.bincount(columns.ravel(), minlength=len(self.rows[name])).astype(np.float32)
        return Table(self.rows[name], self.model.tables[name], weights=weights)

    def measure(self, split: str) -> dict[str, Any]:
        """Sums of what a split's triples score, and how long it took."""
        start = perf_counter()
        # What is best is chosen by unrestricted triples alone, unless so configured.
        chooses = split == "valid" and self.dp.validation == "unrestricted"
        graph = self.public if chooses else self.graph
        found = evaluate(self.model, graph, split, self.experiment.evaluation)
        values = per_triple(found.ranks, self.experiment.evaluation.ties)
        moments = {
            "count": found.num_triples,
            "unseen": found.num_unseen,
            "sums": {name: float(column.sum()) for name, column in values.items()},
            "squares": {name: float((column**2).sum()) for name, column in values.items()},
        }
        return {split: moments, f"{split}_seconds": _fixed(perf_counter() - start)}

    def digest(self) -> str:
        """A hash of its tables, rows sorted by label: equal exactly when the numbers are."""
        digest = hashlib.sha256()
        for name, labels in (("entity", self.graph.entity_labels), ("relation", self.graph.relation_labels)):
            order = sorted(range(len(labels)), key=labels.__getitem__)
            digest.update("\n".join(labels[row] for row in order).encode())
            digest.update(np.ascontiguousarray(self.model.tables[name][order]).tobytes())
        return digest.hexdigest()

    def upload(
        self, round: int, tables: Mapping[str, Table] | None = None, facts: Mapping[str, Any] | None = None
    ) -> Upload:
        return Upload(round, self.client, tables or {}, facts or {})

    @property
    def dp(self) -> DPSettings:
        return self.experiment.dp_of(self.client)

    def _open_account(self, simulated: bool) -> PrivacyAccount | None:
        if self.dp.mode == "off":
            return None
        folder, experiment = self.files.folder, self.experiment
        secret = (
            simulated_secret(experiment.seed, self.client) if simulated else kept_secret(folder / "dp.secret")
        )
        return PrivacyAccount(
            folder / "ledger.json",
            self.client,
            self.graph,
            experiment.training,
            self.dp,
            experiment.federation.rounds,
            secret,
            simulated,
        )

    def _own_entities(self) -> Floats:
        """Initial rows that differ between clients; whoever knows the run's seed can work them out."""
        seed = int(generator(self.experiment.seed, "start", 0, self.client).integers(2**63))
        name = self.model.entity_table
        return self.model.initial_table(
            name, self.graph.entity_labels, self.experiment.model, seed_key(seed, name)
        )

    def _train(self, round: int) -> None:
        rng = generator(self.experiment.seed, "train", round, self.client)
        settings = self.experiment.training
        if round > settings.decay_at * self.experiment.federation.rounds:
            settings = settings.model_copy(
                update={"learning_rate": settings.learning_rate / settings.decay_by}
            )
        result: TrainResult
        if self.account is None:
            result = train(self.model, self.graph, rng, settings, optimizer=self.optimizer)
        else:
            result = self.account.train(self.model, rng, settings, round, self.optimizer)
        loss = result.losses[-1]
        self.optimizer = result.optimizer if settings.keep_optimizer else None
        self.round = round
        self.facts = {
            "loss": loss if isfinite(loss) else None,  # none where every triple is confidential
            "triples": result.triples,
            "seconds": _fixed(result.seconds),
            "rss_mb": _fixed(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }
        if self.every_round:
            self.save(round)


def _fixed(measured: float) -> str:
    """A measurement as text of one length: a machine's mood must not change how many bytes travel."""
    return f"{measured:013.6f}"
