"""One run: the data each client gets, a folder for everything, an engine, and the answers."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkge.attacks.behaviours.acting_server import ActingServer
from fedkge.attacks.behaviours.tampering import Tampering
from fedkge.attacks.recorded_run import RecordedRun, keep_states
from fedkge.client.models import MODELS
from fedkge.client.participant import APART
from fedkge.client.state import StateFiles
from fedkge.datasets import Split
from fedkge.errors import DataError, InputError
from fedkge.experiment import EvaluationSettings, Experiment
from fedkge.metrics import MetricSums
from fedkge.server.app import serve
from fedkge.server.loop import Federation
from fedkge.server.progress import Observer
from fedkge.server.records import Records
from fedkge.server.summary import experiment_hash, metrics_of
from fedkge.simulations.report import write_report
from fedkge.simulations.runs.attacking import attack_run, nothing_to_attack, publish
from fedkge.simulations.runs.checks import check_federation, check_folder, check_names
from fedkge.simulations.runs.engines import open_grid
from fedkge.simulations.runs.layout import divide, is_secure, lay_out, node_configs, pooled, with_clients
from fedkge.simulations.runs.run_folder import RunFolder, RunResult, is_run, result_of
from fedkge.simulations.runs.tracking import check_trackers, tracked
from fedkge.simulations.scoring.judge import judge
from fedkge.simulations.scoring.network_tasks import network_tasks
from fedkge.simulations.scoring.scores import Scores
from fedkge.simulations.scoring.shared_rows import SharedRows
from fedkge.storage import storage_errors

__all__ = ["RunResult", "divide", "plan_file", "result_of", "resume", "run", "run_or_resume"]


def run(
    experiment: Experiment,
    folder: Path,
    observer: Observer | None = None,
    split: Split | None = None,
    tampering: Mapping[int, Tampering] | None = None,
    track: Sequence[str] = (),
    server: ActingServer | None = None,
) -> RunResult:
    """Run an experiment in a new folder.

    Args:
        experiment: what to run.
        folder: a new or an empty one.
        observer: is told of every step.
        split: the clients' data, to spare dividing them again.
        tampering: makes clients malicious, each by its plan, which is kept in the folder.
        track: names of TRACKERS.
        server: makes the server malicious.

    A run with a malicious party says so in its folder, and cannot be resumed.
    """
    adversary = "tampering" if tampering else "active" if server else ""
    check_names(experiment)
    check_trackers(track)
    check_folder(folder, resumable=not adversary)
    split = split or divide(experiment)
    experiment = with_clients(experiment, split)
    if experiment.federation.strategy == "Central":
        split = pooled(split)
    check_federation(experiment, split)
    for plan in (tampering or {}).values():
        plan.check()
    lay_out(folder, experiment, split, adversary)
    for client, plan in (tampering or {}).items():
        plan.save(plan_file(folder, client))
    return _serve(experiment, folder, observer, track, tampering=tuple(tampering or ()), server=server)


def plan_file(folder: Path, client: int) -> Path:
    """Where a malicious client of a run finds its plan."""
    return folder / f"tampering-{client}.json"


def resume(
    folder: Path,
    observer: Observer | None = None,
    experiment: Experiment | None = None,
    track: Sequence[str] = (),
) -> RunResult:
    """Go on with a run from its last checkpoint; an experiment that is given must be the run's."""
    check_trackers(track)
    begun = RunFolder.read(folder)
    if begun.adversary:
        raise InputError(f"{folder}: {begun.remedy}")
    stored = begun.load_experiment()
    if experiment is not None and experiment_hash(experiment) != experiment_hash(stored):
        raise InputError(
            f"{folder} holds a different experiment; resume it without an experiment file, or start a new run"
        )
    if begun.is_settled:
        return result_of(folder)
    return _serve(stored, folder, observer, track, resumed=True)


def run_or_resume(
    experiment: Experiment,
    folder: Path,
    observer: Observer | None = None,
    split: Split | None = None,
    track: Sequence[str] = (),
) -> RunResult:
    """Run, or go on with the run of the same experiment that was begun in this folder."""
    if not is_run(folder):
        return run(experiment, folder, observer, split, track=track)
    return resume(folder, observer, with_clients(experiment, split) if split else experiment, track)


