"""One client of a federation: its own graph, its own model, and an answer to each thing the server asks.

A shared row is its initial row, which a common key and the label give to every holder alike, plus the offset
that the server broadcasts. What a client sends is its step: how far training moved the row from there.
"""

from __future__ import annotations

import hashlib
import json
import resource
from collections.abc import Mapping
from math import isfinite
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.client.holdings import (
    Holding,
    RowSource,
    build_from,
    common_labels,
    labels_of,
    triples_behind,
)
from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.ledger_file import LEDGER
from fedkge.client.models import MODELS, Model
from fedkge.client.policy import Policy
from fedkge.client.privacy import PrivacyAccount, kept_secret, simulated_secret
from fedkge.client.state import ClientState, StateFiles
from fedkge.client.training.evaluate import evaluate, sums_of
from fedkge.client.training.loop import TrainResult, train
from fedkge.client.training.optimizers import State
from fedkge.datasets import unrestricted
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.labels import common_rows
from fedkge.errors import MessageError, RefusedError
from fedkge.exchange import Download, Table, Upload
from fedkge.experiment import DPSettings, Experiment
from fedkge.seeding import generator
from fedkge.storage import staged
from fedkge.strategy import ClientRound, Memory, Term, build_strategy, check_shared, parameters_of

__all__ = ["APART", "Participant"]

APART = "apart.json"  # scores of confidential and of unrestricted triples, in a simulation

COMMON = -1  # the client whose simulated secret is everybody's
LAST = 2**31  # no run has this many rounds
MOST = 1e6  # the magnitude of a number that a server may send: beyond, rounding would decide what is trained


