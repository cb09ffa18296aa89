"""What an attacker makes of DPKGE's rows: ranks of confidential statements, and of one that is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from fedkge.client.models import Model
from fedkge.client.training.ranks import rank
from fedkge.datasets.graph import IntArray, KnowledgeGraph
from fedkge.seeding import draw
from fedkge.simulations.studies.cells import Key, Row, StudyCache, TableCell
from fedkge.simulations.studies.dpkge.dpkge_cells import (
    DATASETS,
    NUMBERS,
    Cell,
    Method,
    Mode,
    graph_of,
    train_cell,
)
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study
from fedkge.storage import staged

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
_PUBLISHED = {"dataset": "FB15k", "model": "TransE"}  # what the paper attacks
Kind = tuple[Method, Mode, float | None]

_KINDS: tuple[Kind, ...] = (
    ("NDP", "off", None),
    ("U", "off", None),
    ("DPKGE", "paper", _SIGMA),
    ("DPKGE", "sound", _SIGMA),
)
_ONE: dict[Scale, int] = {"quick": 1, "full": 1}


@study(
    [
        Quantity("median_rank", "median rank", within=()),
        Quantity("p_value", "p of equal ranks", "published_p", within=()),
        Quantity("count", "statements with such ranks"),
    ],
    within=("rank_from", "rank_to"),
    seeds=_ONE,
)
def attacker_ranks(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """DPKGE figure 6: ranks of 1,000 confidential statements, tested against NDP's.

    Quick: 15 epochs. U never saw the statements: what its ranks give away, the others give away.
    """
    for dataset in DATASETS[scale]:
        for seed in seeds:
            for kind in _KINDS:
                yield _ranked(dataset, kind, _EPOCHS[scale], seed, 1000)


def rank_histogram(dataset: str, epochs: int, seed: int, count: int, folder: Path) -> pd.DataFrame:
    """How many ranks of attacked statements fall in each range, by method and mode."""
    cells = [_ranked(dataset, kind, epochs, seed, count) for kind in _KINDS]
    return pd.DataFrame([row for cell in cells for row in cell.rows(StudyCache(folder), folder)])


def _ranked(dataset: str, kind: Kind, epochs: int, seed: int, count: int) -> TableCell:
    """The ranks by one method, tested against those by NDP, which are kept."""

    def measure(cache: StudyCache) -> list[Row]:
        ranks, reference = (
            _ranks(dataset, one, epochs, seed, count, cache.runs) for one in (kind, _KINDS[0])
        )
        test = mannwhitneyu(ranks, reference, alternative="two-sided")
        counts, _ = np.histogram(ranks, _EDGES)
        shared = {
            "epochs": epochs,
            "median_rank": float(np.median(ranks)),
            "mann_whitney_u": float(test.statistic),
            "p_value": float(test.pvalue),
            "published_p": NUMBERS.get("section 4.6", "p of equal ranks", **_PUBLISHED, method=kind[0]),
        }
        return [
            {**shared, "rank_from": low, "rank_to": high - 1, "count": int(number)}
            for low, high, number in zip(_EDGES[:-1], _EDGES[1:], counts, strict=True)
        ]

    return TableCell(_keys(dataset, kind, seed), measure, f"{epochs} {count}")


def _ranks(dataset: str, kind: Kind, epochs: int, seed: int, count: int, folder: Path) -> NDArray[np.float64]:
    method, mode, sigma = kind
    path = folder / f"ranks-{dataset}-{method}-{mode}-{epochs}-{seed}-{count}.npy"
    if not path.exists():
        graph = graph_of(dataset, 0.5)
        attacked = critical_attacks(graph, count, draw(seed, _DRAW))
        model = train_cell(Cell(dataset, "TransE", method, mode, sigma, epochs=epochs, seed=seed)).model
        with staged(path) as part, part.open("wb") as file:
            np.save(file, tail_ranks(model, graph, attacked), allow_pickle=False)
    kept: NDArray[np.float64] = np.load(path, allow_pickle=False)
    return kept


def _keys(dataset: str, kind: Kind, seed: int) -> dict[str, Key]:
    method, mode, sigma = kind
    return {"dataset": dataset, "method": method, "mode": mode, "sigma": sigma, "seed": seed}


@study(
    [
        Quantity("rank_with", "rank, trained with it", "published_with"),
        Quantity("rank_without", "rank, trained without it", "published_without"),
        Quantity("rank_with_reseeded", "rank, trained with it from another seed"),
    ],
    within=("statement",),
    seeds=_ONE,
    notes=("The published ranks are of other statements, on FB15k.",),
)
def neighbouring_graphs(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """DPKGE table 11: the rank of a statement by models trained with and without it.

    Quick: one statement, 15 epochs. The rank by a model trained with it from another seed tells chance from
    the statement's own weight.
    """
    count = len(NUMBERS.values("11", "statement")) if scale == "full" else 1
    for dataset in DATASETS[scale]:
        for seed in seeds:
            for kind in _KINDS:
                if kind[0] != "U":
                    yield _left_out(dataset, kind, count, _EPOCHS[scale], seed)


def leave_out(dataset: str, count: int, epochs: int, seed: int, folder: Path) -> pd.DataFrame:
    """Ranks of some confidential statements on neighbouring graphs, by method and mode."""
    cells = [_left_out(dataset, kind, count, epochs, seed) for kind in _KINDS if kind[0] != "U"]
    return pd.DataFrame([row for cell in cells for row in cell.rows(StudyCache(folder), folder)])


def _left_out(dataset: str, kind: Kind, count: int, epochs: int, seed: int) -> TableCell:
    method, mode, sigma = kind

    def measure(cache: StudyCache) -> Iterator[Row]:
        del cache
        graph = graph_of(dataset, 0.5)
        cell = Cell(dataset, "TransE", method, mode, sigma, epochs=epochs, seed=seed)
        whole, again = (train_cell(one).model for one in (cell, replace(cell, seed=seed + 1)))
        for number, triple in enumerate(critical_attacks(graph, count, draw(seed, _DRAW, 1)), start=1):
            left = train_cell(replace(cell, without=tuple(triple.tolist()))).model
            ranks = [float(tail_ranks(model, graph, triple[None])[0]) for model in (whole, left, again)]
            cell_of = {**_PUBLISHED, "method": method, "statement": str(number)}
            yield {
                "statement": " ".join(_labels(graph, triple)),
                "epochs": epochs,
                "rank_with": ranks[0],
                "rank_without": ranks[1],
                "rank_with_reseeded": ranks[2],
                "published_with": NUMBERS.get("11", "rank with", **cell_of),  # of other statements
                "published_without": NUMBERS.get("11", "rank without", **cell_of),
            }

    return TableCell(_keys(dataset, kind, seed), measure, f"{epochs} {count}")


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