def _serve(
    experiment: Experiment,
    folder: Path,
    observer: Observer | None,
    track: Sequence[str],
    resumed: bool = False,
    tampering: Sequence[int] = (),
    server: ActingServer | None = None,
) -> RunResult:
    folder = folder.resolve()
    name, command = RunFolder(folder).run_name, "" if RunFolder(folder).adversary else None
    run_id = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "little")
    states = folder / "clients" / f"run-{name}"
    nodes = node_configs(folder, experiment, {client: plan_file(folder, client) for client in tampering})
    with (
        tracked(track, experiment, folder, observer) as watch,
        open_grid(run_id, experiment.to_json(), nodes, experiment.engine) as grid,
    ):
        summary = serve(grid, experiment, folder, watch, resumed, name, command, server or Federation)
        watch.end(summary)
    if is_secure(experiment):
        summary["utility"]["per_client"] = _scores_of_clients(states, experiment.data.clients)
        Records(folder).write_json("summary.json", summary)
    apart = _scores_apart(states, experiment.data.clients)
    if apart:
        _publish_apart(Records(folder), summary, apart)
    if experiment.adversary.record != "off":
        keep_states(folder, states, experiment.data.clients)
    _export(folder, states, experiment.data.clients, summary["utility"]["best_round"])
    judged = judge(folder, _shared_rows(experiment, folder, states, summary))
    _publish_scores(Records(folder), summary, judged, experiment.evaluation)
    tasks = network_tasks(folder)
    if tasks:
        summary["utility"]["tasks"] = tasks
        Records(folder).write_json("summary.json", summary)
    with storage_errors(folder):
        shutil.rmtree(folder / "clients")  # its states are no longer needed
    if experiment.adversary.attacks:
        has_view = RecordedRun(folder).shared
        summary = publish(folder, attack_run(folder) if has_view else nothing_to_attack(experiment))
    write_report([folder])
    return RunResult(folder, summary)


def _scores_of_clients(states: Path, num_clients: int) -> dict[str, Any]:
    """What the server did not learn: a simulation may look into its clients' folders."""
    scores = {}
    for client in range(num_clients):
        text = (states / f"client-{client}" / "test.json").read_text(encoding="utf-8")
        sums = json.loads(text).items()
        scores[str(client)] = {split: metrics_of(MetricSums.from_json(part)) for split, part in sums}
    return scores


def _scores_apart(states: Path, num_clients: int) -> dict[str, dict[str, MetricSums]]:
    """What confidential and unrestricted triples score, by split, over all clients; nothing without marks."""
    places = (states / f"client-{client}" / APART for client in range(num_clients))
    found = [json.loads(place.read_text(encoding="utf-8")) for place in places if place.exists()]
    return {
        split: {
            part: MetricSums.total([MetricSums.from_json(each[split][part]) for each in found])
            for part in ("confidential", "unrestricted")
        }
        for split in (("valid", "test") if found else ())
    }


def _publish_apart(
    records: Records, summary: dict[str, Any], apart: Mapping[str, Mapping[str, MetricSums]]
) -> None:
    """Into metrics.csv and summary.json, where no server of a deployment would have them."""
    utility = summary["utility"]
    utility["apart"] = {
        split: {part: metrics_of(sums) for part, sums in parts.items()} for split, parts in apart.items()
    }
    rows = [
        (utility["best_round"], "all", f"{split} {part}", metric, value)
        for split, parts in apart.items()
        for part, sums in parts.items()
        for metric, value in sums.means().items()
    ]
    records.add("metrics", rows)
    records.write_json("summary.json", summary)


def _export(folder: Path, states: Path, num_clients: int, best: int) -> None:
    """Each client's embeddings of the best round, with labels."""
    run_folder, records = RunFolder(folder), Records(folder)
    settings = run_folder.load_experiment().model
    specs = MODELS[settings.name].table_specs(settings)
    for client in range(num_clients):
        name = f"client-{client}"
        state = StateFiles(states / name).newest(best)
        if state is None:
            raise DataError(f"{states / name}: no state of round {best}; the run was tampered with")
        graph = run_folder.graph(client)
        labels = {table: graph.labels[specs[table].vocabulary] for table in state.tables}
        records.write_tables(name, {**state.tables, **state.weights, **state.buffers}, labels)


def _shared_rows(
    experiment: Experiment, folder: Path, states: Path, summary: Mapping[str, Any]
) -> SharedRows | None:
    """Rows of all entities that are shared, if clients are to rank against them."""
    if experiment.evaluation.candidates != "union":
        return None
    graphs = [RunFolder(folder).graph(client) for client in range(experiment.data.clients)]
    table = MODELS[experiment.model.name].entity_table
    return SharedRows.read(states, graphs, table, summary["utility"]["best_round"])


def _publish_scores(
    records: Records, summary: dict[str, Any], judged: Sequence[Scores], settings: EvaluationSettings
) -> None:
    """By filter, side, kind of relation and client, where no server of a deployment would have them."""
    utility = summary["utility"]
    filters: dict[str, dict[str, Any]] = {}
    for scores in judged:
        block = filters.setdefault(scores.filter, {"protocol": settings.protocol(scores.filter)})
        block[scores.split] = scores.summary()
        records.add("metrics", scores.rows(utility["best_round"]))
    utility["filters"] = filters
    records.write_json("summary.json", summary)
