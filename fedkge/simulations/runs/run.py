"""One run: the data each client gets, a folder for everything, an engine, and the answers."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedkge.attacks import ATTACKS
from fedkge.attacks.recorded_run import check_adversary, keep_states
from fedkge.client.keyring import ROSTER, create_identity
from fedkge.client.models import MODELS
from fedkge.client.privacy import MECHANISMS, mechanism_of
from fedkge.client.state import StateFiles
from fedkge.crypto import Roster
from fedkge.datasets import (
    SPLITS,
    KnowledgeGraph,
    Split,
    load,
    load_graph,
    mark,
    mark_split,
    partition,
    write_graph,
)
from fedkge.errors import DataError, InputError, SettingError, UnknownNameError
from fedkge.experiment import Experiment
from fedkge.metrics import MetricSums
from fedkge.server.app import check_strategy, serve
from fedkge.server.progress import Observer
from fedkge.server.records import Records
from fedkge.server.summary import experiment_hash, metrics_of
from fedkge.simulations.report import write_report
from fedkge.simulations.runs.engines import NodeConfig, open_grid
from fedkge.simulations.runs.environment import describe
from fedkge.simulations.runs.tracking import check_trackers, tracked
from fedkge.storage import storage_errors
from fedkge.strategy import STRATEGIES, check_shared

__all__ = ["RunResult", "divide", "result_of", "resume", "run", "run_or_resume"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """A finished run: its folder, and what is in it."""

    folder: Path
    summary: dict[str, Any]

    @cached_property
    def metrics(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / "metrics.csv")

    @cached_property
    def messages(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / "messages.csv")

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Means over all clients with their 95 % intervals: a row for each split and metric."""
        return pd.DataFrame(
            [
                {"split": split, "metric": name, "value": each["value"], "low": low, "high": high}
                for split in ("valid", "test")
                for name, each in self.summary["utility"][split].items()
                if isinstance(each, dict)
                for low, high in [each["interval"]]
            ],
            columns=["split", "metric", "value", "low", "high"],
        )

    def _repr_html_(self) -> str:
        html: str = self.frame.to_html(index=False)
        return html

    def test(self, metric: str = "mrr") -> float:
        return float(self.summary["utility"]["test"][metric]["value"])


def run(
    experiment: Experiment,
    folder: Path,
    observer: Observer | None = None,
    split: Split | None = None,
    tampering: Mapping[int, Path] | None = None,
    track: Sequence[str] = (),
) -> RunResult:
    """Run an experiment in a new folder; `split` spares dividing the data again, `track` names trackers.

    `tampering` makes clients malicious, each by a plan of fedkge.attacks.behaviours.tampering.
    """
    _check_names(experiment)
    check_trackers(track)
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; choose another --out, or go on with --resume {folder}")
    split = split or divide(experiment)
    experiment = _with_clients(experiment, split)
    _check_clients(experiment)
    strategy = check_strategy(experiment)
    kind, graph = MODELS[experiment.model.name], split.clients[0]
    known = [*kind.table_specs(experiment.model), *kind.weight_shapes(experiment.model, graph)]
    check_shared(experiment.federation.strategy, strategy.shared, experiment.model.name, known)
    check_adversary(experiment)
    if experiment.federation.strategy == "Central":
        split = _pooled(split)
    _check_confidential(experiment, split)
    _lay_out(folder, experiment, split)
    return _reported(_serve(experiment, folder, observer, track, resumed=False, tampering=tampering or {}))


def resume(
    folder: Path,
    observer: Observer | None = None,
    experiment: Experiment | None = None,
    track: Sequence[str] = (),
) -> RunResult:
    """Go on with a run from its last checkpoint."""
    check_trackers(track)
    path = folder / "experiment.toml"
    if not folder.exists():
        raise InputError(f"{folder}: no such folder; give the folder of a run")
    if not path.is_file():
        raise InputError(
            f"{folder} is not a run folder (it has no experiment.toml); give the folder of a run"
        )
    stored = Experiment.load(path)
    if experiment is not None and experiment_hash(experiment) != experiment_hash(stored):
        raise InputError(
            f"{folder} holds a different experiment; resume it without an experiment file, or start a new run"
        )
    if (folder / "summary.json").exists() and not (folder / "clients").exists():
        return result_of(folder)  # it ended, and its clients' states are gone: there is nothing to go on with
    return _reported(_serve(stored, folder, observer, track, resumed=True, tampering={}))


