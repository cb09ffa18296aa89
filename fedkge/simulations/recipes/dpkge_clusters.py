"""Whether private rows keep entities together: k-means clusters compared (DPKGE section 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from fedkge.client.arrays import Ids
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.seeding import draw
from fedkge.simulations.recipes.dpkge_cells import Cell, Method, Mode, graph_of, train_cell
from fedkge.simulations.recipes.dpkge_paper import CLUSTERING
from fedkge.simulations.recipes.scale import Scale

__all__ = ["agreement", "clustering", "compare_clusters", "people"]

_PERSON = "/people/person/"
_COUNT = 762  # as many as the paper has patients
_DRAW = 0xC1057E  # tells this draw from others with the same seed
_OTHERS: tuple[tuple[Method, Mode, float | None], ...] = (
    ("NDP", "off", None),
    ("U", "off", None),
    ("DPKGE", "paper", 0.7),
    ("DPKGE", "sound", 0.7),
)


def clustering(scale: Scale = "quick", seed: int = 0) -> pd.DataFrame:
    """DPKGE table 4: agreement (NMI) of k-means clusters with those of NDP.

    The paper clusters the patients of eICU, which is not public; here it is people of FB15k-237, the heads of
    relations under /people/person/. NDP with other seeds is added: the most that any method can reach. Quick:
    2 models a method instead of 5, 15 epochs.
    """
    runs, epochs = (5, 100) if scale == "full" else (2, 15)
    chosen = people(graph_of("FB15k-237", 0.5), _COUNT, draw(seed, _DRAW))
    return compare_clusters("FB15k-237", chosen, runs, epochs, seed)


def compare_clusters(dataset: str, chosen: Ids, runs: int, epochs: int, seed: int) -> pd.DataFrame:
    """The clusters of some entities by several models of each method; no two share initial rows."""
    gold = _rows(dataset, ("NDP", "off", None), range(seed, seed + runs), epochs, chosen)
    found = []
    for place, other in enumerate(_OTHERS, start=1):
        seeds = range(seed + place * runs, seed + (place + 1) * runs)
        compared = _rows(dataset, other, seeds, epochs, chosen)
        for k in CLUSTERING:
            mean, deviation = agreement(gold, compared, k, seed)
            found.append(
                {
                    "k": k,
                    "method": other[0],
                    "mode": other[1],
                    "sigma": other[2],
                    "epochs": epochs,
                    "nmi": mean,
                    "nmi_stddev": deviation,
                    "published": {"DPKGE": CLUSTERING[k][0], "U": CLUSTERING[k][1]}.get(other[0]),
                }
            )
    return pd.DataFrame(found)


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
    dataset: str, kind: tuple[Method, Mode, float | None], seeds: range, epochs: int, chosen: Ids
) -> list[NDArray[np.float32]]:
    method, mode, sigma = kind
    cells = [Cell(dataset, "TransE", method, mode, sigma, epochs=epochs, seed=seed) for seed in seeds]
    return [train_cell(cell).model.tables["entity"][chosen] for cell in cells]