class Participant:
    """Knows its own labelled triples and what the server sent, nothing else.

    Between two messages everything that matters is in the fields that `save` keeps, and the state files. In
    a simulation, its secrets come from the seed.
    """

    def __init__(
        self,
        client: int,
        graph: KnowledgeGraph,
        experiment: Experiment,
        files: StateFiles,
        every_round: bool,
        simulated: bool = False,
        policy: Policy | None = None,
    ) -> None:
        self.client = client
        self.policy = policy or Policy()
        self.graph = graph
        self.experiment = experiment
        self.files = files
        self.simulated = simulated
        self.every_round = every_round  # whether the process may vanish between two messages
        self.strategy = build_strategy(experiment.federation)
        model = MODELS[experiment.model.name]
        model.check(experiment.model, experiment.training)
        weights = model.shareable_weights(experiment.model, graph)
        self.shared = parameters_of(self.strategy.shared, weights)  # names of tables and weights
        self.secret = self._rows_secret(simulated)
        self.account = self._open_account(simulated)
        # What may be counted without noise.
        self.public = self.account.mechanism.public(graph) if self.account else graph
        # What scores are told of: in a simulation, where all is one party's, of all triples.
        self.told = unrestricted(graph) if self.account and not simulated else graph
        self.model: Model
        self.round: int  # the last round trained
        self.metadata: Mapping[str, Any]  # what was said of it
        self.optimizer: State | None  # kept between rounds only if so configured
        self.reference: dict[str, Floats]  # the shared rows as last broadcast, (k, w) in the order of `local`
        self.sent: dict[str, NDArray[np.bool_]]  # which of them travelled last; absent: all
        self.memory: Memory  # of the strategy
        self.private: State  # of the mechanism of private training
        self.own: dict[str, Floats]  # shared rows to go on training from, where the model has those to rank
        self.holdings: dict[str, Holding] = {}
        self._start: dict[str, Floats]  # shared parameters before any training
        self._load_holdings()
        self.restore(until=LAST)

    def join(self, download: Download) -> Upload:
        """Say which labels of the shared tables it holds; a resumed run starts from an earlier round."""
        self._agree(download.metadata)
        self.return_to(download.round)
        labels = {
            name: common_labels(self.model, self.graph, name)
            for name in self.shared
            if name in self.model.tables
        }
        counts = {name: len(self.graph[name]) for name in ("train", "valid", "test")}
        metadata = {"labels": labels, "parameters": self.shapes(), "triples": counts}
        weighted = self.experiment.federation.weighting == "triples"
        return self.upload(download.round, self._triples_behind() if weighted else {}, metadata)

    def assign(self, download: Download) -> Upload:
        """Learn which shared rows its labels have."""
        for name, table in download.tables.items():
            if name not in self.shared:
                raise MessageError(f"rows of '{name}' are assigned, which {self._name} does not share")
            self.holdings[name] = Holding.of_all(self._own_rows(name, table.ids.astype(np.int64)))
            self.reference.setdefault(name, self._initial(name))
        self.files.save_arrays("holdings", {f"{name}.rows": h.rows for name, h in self.holdings.items()})
        return self.upload(download.round)

    def train(self, download: Download) -> Upload:
        """Take the server's rows, train some epochs, and give back how far the shared rows moved."""
        self.advance(download)
        self.settle(download)
        tables = {}
        for name, holding in self.holdings.items():
            sent = self.sent.get(name, np.ones(len(holding.local), dtype=bool))
            step = self.step(name)[sent].astype(np.float32)
            tables[name] = Table(holding.ids[sent].astype(np.int32), step)
        return self.upload(download.round, tables, self.metadata)

    def evaluate(self, download: Download) -> Upload:
        """Take the server's rows and rank the validation triples; this state may turn out to be the best."""
        self.take_to_rank(download.tables)
        self.prepare_scores(download.round)
        self.save(download.round)
        return self.upload(download.round, metadata={**self.measure("valid"), **self.spent(download.round)})

    def spent(self, round: int) -> dict[str, Any]:
        """What private training has cost, and whether it is complete: it follows from public numbers."""
        if self.account is None:
            return {}
        return {"privacy": {"epsilon": self.account.spent(), "complete": self.account.complete(round)}}

    def test(self, download: Download) -> Upload:
        """Go back to the best round and rank the test triples."""
        self.restore(download.metadata["best"])
        metadata = {**self.measure("test"), **self.measure("valid"), "digest": self.digest()}
        if self.simulated and any(self.graph.marks(split).any() for split in ("valid", "test")):
            self._keep_apart()
        report = {"privacy": self.account.report()} if self.account else {}
        return self.upload(download.round, metadata={**metadata, **report})

    def close(self) -> None:
        """Nothing more will be asked of it in this process."""

    # State.

    def return_to(self, round: int) -> None:
        """A run goes on from here: what came later never happened."""
        self.files.forget_after(round)
        self.restore(round)

    def restore(self, until: int) -> None:
        """The state after a round, or the initial one."""
        model = self.experiment.model
        sources = {name: self.row_source(name) for name in self.shared}
        known = {name: source for name, source in sources.items() if source is not None}
        self.model = build_from(model, self.public, known, self.secret)
        parameters = self.model.rows
        weights = self.model.shareable_weights(model, self.public)
        shareable = [*self.model.specs, *weights]
        own = self.model.own_weights(model, self.public)
        check_shared(self._name, self.strategy.shared, model.name, shareable, weights, own)
        self._start = {name: parameters[name].copy() for name in self.shared}
        state = self.files.newest(until) or ClientState(0, {}, {})
        for name, rows in {**state.tables, **state.weights}.items():
            parameters[name][:] = rows
        for name, buffer in state.buffers.items():
            self.model.state_buffers[name][:] = buffer
        self.round, self.metadata = state.round, state.metadata
        self.optimizer = dict(state.optimizer) or None
        self.reference = {
            name: state.reference[name] if name in state.reference else self._initial(name)
            for name in self.holdings
        }
        self.sent, self.memory, self.private = dict(state.sent), dict(state.memory), dict(state.private)
        self.own = dict(state.own)

    def save(self, round: int) -> None:
        """Keep what it is after a round."""
        tables = self.model.tables
        weights = {name: rows for name, rows in self.model.rows.items() if name not in tables}
        memory = {name: np.ascontiguousarray(array) for name, array in self.memory.items()}
        self.files.save(
            ClientState(
                round,
                tables,
                self.metadata,
                weights,
                self.optimizer or {},
                self.reference,
                self.sent,
                memory,
                self.private,
                self.model.state_buffers,
                self.own,
            )
        )

    def _load_holdings(self) -> None:
        for key, rows in self.files.load_arrays("holdings").items():
            self.holdings[key.removesuffix(".rows")] = Holding.of_all(rows)

    def digest(self) -> str:
        """A hash of all that is scored with, rows sorted by label: equal exactly when the numbers are."""
        digest = hashlib.sha256()
        for name, rows in self.model.rows.items():
            order: list[int] | slice = slice(None)
            if name in self.model.tables:
                labels = labels_of(self.model, self.graph, name)
                order = sorted(range(len(labels)), key=labels.__getitem__)
                digest.update("\n".join(labels[row] for row in order).encode())
            digest.update(np.ascontiguousarray(rows[order]).tobytes())
        for buffer in self.model.state_buffers.values():
            digest.update(buffer.tobytes())
        return digest.hexdigest()

    # What is shared.

    def merge(self, tables: Mapping[str, Table], into_model: bool = True) -> None:
        """Its shared rows become initial rows plus the server's offsets plus what was not selected.

        Otherwise the model keeps its own, and only what its next step is counted from is the server's.
        """
        parameters = self.model.rows
        for name, table in tables.items():
            if name not in self.holdings:
                raise MessageError(f"the server broadcasts rows of '{name}', which are not shared")
            holding = self.holdings[name]
            if table.rows.shape[1:] != parameters[name].shape[1:] or not (np.abs(table.rows) <= MOST).all():
                raise MessageError(
                    f"the server's '{name}' rows are not numbers up to {MOST:g} of this table's width"
                )
            places = np.searchsorted(table.ids, holding.ids)
            if len(table) <= places.max(initial=-1) or not np.array_equal(table.ids[places], holding.ids):
                raise MessageError(f"the server's '{name}' rows lack some that this client shares")
            kept = self._kept_back(name)
            self.reference[name] = self._initial(name) + table.rows[places]
            if into_model:
                parameters[name][holding.local] = self.reference[name] + kept

    def take_to_rank(self, tables: Mapping[str, Table]) -> None:
        """Merge what is broadcast before a ranking, and keep its own rows if training goes on from them."""
        if self.experiment.federation.sync == "never" and not self.own:
            self.own = {name: self.model.rows[name][h.local] for name, h in self.holdings.items()}
        self.merge(tables)

    def take_to_train(self, tables: Mapping[str, Table]) -> None:
        """Take what is broadcast before a training, from which it starts or not."""
        for name, rows in self.own.items():
            self.model.rows[name][self.holdings[name].local] = rows
        self.own = {}
        self.merge(tables, into_model=self.experiment.federation.sync == "round")

    def _kept_back(self, name: str) -> Floats | float:
        """(k, w) what of its step the strategy did not select."""
        if name not in self.sent:
            return 0.0
        kept = self.step(name).astype(np.float32)
        kept[self.sent[name]] = 0.0
        return kept

    def step(self, name: str) -> NDArray[np.float64]:
        """(k, w) how far its shared rows are from those that were last broadcast."""
        own_rows = self.model.rows[name][self.holdings[name].local]
        moved: NDArray[np.float64] = own_rows.astype(np.float64) - self.reference[name]
        return moved

    def shapes(self) -> dict[str, list[Any]]:
        """Kind and width of each shared parameter; how many labels a client holds is for a union to say."""
        parameters = self.model.rows
        found: dict[str, list[Any]] = {}
        for name in self.shared:
            rows, width = parameters[name].shape
            found[name] = ["table", width] if name in self.model.tables else ["weights", width, rows]
        return found

    def row_source(self, name: str) -> RowSource | None:
        """What the initial rows of a shared parameter come from; None: it is not known yet."""
        return RowSource.of_seed(self.experiment.seed, name)

    def _common(self, name: str) -> NDArray[np.int64]:
        """(k,) the own rows of a shared parameter that others may have too."""
        if name not in self.model.tables:
            return np.arange(len(self._start[name]))
        return common_rows(labels_of(self.model, self.graph, name))

    def _own_rows(self, name: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) the shared row of each own row, from those of the rows that others may have too; −1: none."""
        common = self._common(name)
        if len(rows) != len(common):
            raise MessageError(f"{len(rows)} rows of '{name}' are assigned, and {len(common)} were named")
        own_rows = np.full(len(self._start[name]), -1, dtype=np.int64)
        own_rows[common] = rows
        return own_rows

    def _initial(self, name: str) -> Floats:
        """The shared rows before any training: a common key and the labels alone decide them."""
        return self._start[name][self.holdings[name].local]

    def _triples_behind(self) -> dict[str, Table]:
        """How many triples stand behind each row, in the order of its labels."""
        found = {}
        for name in self.shared:
            counts = triples_behind(self.model, self.public, name)[self._common(name)]
            blank = np.empty((len(counts), 0), dtype=np.float32)
            found[name] = Table(np.arange(len(counts), dtype=np.int32), blank, weights=counts)
        return found

    def _agree(self, asked: Mapping[str, Any]) -> None:
        """Refuse a server whose strategy of this name is another one."""
        known = {"strategy": self._name, "shared": [*self.strategy.shared], "verbs": self.strategy.verbs()}
        for key, value in known.items():
            if asked[key] != value:
                raise RefusedError(
                    f"federation.strategy: the server's {asked['strategy']} has {key} {asked[key]}, and this "
                    f"client's {self._name} has {value}; install the same packages on all sides"
                )

    @property
    def _name(self) -> str:
        return self.experiment.federation.strategy

    # Training and ranking.

    def advance(self, download: Download) -> None:
        """Train a round and choose what travels; asked again about a round that is done, do nothing."""
        if self.round == download.round:
            return
        if download.round > self.experiment.federation.rounds:
            raise RefusedError(
                f"round {download.round} of a run of federation.rounds = {self.experiment.federation.rounds}"
            )
        self.take_to_train(download.tables)
        self._train(download.round)
        self.sent = {}
        for name in self.holdings:
            step = self.step(name).astype(np.float32)
            chosen = self.strategy.select(name, step, self._client_round(download.round))
            if chosen is not None:
                self.sent[name] = np.broadcast_to(np.asarray(chosen, dtype=bool), len(step)).copy()

    def prepare_scores(self, round: int) -> None:
        """Train what a model trains on the server's rows before they are scored; asked again, the same."""
        training = self.experiment.training
        if any(stage.before_scoring for stage in self.model.stages(training)):
            rng = generator(self.experiment.seed, "scoring", round, self.client)
            train(self.model, self.public, rng, training, scoring=True)

    def settle(self, download: Download) -> None:
        """Keep the state after a round of training, and no longer those that nobody will ask for."""
        self.files.prune(download.metadata["keep"], until=download.metadata["settled"])
        if self.every_round:
            self.save(download.round)

    def measure(self, split: str) -> dict[str, Any]:
        """Sums of what a split's triples score, and how long it took."""
        start = perf_counter()
        # What is best is chosen by unrestricted triples alone, unless so configured.
        chooses = split == "valid" and self.dp.validation == "unrestricted"
        graph = self.public if chooses else self.told
        evaluation = self.experiment.evaluation
        ranks = evaluate(self.model, graph, split, evaluation).ranks
        sums = sums_of(ranks, evaluation.ties)
        return {split: sums.to_json(), f"{split}_seconds": _fixed(perf_counter() - start)}

    def _keep_apart(self) -> None:
        """What confidential and unrestricted triples score apart: for whoever simulates, for no server."""
        parts: dict[str, dict[str, Any]] = {}
        evaluation = self.experiment.evaluation
        for split in ("valid", "test"):
            ranks = evaluate(self.model, self.graph, split, evaluation).ranks
            marks = self.graph.marks(split)
            chosen = {"confidential": marks, "unrestricted": ~marks}
            sums = {name: sums_of(ranks[rows], evaluation.ties) for name, rows in chosen.items()}
            parts[split] = {name: part.to_json() for name, part in sums.items()}
        with staged(self.files.folder / APART, private=True) as path:
            path.write_text(json.dumps(parts), encoding="utf-8")

    def upload(
        self, round: int, tables: Mapping[str, Table] | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Upload:
        return Upload(round, self.client, tables or {}, metadata or {})

    @property
    def dp(self) -> DPSettings:
        return self.experiment.dp_of(self.client)

    def _rows_secret(self, simulated: bool) -> bytes:
        """Where rows that are not shared start: from its disk, or in a simulation from the seed."""
        alike = self.experiment.federation.start == "alike"
        if simulated:
            return simulated_secret(self.experiment.seed, COMMON if alike else self.client)
        if alike:
            raise RefusedError(
                'federation.start = "alike": a deployed client starts rows that are its own from its own '
                'secret; leave it out, or set it to "own"'
            )
        return kept_secret(self.files.folder / "rows.secret")

    def _open_account(self, simulated: bool) -> PrivacyAccount | None:
        if self.dp.mode == "off":
            return None
        experiment, folder, ledgers = self.experiment, self.files.folder, self.files.ledgers
        account = PrivacyAccount(
            (folder if ledgers is None else ledgers) / LEDGER,
            self.client,
            self.graph,
            experiment.training,
            self.dp,
            experiment.federation.rounds,
            simulated_secret(experiment.seed, self.client),
            simulated,
            run=folder.parent.name,
            lifetime=self.policy.epsilon,
        )
        self.policy.check_noise(account.sigma)
        return account

    def _client_round(self, round: int) -> ClientRound:
        local = {name: holding.local for name, holding in self.holdings.items()}
        return ClientRound(round, local, self.reference, self.memory)

    def _deciding(self, term: Term | None) -> dict[str, NDArray[Any]] | None:
        """What decides a term: private training must not use the same noise for another one."""
        if term is None:
            return None
        references = {f"reference.{name}": rows for name, rows in self.reference.items()}
        return {**references, **{f"memory.{name}": array for name, array in self.memory.items()}}

    def _pool(self) -> Ids | None:
        """What negatives are drawn from, if not from all its entities."""
        holding = self.holdings.get(self.model.entity_table)
        if self.experiment.training.negatives_from != "first" or holding is None:
            return None
        return holding.first(self.graph.num_entities)

    def _train(self, round: int) -> None:
        rng = generator(self.experiment.seed, "train", round, self.client)
        settings = self.experiment.training
        if round > settings.decay_at * self.experiment.federation.rounds:
            settings = settings.model_copy(
                update={"learning_rate": settings.learning_rate / settings.decay_by}
            )
        term = self.strategy.objective(self._client_round(round))
        result: TrainResult
        if self.account is None:
            result = train(
                self.model,
                self.graph,
                rng,
                settings,
                optimizer=self.optimizer,
                term=term,
                pool=self._pool(),
                scoring=False,
            )
        else:
            arrays = self._deciding(term)
            result = self.account.train(
                self.model, rng, settings, round, self.optimizer, term, arrays, self.private
            )
            self.private = result.memory
        loss = result.losses[-1]
        self.optimizer = result.optimizer if settings.keep_optimizer else None
        self.round = round
        self.metadata = {
            "loss": loss if isfinite(loss) else None,  # none where every triple is confidential
            "triples": result.triples,
            "seconds": _fixed(result.seconds),
            "rss_mb": _fixed(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }


def _fixed(measured: float) -> str:
    """A measurement as text of one length: a machine's mood must not change how many bytes travel."""
    return f"{measured:013.6f}"
