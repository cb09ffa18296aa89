"""What vertex rows are good for: telling the class of a vertex, and whether two vertices are joined."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.client.networks.blas_threads import same_bits
from fedkge.datasets.networks.network import Edges, symmetric_adjacency
from fedkge.errors import DataError

__all__ = [
    "SCALINGS",
    "Score",
    "classify_vertices",
    "drawn_non_edges",
    "predict_links",
]

Rows = NDArray[np.floating[Any]]
NORMAL_95 = 1.959964
TRAINED = 0.1  # the share of vertices, or of edges, that a classifier learns from; DPNE's
REPEATS = 10


@dataclass(frozen=True)
class Score:
    """A mean over repeats, and its 95 % interval over what was tested and how it was drawn."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], tested: int) -> Score:
        """Of shares: the binomial deviation of one repeat, and how far repeats are apart.

        The same rows are tested in all repeats, so that repeats do not make the first of them smaller.
        """
        mean = float(np.mean(values))
        spread = float(np.var(values, ddof=1)) / len(values) if len(values) > 1 else 0.0
        half = NORMAL_95 * float(np.sqrt(max(mean * (1 - mean), 0.0) / max(tested, 1) + spread))
        return cls(mean, max(mean - half, 0.0), min(mean + half, 1.0))

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "interval": [self.low, self.high]}


def _raw(rows: Rows) -> Rows:
    return rows


def _unit(rows: Rows) -> Rows:
    """Rows of length one, as cosine similarity has them; zero rows stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Rows = rows / np.where(lengths > 0, lengths, 1.0)
    return scaled


def _standardised(rows: Rows) -> Rows:
    """Columns of mean zero and deviation one; constant ones stay zero."""
    deviation = rows.std(axis=0)
    scaled: Rows = (rows - rows.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return scaled


SCALINGS: Mapping[str, Callable[[Rows], Rows]] = {
    "raw": _raw,
    "unit rows": _unit,
    "standardised": _standardised,
}


def classify_vertices(
    rows: Rows,
    classes: Sequence[str],
    rng: np.random.Generator,
    scaling: str = "unit rows",
    trained: float = TRAINED,
    repeats: int = REPEATS,
) -> dict[str, Score]:
    """Accuracy and macro F1 of a linear SVM on a share of the vertices that have a class.

    Args:
        rows: (n, k) of the vertices.
        classes: of each vertex, "" where it is not known.
        rng: draws which vertices the SVM learns from.
        scaling: of SCALINGS.
        trained: their share.
        repeats: how often they are drawn.
    """
    from sklearn.metrics import f1_score  # takes long to import

    known = np.flatnonzero(np.array([bool(kind) for kind in classes], dtype=bool))
    numbers = np.unique([kind for kind in classes if kind], return_inverse=True)[1]
    _refuse_classes(numbers)
    features = SCALINGS[scaling](np.asarray(rows, dtype=np.float64)[known])
    accuracies, scores = [], []
    for _ in range(repeats):
        learnt, tested = _drawn_classes(numbers, trained, rng)
        told = _support_vectors(features[learnt], numbers[learnt], rng).predict(features[tested])
        accuracies.append(float((told == numbers[tested]).mean()))
        scores.append(float(f1_score(numbers[tested], told, average="macro", zero_division=0)))
    count = len(known) - len(learnt)
    return {"accuracy": Score.of(accuracies, count), "macro F1": Score.of(scores, count)}


def _refuse_classes(numbers: NDArray[np.int64]) -> None:
    if len(numbers) == 0 or numbers.max() == 0:
        raise DataError(
            f"vertex classification: {'one class' if len(numbers) else 'no class'} among the vertices; it "
            "needs vertices of two classes at least: give a file of classes (docs/networks.md)"
        )
    if (np.bincount(numbers) < 2).all():
        raise DataError("vertex classification: every vertex has a class of its own; nothing is left to test")


def _drawn_classes(
    numbers: NDArray[np.int64], trained: float, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Who is learnt from and who is tested: the share of every class, and one vertex of it at least."""
    learns = np.zeros(len(numbers), dtype=bool)
    for kind in range(numbers.max() + 1):
        members = rng.permutation(np.flatnonzero(numbers == kind))
        learns[members[: max(1, round(trained * len(members)))]] = True
    return np.flatnonzero(learns), np.flatnonzero(~learns)