def run_or_resume(
    experiment: Experiment,
    folder: Path,
    observer: Observer | None = None,
    split: Split | None = None,
    track: Sequence[str] = (),
) -> RunResult:
    """Run, or go on with the run of the same experiment that was begun in this folder."""
    if not (folder / "experiment.toml").exists():
        return run(experiment, folder, observer, split, track=track)
    asked = _with_clients(experiment, split) if split else experiment
    return resume(folder, observer, asked, track)


def result_of(folder: Path) -> RunResult:
    """A run that ended earlier."""
    path = folder / "summary.json"
    if not path.is_file():
        raise InputError(
            f"{folder}: no finished run (it has no summary.json); finish it with --resume {folder}"
        )
    return RunResult(folder, json.loads(path.read_text(encoding="utf-8")))


def divide(experiment: Experiment) -> Split:
    """The data of every client, as the experiment says."""
    data, seed = experiment.data, experiment.seed
    source = load(data.dataset)
    rule = str(data.confidential)
    if isinstance(source, Split):
        split = partition(
            source, "given" if data.partition in ("fedr", "given") else data.partition, clients=0
        )
        return _with_own_data(mark_split(split, rule, seed) if rule != "0.0" else split, experiment)
    graph = mark(source, rule, seed) if rule != "0.0" else source
    return _with_own_data(partition(graph, data.partition, data.clients, seed), experiment)


def _with_own_data(split: Split, experiment: Experiment) -> Split:
    """Clients that bring their own triples, in the place of their part."""
    given = {each.client: Path(each.data) for each in experiment.clients if each.data is not None}
    if not given:
        return split
    rule = str(experiment.data.confidential)
    graphs = list(split.clients)
    for client, path in given.items():
        if client < len(graphs):
            graph = replace(load_graph(path), name=f"client-{client}")
            graphs[client] = mark(graph, rule, experiment.seed) if rule not in ("0.0", "column") else graph
    return Split.of(split.name, graphs, split.partition, split.seed)


def _check_clients(experiment: Experiment) -> None:
    for each in experiment.clients:
        if each.client >= experiment.data.clients:
            raise SettingError(
                f"clients.client: there is no client {each.client}; the last of {experiment.data.clients} is "
                f"{experiment.data.clients - 1}"
            )


def _check_confidential(experiment: Experiment, split: Split) -> None:
    """Refuse private training that cannot be done, before a client is asked; warn where there is none."""
    bare = []
    for client, graph in enumerate(split.clients):
        dp = experiment.dp_of(client)
        if dp.mode != "off":
            mechanism_of(dp).check(MODELS[experiment.model.name], graph, experiment.training)
        elif graph.confidential and graph.marks("train").any():
            bare.append(client)
    if bare:
        _log.warning(
            "clients %s train on confidential triples without differential privacy; switch it on with "
            "--set privacy.dp.sigma=1.0, or set data.confidential = 0",
            ", ".join(map(str, bare)),
        )


def _check_names(experiment: Experiment) -> None:
    if experiment.federation.strategy not in STRATEGIES:
        raise UnknownNameError("strategy", experiment.federation.strategy, STRATEGIES)
    if experiment.model.name not in MODELS:
        raise UnknownNameError("model", experiment.model.name, MODELS)
    for mode in (experiment.dp_of(client).mode for client in range(experiment.data.clients)):
        if mode not in ("off", *MECHANISMS):
            raise UnknownNameError("DP mode", mode, ("off", *MECHANISMS))
    for attack in experiment.adversary.attacks:
        if attack not in ATTACKS:
            raise UnknownNameError("attack", attack, ATTACKS)


def _with_clients(experiment: Experiment, split: Split) -> Experiment:
    """A given split knows how many clients there are; Central has one."""
    clients = 1 if experiment.federation.strategy == "Central" else split.num_clients
    data = experiment.data.model_copy(update={"clients": clients})
    return experiment.model_copy(update={"data": data})


def _pooled(split: Split) -> Split:
    """All clients' triples in one client's hands; a triple that one trains on is no longer held out."""
    seen: set[tuple[int, int, int]] = set()
    arrays, marks = {}, {}
    for name in SPLITS:
        parts = np.concatenate([split.global_triples(client, name) for client in range(split.num_clients)])
        triples = list(map(tuple, parts.tolist()))
        rows = [row for row in dict.fromkeys(triples) if row not in seen]
        seen.update(rows)
        arrays[name] = np.array(rows, dtype=np.int32).reshape(-1, 3)
        own = np.concatenate([graph.marks(name) for graph in split.clients]).tolist()
        secret = {row for row, confidential in zip(triples, own, strict=True) if confidential}
        marks[name] = np.array([row in secret for row in rows], dtype=bool)  # to one client is to all
    marked = marks if any(graph.confidential for graph in split.clients) else None
    graph = KnowledgeGraph.from_ids("client-0", split.entity_labels, split.relation_labels, arrays, marked)
    return Split.single(graph)


