"""What the vertex rows of a finished run are good for, where its clients hold networks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedkge.client.networks.tasks import Score, classify_vertices, predict_links
from fedkge.datasets.graph import SPLITS
from fedkge.datasets.networks.network import Edges, edges_of, is_network
from fedkge.datasets.split import Split
from fedkge.errors import DataError
from fedkge.seeding import draw
from fedkge.simulations.runs.run_folder import RunFolder
from fedkge.simulations.trained.client_model import Trained, load_trained

__all__ = ["LINKS", "VERTICES", "joined_anywhere", "network_tasks"]

_log = logging.getLogger(__name__)

VERTICES, LINKS = "vertex classification", "link prediction"
_DRAW = 0x4E7  # tells these draws from others with the same seed
_LEARNT = 0.5  # of the held-out edges, by the logistic regression

Task = Callable[[Trained, np.random.Generator], Mapping[str, Score]]


def network_tasks(folder: Path) -> dict[str, Any]:
    """By task: the mean over clients, each client's scores, and why a client has none; nothing of others.

    Means are weighted by vertices, or by held-out edges; their intervals are the clients', averaged so.
    """
    run = RunFolder(folder)
    experiment = run.load_experiment()
    clients = range(experiment.data.clients)
    if not all(is_network(run.graph(client)) for client in clients):
        return {}
    trained = [load_trained(folder, client) for client in clients]
    sizes = {
        VERTICES: [each.graph.num_entities for each in trained],
        LINKS: [len(each.graph.test) for each in trained],
    }
    split = Split.of(experiment.data.dataset, [each.graph for each in trained], experiment.data.partition)
    return {
        name: _task(task, trained, sizes[name], experiment.seed)
        for name, task in ((VERTICES, _classes), (LINKS, partial(_links, split)))
    }


def _classes(trained: Trained, rng: np.random.Generator) -> Mapping[str, Score]:
    return classify_vertices(trained.model.entity_vectors(), trained.graph.classes, rng)


def _links(split: Split, trained: Trained, rng: np.random.Generator) -> Mapping[str, Score]:
    """Of the test edges, against pairs that no edge of any client joins, in any split."""
    rows, tested = trained.model.entity_vectors(), edges_of(trained.graph, "test")
    return predict_links(rows, tested, joined_anywhere(split, trained.client), rng, trained=_LEARNT)


def joined_anywhere(split: Split, client: int) -> Edges:
    """(n, 2) in a client's numbers, every edge of any client between two vertices that this client has.

    Rows of a federation know edges of others; only whoever sees all clients can tell them from no edges.
    """
    ends = np.concatenate(
        [ids[edges_of(graph, *SPLITS)] for graph, ids in zip(split.clients, split.entity_ids, strict=True)]
    )
    place = np.full(len(split.entity_labels), -1, dtype=np.int32)
    place[split.entity_ids[client]] = np.arange(len(split.entity_ids[client]))
    known: Edges = place[ends]
    return known[(known >= 0).all(axis=1)]


def _task(task: Task, trained: Sequence[Trained], sizes: Sequence[int], seed: int) -> dict[str, Any]:
    scores: dict[int, Mapping[str, Score]] = {}
    reasons: dict[str, str] = {}
    for each in trained:
        try:
            scores[each.client] = task(each, draw(seed, _DRAW, each.client))
        except DataError as error:  # a finished run is not lost for what cannot be asked of it
            reasons[str(each.client)] = str(error)
    for reason, count in Counter(reasons.values()).items():
        _log.warning("not possible for %d of %d clients: %s", count, len(trained), reason)
    weights = np.array([sizes[client] for client in scores], dtype=np.float64)
    names = next(iter(scores.values()), {})
    mean = {name: _mean([found[name] for found in scores.values()], weights).to_json() for name in names}
    by_client = {
        str(client): {name: score.to_json() for name, score in found.items()}
        for client, found in scores.items()
    }
    return {"mean": mean, "clients": by_client, "not possible": reasons}


def _mean(scores: Sequence[Score], weights: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Score:
    columns = ([score.value for score in scores], [score.low for score in scores], [s.high for s in scores])
    return Score(*(float(np.average(column, weights=weights)) for column in columns))
