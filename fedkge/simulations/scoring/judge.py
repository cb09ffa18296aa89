"""Ranks every client's triples once more when a run is over, as only whoever sees all clients can.

No client is handed anything for it, and none sends anything: models and graphs are read from the run's
folder, and others' answers go from there into `rank_as` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from fedkge.client.training.ranks import FILTERS, Ranks, rank_as
from fedkge.client.training.truths import Truths
from fedkge.datasets import KnowledgeGraph
from fedkge.experiment import Experiment
from fedkge.simulations.runs.run_folder import RunFolder
from fedkge.simulations.scoring.kinds import relation_kinds
from fedkge.simulations.scoring.scores import Scores, parts_of
from fedkge.simulations.scoring.shared_rows import SharedRows
from fedkge.simulations.trained.client_model import Trained, load_trained
from fedkge.storage import staged

__all__ = ["judge"]

SPLITS = ("valid", "test")


@dataclass(frozen=True)
class _Judged:
    """One client: its ranks by split and filter, the kinds of its relations, and whom it trained on."""

    ranks: Mapping[str, Mapping[str, Ranks]]
    kinds: list[str]
    seen: NDArray[np.bool_]  # (entities,)


def judge(folder: Path, shared: SharedRows | None = None) -> list[Scores]:
    """The scores of all clients by filter and split; ranks of single test triples go into a file.

    Args:
        folder: of a run whose embeddings are written.
        shared: rows of others' entities to rank against too.
    """
    run = RunFolder(folder)
    experiment = run.load_experiment()
    graphs = [run.graph(client) for client in range(experiment.data.clients)]

    def judged(client: int) -> _Judged:
        return _judge_client(load_trained(folder, client), graphs, experiment, shared)

    with ThreadPoolExecutor(experiment.engine.workers, thread_name_prefix="judge") as pool:
        clients = list(pool.map(judged, range(len(graphs))))
    ties = experiment.evaluation.ties
    _write_ranks(run.ranks, clients, ties)
    return [
        Scores(
            name,
            split,
            {
                number: parts_of(client.ranks[split][name], client.kinds, client.seen, ties)
                for number, client in enumerate(clients)
            },
        )
        for name in FILTERS
        if name in clients[0].ranks["test"]
        for split in SPLITS
    ]


def _judge_client(
    trained: Trained, graphs: list[KnowledgeGraph], experiment: Experiment, shared: SharedRows | None
) -> _Judged:
    settings, offered = experiment.evaluation, None
    if shared is not None:
        trained, offered = shared.extend(trained)
    model, graph = trained.model, trained.graph
    others = [other for client, other in enumerate(graphs) if client != trained.client]
    truths = None if settings.filter == "own" else Truths.of_others(graph, others)
    ranks = {split: rank_as(settings, model, graph, split, truths, offered) for split in SPLITS}
    return _Judged(ranks, relation_kinds(graph), graph.seen_entities)


def _write_ranks(path: Path, clients: list[_Judged], ties: str) -> None:
    arrays: dict[str, NDArray[np.float32]] = {
        f"client-{number}/{name}": np.ascontiguousarray(ranks.ranks(ties), dtype=np.float32)
        for number, client in enumerate(clients)
        for name, ranks in client.ranks["test"].items()
    }
    with staged(path) as partial:
        save_file(arrays, partial)