def _lay_out(folder: Path, experiment: Experiment, split: Split) -> None:
    """Each client's data in a folder of its own, and what the run is."""
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for number, graph in enumerate(split.clients):
            write_graph(folder / "data" / f"client-{number}", graph)
        (folder / "environment.json").write_text(json.dumps(describe(), indent=2) + "\n", encoding="utf-8")
        (folder / "experiment.toml").write_text(experiment.to_toml(), encoding="utf-8")
        if _is_secure(experiment):
            _make_identities(folder, experiment.data.clients)


def _is_secure(experiment: Experiment) -> bool:
    return experiment.privacy.secure_aggregation and bool(STRATEGIES[experiment.federation.strategy].shared)


def _make_identities(folder: Path, num_clients: int) -> None:
    """Each client's key in its own folder, and the roster for everybody; no secret is the server's."""
    keys = [folder / "clients" / f"keys-{number}" for number in range(num_clients)]
    roster = Roster.of(create_identity(own) for own in keys).to_text()
    for own in keys:
        (own / ROSTER).write_text(roster, encoding="utf-8")
    (folder / "roster.txt").write_text(roster, encoding="utf-8")


def _serve(
    experiment: Experiment,
    folder: Path,
    observer: Observer | None,
    track: Sequence[str],
    resumed: bool,
    tampering: Mapping[int, Path],
) -> RunResult:
    folder = folder.resolve()
    run_id = int.from_bytes(hashlib.sha256(str(folder).encode()).digest()[:7], "little")
    nodes: dict[int, NodeConfig] = {
        number + 1: {
            "partition-id": number,
            "num-partitions": experiment.data.clients,
            "data": str(folder / "data" / f"client-{number}"),
            "state": str(folder / "clients"),
            "simulated": True,
            **({"keys": str(folder / "clients" / f"keys-{number}")} if _is_secure(experiment) else {}),
            **({"tampering": str(tampering[number].resolve())} if number in tampering else {}),
        }
        for number in range(experiment.data.clients)
    }
    with (
        tracked(track, experiment, folder, observer) as watch,
        open_grid(run_id, experiment.to_json(), nodes, experiment.engine) as grid,
    ):
        summary = serve(grid, experiment, folder, watch, resumed)
        watch.end(summary)
    if _is_secure(experiment):
        summary["utility"]["per_client"] = _own_scores(folder, run_id, experiment.data.clients)
        Records(folder).write_json("summary.json", summary)
    if experiment.adversary.record != "off":
        keep_states(folder, folder / "clients" / f"run-{run_id}", experiment.data.clients)
    _export(folder, run_id, experiment, summary["utility"]["best_round"])
    if experiment.adversary.attacks:
        from fedkge.simulations.runs import attacking  # it needs this module

        sends = STRATEGIES[experiment.federation.strategy].shared
        found = attacking.attack_run(folder) if sends else attacking.nothing_to_attack(experiment)
        return attacking.publish(folder, found)
    return RunResult(folder, summary)


def _reported(result: RunResult) -> RunResult:
    """With a page that people can look at."""
    write_report([result.folder])
    return result


def _own_scores(folder: Path, run_id: int, num_clients: int) -> dict[str, Any]:
    """What the server did not learn: a simulation may look into its clients' folders."""
    found = {}
    for number in range(num_clients):
        path = folder / "clients" / f"run-{run_id}" / f"client-{number}" / "test.json"
        splits = json.loads(path.read_text(encoding="utf-8"))
        found[str(number)] = {
            split: metrics_of(MetricSums.from_json(facts)) for split, facts in splits.items()
        }
    return found


def _export(folder: Path, run_id: int, experiment: Experiment, best: int) -> None:
    """Each client's embeddings of the best round, with labels; then its states are no longer needed."""
    states, records = folder / "clients" / f"run-{run_id}", Records(folder)
    for number in range(experiment.data.clients):
        name = f"client-{number}"
        state = StateFiles(states / name).newest(best)
        if state is None:
            raise DataError(f"{states / name}: no state of round {best}; the run was tampered with")
        graph = load_graph(folder / "data" / name)
        labels = {"entity": graph.entity_labels, "relation": graph.relation_labels}
        records.write_tables(name, {table: state.tables[table] for table in labels}, labels)
    with storage_errors(folder):
        shutil.rmtree(folder / "clients")