def _support_vectors(features: Rows, numbers: NDArray[np.int64], rng: np.random.Generator) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    with warnings.catch_warnings(), same_bits():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rows of noise have no margin to find
        return LinearSVC(random_state=int(rng.integers(2**31)), max_iter=1000).fit(features, numbers)


def predict_links(
    rows: Rows,
    edges: Edges,
    known: Edges,
    rng: np.random.Generator,
    scaling: str = "standardised",
    trained: float = TRAINED,
    repeats: int = REPEATS,
) -> dict[str, Score]:
    """Accuracy, AUC and macro F1 of a logistic regression on Hadamard products of rows.

    Args:
        rows: (n, k) of the vertices.
        edges: (m, 2) those to be told from as many pairs that are not joined.
        known: (l, 2) all edges, which none of these pairs may be.
        rng: draws the pairs, and which of both the regression learns from.
        scaling: of SCALINGS, of the products.
        trained: the share that it learns from.
        repeats: how often all of that is drawn.
    """
    from sklearn.linear_model import LogisticRegression  # takes long to import
    from sklearn.metrics import f1_score, roc_auc_score

    size = round(trained * len(edges))
    if size < 1 or len(edges) - size < 1:
        raise DataError(
            f"link prediction: {len(edges)} edges to test are too few to learn from {trained:.0%} of "
            'them; hold out more, such as with data.partition = "edges:test=0.1"'
        )
    vectors = np.asarray(rows, dtype=np.float64)
    columns: dict[str, list[float]] = {"accuracy": [], "AUC": [], "macro F1": []}
    for _ in range(repeats):
        pairs = np.concatenate(
            [rng.permutation(edges), drawn_non_edges(known, len(vectors), len(edges), rng)]
        )
        joined = np.arange(len(pairs)) < len(edges)
        features = SCALINGS[scaling](vectors[pairs[:, 0]] * vectors[pairs[:, 1]])
        learnt = np.arange(len(pairs)) % len(edges) < size
        with same_bits():
            regression = LogisticRegression(max_iter=1000).fit(features[learnt], joined[learnt])
            chances = regression.predict_proba(features[~learnt])[:, 1]
        truth, told = joined[~learnt], chances > 0.5
        columns["accuracy"].append(float((told == truth).mean()))
        columns["AUC"].append(float(roc_auc_score(truth, chances)))
        columns["macro F1"].append(float(f1_score(truth, told, average="macro", zero_division=0)))
    return {name: Score.of(values, 2 * (len(edges) - size)) for name, values in columns.items()}


def drawn_non_edges(known: Edges, vertices: int, count: int, rng: np.random.Generator) -> Edges:
    """(count, 2) distinct pairs of different vertices that no edge joins, in either direction."""
    adjacency = symmetric_adjacency(known, vertices)
    free = vertices * (vertices - 1) // 2 - adjacency.nnz // 2
    if free < count:
        raise DataError(
            f"link prediction: only {free:,} pairs of {vertices:,} vertices are not joined, and {count:,} "
            "are needed; test fewer edges"
        )
    head, tail = adjacency.nonzero()
    taken = head.astype(np.int64) * vertices + tail
    chosen = np.empty(0, dtype=np.int64)
    while len(chosen) < count:
        ends = np.sort(rng.integers(0, vertices, (2 * count, 2)), axis=1)
        keys = ends[ends[:, 0] != ends[:, 1]] @ np.array([vertices, 1])
        fresh = np.concatenate([chosen, keys[~np.isin(keys, taken)]])
        chosen = fresh[np.sort(np.unique(fresh, return_index=True)[1])]
    return np.stack(np.divmod(chosen[:count], vertices), axis=1).astype(np.int32)
