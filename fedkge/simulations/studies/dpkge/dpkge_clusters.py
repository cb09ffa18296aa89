"""Whether private rows keep entities together: k-means clusters compared (DPKGE section 4.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from fedkge.client.kernels.arrays import Ids
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.seeding import draw
from fedkge.simulations.studies.cells import Row, StudyCache, TableCell
from fedkge.simulations.studies.dpkge.dpkge_cells import NUMBERS, Cell, Method, Mode, graph_of, train_cell
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study
from fedkge.storage import staged

__all__ = ["agreement", "clustering", "compare_clusters", "people"]

_PERSON = "/people/person/"
_NUM_CLUSTERS = (2, 3, 4)
_COUNT = 762  # as many as the paper has patients
_DRAW = 0xC1057E  # tells this draw from others with the same seed
Kind = tuple[Method, Mode, float | None]

_OTHERS: tuple[Kind, ...] = (
    ("NDP", "off", None),
    ("U", "off", None),
    ("DPKGE", "paper", 0.7),
    ("DPKGE", "sound", 0.7),
)


@study([Quantity("nmi", "NMI", "published")], within=("k",), seeds={"quick": 1, "full": 1})
def clustering(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """DPKGE table 4: agreement (NMI) of k-means clusters with those of NDP.

    The paper clusters the patients of eICU, which is not public; here it is people of FB15k-237, the heads of
    relations under /people/person/. NDP with other seeds is added: the most that any method can reach. Quick:
    2 models a method instead of 5, 15 epochs.
    """
    runs, epochs = (5, 100) if scale == "full" else (2, 15)
    for seed in seeds:
        for other in _OTHERS:
            yield _compared("FB15k-237", None, other, runs, epochs, seed)


def compare_clusters(
    dataset: str, chosen: Ids, runs: int, epochs: int, seed: int, folder: Path
) -> pd.DataFrame:
    """The clusters of some entities by several models of each method."""
    cells = [_compared(dataset, chosen, other, runs, epochs, seed) for other in _OTHERS]
    return pd.DataFrame([row for cell in cells for row in cell.rows(StudyCache(folder), folder)])


def _compared(dataset: str, chosen: Ids | None, other: Kind, runs: int, epochs: int, seed: int) -> TableCell:
    """One method's clusters beside NDP's; no two models share initial rows."""
    method, mode, sigma = other
    first = (_OTHERS.index(other) + 1) * runs + seed

    def measure(cache: StudyCache) -> Iterator[Row]:
        entities = people(graph_of(dataset, 0.5), _COUNT, draw(seed, _DRAW)) if chosen is None else chosen
        gold = _rows(dataset, _OTHERS[0], range(seed, seed + runs), epochs, entities, cache.runs)
        compared = _rows(dataset, other, range(first, first + runs), epochs, entities, cache.runs)
        for k in _NUM_CLUSTERS:
            mean, deviation = agreement(gold, compared, k, seed)
            yield {
                "k": k,
                "epochs": epochs,
                "nmi": mean,
                "nmi_stddev": deviation,
                "published": NUMBERS.get("4", "nmi", dataset="eICU", method=method, k=k),
            }

    return TableCell(
        {"method": method, "mode": mode, "sigma": sigma, "seed": seed}, measure, f"{dataset} {runs} {epochs}"
    )


def people(graph: KnowledgeGraph, count: int, rng: np.random.Generator) -> Ids:
    """Some entities that the schema makes persons."""
    personal = np.array([label.startswith(_PERSON) for label in graph.relation_labels])
    heads = np.unique(graph.train[personal[graph.train[:, 1]], 0])
    return np.sort(rng.permutation(heads)[:count])


def agreement(
    first: Sequence[NDArray[np.float32]], second: Sequence[NDArray[np.float32]], k: int, seed: int
) -> tuple[float, float]:
    """Mean and standard deviation of the NMI over all pairs of clusterings."""
    clusters = [
        [KMeans(k, n_init=10, random_state=seed).fit_predict(rows) for rows in group]
        for group in (first, second)
    ]
    scores = [normalized_mutual_info_score(a, b) for a, b in product(*clusters)]
    return float(np.mean(scores)), float(np.std(scores))


def _rows(
    dataset: str, kind: Kind, seeds: range, epochs: int, chosen: Ids, folder: Path
) -> list[NDArray[np.float32]]:
    """The rows of some entities, each table trained once and kept."""
    method, mode, sigma = kind
    tables = []
    for seed in seeds:
        path = folder / f"rows-{dataset}-{method}-{mode}-{epochs}-{seed}.npy"
        if not path.exists():
            cell = Cell(dataset, "TransE", method, mode, sigma, epochs=epochs, seed=seed)
            with staged(path) as part, part.open("wb") as file:
                np.save(file, train_cell(cell).model.tables["entity"], allow_pickle=False)
        tables.append(np.load(path, allow_pickle=False)[chosen])
    return tables
