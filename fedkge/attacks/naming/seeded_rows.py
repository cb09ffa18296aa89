"""Names from initial rows: where these follow from the public seed, a row's first steps give its label away.

A step of gradient descent moves a row along itself: a distance pulls h + r and t together, so that h is part
of its own step, and within a few rounds that is so for every model. Whoever can compute the initial row of
each label of a dictionary looks for the one that lies nearest to the span of the steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedkge.attacks.attack import Attack, Protocol
from fedkge.attacks.findings import Finding
from fedkge.attacks.intervals import proportion
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import UNKNOWN, Movement, View
from fedkge.client.models import MODELS
from fedkge.client.models.initial import seed_key
from fedkge.experiment import Settings

__all__ = ["Naming", "best_candidates"]

METRIC = "pseudonyms named"
_SHRINKAGE = 0.1  # of the steps' covariance towards a multiple of the identity
_BLOCK = 2**24  # scores at a time

Floats = NDArray[np.float32]


class Naming(Attack):
    """A server by itself looks for the labels of pseudonyms in a dictionary: all true labels, and decoys.

    One that has a colluder needs no rows: with the group key it computes the pseudonym of any label.
    """

    class Options(Settings):
        section = "adversary.options.naming"
        decoys: int = Field(default=100_000, ge=0, description="labels in the dictionary that nobody holds")

    options: Options

    def assess(self, view: View, truth: Truth, protocol: Protocol, rng: np.random.Generator) -> list[Finding]:
        del rng  # nothing is drawn
        if protocol != "rigorous" or view.handed:
            return []  # no paper measures it
        return [self._named(view, truth, table, movement) for table, movement in view.movement.items()]

    def _named(self, view: View, truth: Truth, table: str, movement: Movement) -> Finding:
        about = ("naming", "rigorous", view, None, METRIC)
        count = len(movement.ids)
        if count == 0:
            return Finding.of(*about, None, regime=table, note="no row is shared")
        decoys = (f"decoy {number}" for number in range(self.options.decoys))
        dictionary = [*truth.common_labels(table), *decoys]
        if (movement.names != UNKNOWN).all():
            hits, note = count, "read: labels travel in the clear"
        else:
            true = truth.shared_labels(table)
            guesses = best_candidates(view, table, dictionary, movement.steps)
            pairs = zip(guesses.tolist(), movement.ids.tolist(), strict=True)
            hits = sum(dictionary[guess] == true[row] for guess, row in pairs)
            note = f"{len(dictionary)} candidates, steps of rounds {', '.join(map(str, movement.rounds))}"
            if movement.rounds[0] > 1:
                note += '; the first rounds tell most: set adversary.record = "every"'
        return Finding.of(
            *about,
            hits / count,
            regime=table,
            interval=proportion(hits, count),
            baseline=1 / len(dictionary),
            count=count,
            note=note,
        )


def best_candidates(view: View, table: str, candidates: Sequence[str], steps: Floats) -> NDArray[np.int64]:
    """(n,) for each row the candidate whose initial row under the public seed fits best to its steps.

    Args:
        candidates: labels.
        steps: (rounds, n, w) how each row moved.
    """
    key = seed_key(view.seed, table)
    start = MODELS[view.model.name].initial_table(table, candidates, view.model, key)
    start = _unit(start - start.mean(axis=0))  # (m, w)
    bases = np.linalg.qr(np.stack([_whitened(step) for step in steps], axis=2))[0]  # (n, w, rounds)
    best = np.empty(len(bases), dtype=np.int64)
    block = max(1, _BLOCK // len(candidates))
    for first in range(0, len(bases), block):
        scores = np.zeros((len(bases[first : first + block]), len(candidates)), dtype=np.float32)
        for direction in bases[first : first + block].transpose(2, 0, 1):
            scores += (direction @ start.T) ** 2
        best[first : first + block] = scores.argmax(axis=1)
    return best


def _whitened(step: Floats) -> Floats:
    """(n, w) what sets a row's step apart from the others': what rows have in common names none of them."""
    centred = (step - step.mean(axis=0)).astype(np.float64)
    covariance = centred.T @ centred / len(centred)
    values, vectors = np.linalg.eigh(covariance)
    floor = max(_SHRINKAGE * float(values.mean()), np.finfo(np.float64).tiny)
    whitening = (vectors / np.sqrt(np.maximum(values, 0.0) + floor)) @ vectors.T
    whitened: Floats = _unit(centred @ whitening).astype(np.float32)
    return whitened


def _unit(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1.0)
