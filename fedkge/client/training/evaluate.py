"""What ranks amount to: MRR, MR, Hits@k, AMRI, each with a 95 % interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkge.client.models.model import Model
from fedkge.client.training.ranks import Ranks, rank_as
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import EvaluationSettings
from fedkge.metrics import MetricSums

__all__ = [
    "METRICS",
    "Evaluation",
    "evaluate",
    "intervals",
    "measure",
    "measure_by_relation",
    "per_triple",
    "sums_of",
]

METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@10", "amri")

Columns = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """The metrics of one split; triples with unseen parts are ranked like all others, and counted."""

    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]  # 95 %, empty without a generator
    by_relation: dict[str, dict[str, float]]  # each with its number of triples
    num_triples: int
    num_unseen: int  # triples with an entity or relation that training never met
    ranks: Ranks


def evaluate(
    model: Model,
    graph: KnowledgeGraph,
    split: str,
    settings: EvaluationSettings,
    rng: np.random.Generator | None = None,
) -> Evaluation:
    """Rank a split as the settings say; a generator adds bootstrap intervals."""
    ranks = rank_as(settings, model, graph, split)["own"]
    return Evaluation(
        measure(ranks, settings.ties),
        {} if rng is None else intervals(ranks, rng, settings.ties),
        measure_by_relation(ranks, graph.relation_labels, settings.ties),
        len(ranks.triples),
        int((~ranks.seen).sum()),
        ranks,
    )


def measure(ranks: Ranks, ties: str = "realistic") -> dict[str, float]:
    """Every metric over all triples and sides; not a number where there are none."""
    columns = _columns(ranks, ties)
    if len(columns) == 0:
        return dict.fromkeys(METRICS, float("nan"))
    return dict(zip(METRICS, _from_means(columns.mean(axis=0)[None])[0].tolist(), strict=True))


def measure_by_relation(
    ranks: Ranks, labels: tuple[str, ...], ties: str = "realistic"
) -> dict[str, dict[str, float]]:
    """The metrics of each relation that has triples, with their number."""
    metrics = {}
    for relation in np.unique(ranks.triples[:, 1]):
        chosen = ranks.triples[:, 1] == relation
        metrics[labels[relation]] = {"triples": float(chosen.sum()), **measure(ranks[chosen], ties)}
    return metrics


def intervals(
    ranks: Ranks, rng: np.random.Generator, ties: str = "realistic", resamples: int = 1000
) -> dict[str, tuple[float, float]]:
    """Percentile bootstrap over triples: the two sides of a triple are drawn together."""
    columns = _columns(ranks, ties)
    n = len(columns)
    if n == 0:
        return {}
    means = np.empty((resamples, columns.shape[1]))
    for i in range(resamples):
        times = np.bincount(rng.integers(0, n, n), minlength=n)
        means[i] = times @ columns / n
    low, high = np.percentile(_from_means(means), [2.5, 97.5], axis=0)
    return {name: (float(a), float(b)) for name, a, b in zip(METRICS, low, high, strict=True)}


def _columns(ranks: Ranks, ties: str) -> Columns:
    """What each triple adds to the metrics, averaged over its sides: (n, 6)."""
    places = ranks.ranks(ties)  # (n, sides)
    hits = [(places <= k).astype(np.float64) for k in (1, 3, 10)]
    chance = (ranks.candidates - 1) / 2  # the expected number of candidates ahead of a random guess
    return np.stack([column.mean(axis=1) for column in (1 / places, places, *hits, chance)], axis=1)


def _from_means(means: Columns) -> Columns:
    """(k, 6) means to (k, 6) metrics; AMRI is 1 − (MR − 1) / chance (Berrendorf et al., 2020)."""
    chance = means[:, 5]
    amri = 1 - (means[:, 1] - 1) / np.where(chance > 0, chance, np.nan)
    return np.column_stack([means[:, :5], amri])


def per_triple(ranks: Ranks, ties: str = "realistic") -> dict[str, Columns]:
    """What each triple scores, averaged over its sides; the mean of a column is the metric."""
    columns = _columns(ranks, ties)
    return {name: columns[:, place] for place, name in enumerate(METRICS[:5])}


def sums_of(ranks: Ranks, ties: str = "realistic") -> MetricSums:
    """What the triples score together: all that a client tells of its ranks."""
    values = per_triple(ranks, ties)
    return MetricSums(
        len(ranks.triples),
        int((~ranks.seen).sum()),
        {name: float(column.sum()) for name, column in values.items()},
        {name: float((column**2).sum()) for name, column in values.items()},
    )
