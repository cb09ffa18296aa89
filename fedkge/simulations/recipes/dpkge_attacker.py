"""What an attacker makes of DPKGE's rows: ranks of confidential statements, and of one that is left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from fedkge.client.models import Model
from fedkge.client.ranking import rank
from fedkge.datasets.graph import IntArray, KnowledgeGraph
from fedkge.seeding import draw
from fedkge.simulations.recipes.dpkge_cells import DATASETS, Cell, Method, Mode, graph_of, train_cell
from fedkge.simulations.recipes.dpkge_paper import MANN_WHITNEY_P, NEIGHBOURS
from fedkge.simulations.recipes.scale import Scale

__all__ = [
    "attacker_ranks",
    "critical_attacks",
    "leave_out",
    "neighbouring_graphs",
    "rank_histogram",
    "tail_ranks",
]

_DRAW = 0xA77AC  # tells this draw from others with the same seed
_EDGES = (1, 2, 11, 51, 101, 501, 1001, 5001, 50_001)
_EPOCHS = {"quick": 15, "full": 100}
_SIGMA = 0.7
_KINDS: tuple[tuple[Method, Mode, float | None], ...] = (
    ("NDP", "off", None),
    ("U", "off", None),
    ("DPKGE", "paper", _SIGMA),
    ("DPKGE", "sound", _SIGMA),
)


def attacker_ranks(scale: Scale = "quick", seed: int = 0) -> pd.DataFrame:
    """DPKGE figure 6: ranks of 1,000 confidential statements, tested against NDP's.

    Quick: 15 epochs. U never saw the statements: what its ranks give away, the others give away.
    """
    frames = [rank_histogram(dataset, _EPOCHS[scale], seed) for dataset in DATASETS[scale]]
    return pd.concat(frames, ignore_index=True)


def rank_histogram(dataset: str, epochs: int, seed: int, count: int = 1000) -> pd.DataFrame:
    """How many ranks of attacked statements fall in each range, by method and mode."""
    graph = graph_of(dataset, 0.5)
    attacked = critical_attacks(graph, count, draw(seed, _DRAW))
    found, reference = [], np.empty(0)
    for method, mode, sigma in _KINDS:
        trained = train_cell(Cell(dataset, "TransE", method, mode, sigma, epochs=epochs, seed=seed))
        ranks = tail_ranks(trained.model, graph, attacked)
        reference = ranks if method == "NDP" else reference
        test = mannwhitneyu(ranks, reference, alternative="two-sided")
        counts, _ = np.histogram(ranks, _EDGES)
        shared = {
            "dataset": dataset,
            "method": method,
            "mode": mode,
            "sigma": sigma,
            "epochs": epochs,
            "median_rank": float(np.median(ranks)),
            "mann_whitney_u": float(test.statistic),
            "p_value": float(test.pvalue),
            "published_p": MANN_WHITNEY_P if method == "DPKGE" else None,  # on FB15k
        }
        found += [
            {**shared, "rank_from": low, "rank_to": high - 1, "count": int(number)}
            for low, high, number in zip(_EDGES[:-1], _EDGES[1:], counts, strict=True)
        ]
    return pd.DataFrame(found)


def neighbouring_graphs(scale: Scale = "quick", seed: int = 0) -> pd.DataFrame:
    """DPKGE table 11: the rank of a statement by models trained with and without it.

    Quick: one statement, 15 epochs. The rank by a model trained with it from another seed tells chance from
    the statement's own weight.
    """
    count = len(NEIGHBOURS) if scale == "full" else 1
    frames = [leave_out(dataset, count, _EPOCHS[scale], seed) for dataset in DATASETS[scale]]
    return pd.concat(frames, ignore_index=True)


def leave_out(dataset: str, count: int, epochs: int, seed: int) -> pd.DataFrame:
    """Ranks of some confidential statements on neighbouring graphs, by method and mode."""
    graph = graph_of(dataset, 0.5)
    statements = critical_attacks(graph, count, draw(seed, _DRAW, 1))
    found = []
    for method, mode, sigma in _KINDS:
        if method == "U":
            continue
        cell = Cell(dataset, "TransE", method, mode, sigma, epochs=epochs, seed=seed)
        whole, again = (train_cell(one).model for one in (cell, replace(cell, seed=seed + 1)))
        for number, triple in enumerate(statements, start=1):
            left = train_cell(replace(cell, without=tuple(triple.tolist()))).model
            ranks = [float(tail_ranks(model, graph, triple[None])[0]) for model in (whole, left, again)]
            published = NEIGHBOURS[number][0 if method == "NDP" else 1]
            found.append(
                {
                    "dataset": dataset,
                    "statement": " ".join(_labels(graph, triple)),
                    "method": method,
                    "mode": mode,
                    "sigma": sigma,
                    "epochs": epochs,
                    "rank_with": ranks[0],
                    "rank_without": ranks[1],
                    "rank_with_reseeded": ranks[2],
                    "published_with": published[0],  # of other statements, on FB15k
                    "published_without": published[1],
                }
            )
    return pd.DataFrame(found)


def critical_attacks(graph: KnowledgeGraph, count: int, rng: np.random.Generator) -> IntArray:
    """Confidential train triples, no two with the same head and relation."""
    confidential = graph.train[graph.marks("train")]
    shuffled = confidential[rng.permutation(len(confidential))]
    _, first = np.unique(
        shuffled[:, 0].astype(np.int64) * graph.num_relations + shuffled[:, 1], return_index=True
    )
    chosen: IntArray = shuffled[np.sort(first)[:count]]
    return chosen


def tail_ranks(model: Model, graph: KnowledgeGraph, triples: IntArray) -> NDArray[np.float64]:
    """Where the tails stand among all entities; the attacker knows no triples to filter by."""
    asked = KnowledgeGraph.from_ids("attacked", graph.entity_labels, graph.relation_labels, {"test": triples})
    places: NDArray[np.float64] = rank(model, asked, "test", "tail").ranks()[:, 0]
    return places


def _labels(graph: KnowledgeGraph, triple: IntArray) -> tuple[str, str, str]:
    head, relation, tail = triple
    return graph.entity_labels[head], graph.relation_labels[relation], graph.entity_labels[tail]
