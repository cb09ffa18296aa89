"""NoGE among the candidates that the FedR authors' code has, beside candidates alike for all settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedkge.client.kernels.arrays import Floats
from fedkge.client.training.evaluate import sums_of
from fedkge.client.training.ranks import rank_as
from fedkge.experiment import EvaluationSettings, Experiment
from fedkge.metrics import MetricSums
from fedkge.simulations.scoring.shared_rows import SharedRows
from fedkge.simulations.studies.cells import Row, StudyCache, TableCell
from fedkge.simulations.studies.fedr.fedr_runs import NUMBERS, STRATEGIES, FedRFederation
from fedkge.simulations.studies.fedr.fedr_tables import FEDR_NOTES, SEEDS
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import study
from fedkge.simulations.trained.client_model import load_trained

__all__ = ["among_shared", "noge_candidates"]

FAIR, PAPER = "mrr, own entities (fair)", "mrr, entities of all clients (paper)"
CLIENTS = (5, 10)


@study(
    within=("metric",),
    seeds=SEEDS,
    notes=(
        "Do not compare the published settings with each other: the authors' code ranks FedR among a "
        "client's own entities, FedE and Local among those of all clients, most of which are never right.",
        "Fair: all settings among the client's own entities, as in fedr-table-2. Paper: FedE among all "
        "entities that have a shared row; one that a client does not hold has no edge in its graph, and is "
        "encoded by its row alone. The rows are the same; only what is ranked differs. The authors' FedE "
        "also trains against these entities; ours does not.",
        "Local, paper: a run of its own (data.vocabulary = all), since its clients also train against the "
        "entities of others, as the authors' do: rows drawn at random, in no edge, wrong answers to all. "
        "Its best round is chosen among all entities too.",
        "The authors' FedE has such rows as well: a client that has no triple of an entity receives its row "
        "and sends none. Ours has no such clients, since who has a row counts as its holder.",
        *FEDR_NOTES,
    ),
)
def noge_candidates(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """NoGE of FedR table 2 among the candidates of the authors' code, beside candidates alike for all.

    Quick: five clients, 10 rounds instead of 300.
    """
    for clients in CLIENTS[: 1 if scale == "quick" else None]:
        for strategy in STRATEGIES:
            for seed in seeds:
                yield _measured(
                    FedRFederation("DDB14", "fedr-legacy", clients, "NoGE", strategy, scale, seed)
                )


@dataclass(frozen=True)
class OfAllEntities(FedRFederation):
    """Clients that train and rank with the entities of all clients, as the authors' Local does."""

    @property
    def experiment(self) -> Experiment:
        return super().experiment.override(["data.vocabulary=all", "evaluation.candidates=all"])


def _measured(federation: FedRFederation) -> TableCell:
    keys = {name: federation.keys[name] for name in ("dataset", "clients", "model", "strategy")}
    published = NUMBERS.get("2", "mrr", **keys)
    wider = OfAllEntities(**vars(federation))
    settings = federation.settings + (f"+{wider.settings}" if federation.strategy == "Local" else "")

    def measure(cache: StudyCache) -> Iterator[Row]:
        result = federation.result(cache)
        scores = result.summary["utility"]["test"]["mrr"]
        beside = published if federation.strategy == "FedR" else None  # the one that ranks so
        yield _row(FAIR, beside, scores["value"], *scores["interval"])
        if federation.strategy == "Local":
            scores = wider.result(cache).summary["utility"]["test"]["mrr"]
            yield _row(PAPER, published, scores["value"], *scores["interval"])
        if federation.strategy == "FedE":
            sums = among_shared(result.folder, federation.clients)
            yield _row(PAPER, published, sums.means()["mrr"], *sums.intervals()["mrr"])

    return TableCell(federation.keys, measure, settings)


def _row(metric: str, published: float | None, measured: float, low: float, high: float) -> Row:
    return {"metric": metric, "published": published, "measured": measured, "low": low, "high": high}


def among_shared(folder: Path, num_clients: int) -> MetricSums:
    """Test scores of an open run that shares entities, each client ranking among those of all clients."""
    clients = [load_trained(folder, client) for client in range(num_clients)]
    rows: dict[str, Floats] = {}
    for client in clients:  # holders of a row were sent the same
        table = client.model.tables[client.model.entity_table]
        rows |= {label: table[place] for place, label in enumerate(client.graph.entity_labels)}
    labels = tuple(sorted(rows))
    shared = SharedRows(labels, np.array([rows[label] for label in labels]))
    parts = []
    for client in clients:
        wider, offered = shared.extend(client)
        ranks = rank_as(EvaluationSettings(), wider.model, wider.graph, "test", shared=offered)["own"]
        parts.append(sums_of(ranks))
    return MetricSums.total(parts)
