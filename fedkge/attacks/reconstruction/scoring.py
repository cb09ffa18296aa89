"""How good claims are, once the truth is known: precision, recall, F1, average precision, and baselines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.reconstruction.algorithm import Claims, Identified
from fedkge.attacks.reconstruction.relations import Inferred
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import UNKNOWN, Rows, View

__all__ = ["ClaimScore", "decoys", "guessers", "positions", "right_names", "score", "true_pairs"]

Ids = NDArray[np.int64]
Values = NDArray[np.float32]

_TRIES = 8  # draws before a decoy that keeps hitting true pairs is given up


@dataclass(frozen=True)
class ClaimScore:
    """A ranked set of claims against the triples that really are."""

    hits: int
    claims: int
    positives: int
    average_precision: float

    @property
    def precision(self) -> float:
        return self.hits / self.claims if self.claims else 0.0

    @property
    def recall(self) -> float:
        return self.hits / self.positives if self.positives else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.hits / (self.claims + self.positives) if self.claims + self.positives else 0.0


def score(view: View, truth: Truth, claims: Claims, positives: Ids, most: int | None = None) -> ClaimScore:
    """Claims against the keys of true triples; a claim made twice counts once.

    Precision, recall and F1 are over the `most` best claims; average precision over all.
    """
    keys = _keys(view, truth, claims.ranked().triples)
    _, first = np.unique(keys, return_index=True)
    keys = keys[np.sort(first)]
    wanted = np.unique(positives)
    right = np.isin(keys, wanted)
    total = len(wanted)
    rank = np.arange(1, len(keys) + 1)
    average = float((right * np.cumsum(right) / rank).sum() / total) if total else 0.0
    kept = right if most is None else right[:most]
    return ClaimScore(int(kept.sum()), len(kept), total, average)


def _keys(view: View, truth: Truth, triples: Ids) -> Ids:
    """A number for each claimed triple, the same as the truth's; −1 for one that nobody can hold."""
    entity = np.append(truth.number_entities(view.entities), UNKNOWN)
    relation = np.append(truth.number_relations(view.relations), UNKNOWN)
    named = np.stack([entity[triples[:, 0]], relation[triples[:, 1]], entity[triples[:, 2]]], axis=1)
    return np.where((named == UNKNOWN).any(axis=1), UNKNOWN, truth.keys(named))


def positions(view: View, truth: Truth, identified: Identified, target: int) -> Ids:
    """Where each of the target's entities is among the attacked rows, UNKNOWN if nowhere.

    Rows without names are in the target's own order, of which no attack makes use.
    """
    count = truth.clients[target].num_entities
    if (identified.rows.names == UNKNOWN).all():
        return np.arange(count)
    labels = truth.number_entities(view.entities)
    row_of = np.full(len(truth.entity_ids) + 1, UNKNOWN, dtype=np.int64)
    row_of[labels[identified.rows.names]] = np.arange(len(identified.rows))
    return row_of[truth.entities(target)]


def right_names(view: View, truth: Truth, rows: Rows, target: int) -> Ids:
    """The name that each attacked row ought to get; UNKNOWN if the adversary has no word for it."""
    if (rows.names != UNKNOWN).all():
        return rows.names
    names = np.full(len(truth.entity_ids) + 1, UNKNOWN, dtype=np.int64)
    names[truth.number_entities(view.entities)] = np.arange(len(view.entities))
    return names[truth.entities(target)]


def true_pairs(truth: Truth, target: int, row_of: Ids) -> Ids:
    """The target's distinct (head, tail) pairs as attacked rows; those without a row are left out."""
    head, _, tail = truth.clients[target].train.T
    pairs = np.stack([row_of[head], row_of[tail]], axis=1)
    return np.unique(pairs[(pairs != UNKNOWN).all(axis=1)], axis=0)


def decoys(pairs: Ids, known: Ids, rows: Ids, count: int, rng: np.random.Generator) -> Ids:
    """Pairs of the target's rows that are not true: each true one with one end replaced, `count` times."""
    width = int(max(rows.max(initial=0), known.max(initial=0))) + 1
    true = np.unique(known[:, 0] * width + known[:, 1])
    false = np.repeat(pairs, count, axis=0)
    side = rng.integers(2, size=len(false))
    bad = np.arange(len(false))
    for _ in range(_TRIES):
        false[bad, side[bad]] = rng.choice(rows, size=len(bad))
        keys = false[:, 0] * width + false[:, 1]
        bad = np.flatnonzero(np.isin(keys, true) | (false[:, 0] == false[:, 1]))
    return np.delete(false, bad, axis=0)


def guessers(
    view: View, identified: Identified, relation_names: Ids, rng: np.random.Generator
) -> dict[str, Callable[[Ids], Inferred]]:
    """What an attacker reaches without the embeddings: each takes pairs of rows and names a relation.

    `random` draws one, `majority` takes the colluders' most frequent one, and `link prediction` the one
    that the colluders' own triples make likeliest for this head and this tail.
    """
    count = len(relation_names)
    triples = np.concatenate([np.empty((0, 3), np.int64), *(other.triples for other in view.handed)])
    index_of = np.full(len(view.relations) + 1, UNKNOWN, dtype=np.int64)
    index_of[relation_names] = np.arange(count)
    known = triples[index_of[triples[:, 1]] != UNKNOWN]
    seen = index_of[known[:, 1]]
    prior = (np.bincount(seen, minlength=count) + 1.0) / (len(seen) + count)
    heads, tails = (_counts(known[:, column], seen, len(view.entities), count) for column in (0, 2))

    def random(pairs: Ids) -> Inferred:
        return Inferred(rng.integers(count, size=len(pairs)), rng.random(len(pairs), dtype=np.float32))

    def majority(pairs: Ids) -> Inferred:
        return Inferred(np.full(len(pairs), prior.argmax()), rng.random(len(pairs), dtype=np.float32))

    def link_prediction(pairs: Ids) -> Inferred:
        relations, confidence = np.empty(len(pairs), np.int64), np.empty(len(pairs), np.float32)
        for start in range(0, len(pairs), 8192):
            block = slice(start, start + 8192)
            head, tail = identified.names[pairs[block]].T
            likely = np.log(heads[head] + prior) + np.log(tails[tail] + prior) - np.log(prior)
            relations[block], confidence[block] = likely.argmax(axis=1), likely.max(axis=1)
        return Inferred(relations, confidence)

    return {"random": random, "majority": majority, "link prediction": link_prediction}


def _counts(entities: Ids, relations: Ids, num_entities: int, num_relations: int) -> Values:
    """How often each entity occurs with each relation; the last line is for an unknown entity."""
    table = np.zeros((num_entities + 1, num_relations), dtype=np.float32)
    np.add.at(table, (entities, relations), 1)
    return table
