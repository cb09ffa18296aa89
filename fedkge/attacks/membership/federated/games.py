"""The questions put to an adversary of a federation: true triples, of which a client trained on some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.membership.central.halves import Answers, answers_about
from fedkge.attacks.truth import Truth
from fedkge.datasets.graph import KnowledgeGraph

__all__ = ["Game", "game_about"]

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Game:
    """Triples in the truth's numbers, and the answers that scoring holds against the guesses.

    Asking is itself a grant: the adversary is told that each triple is true, and in some client's hands.
    """

    triples: Ids  # (n, 3)
    answers: Answers

    def __len__(self) -> int:
        return len(self.triples)

    def among(self, chosen: NDArray[np.bool_]) -> Game:
        """The questions that an adversary can work on."""
        return Game(self.triples[chosen], self.answers.among(chosen))


def game_about(truth: Truth, targets: Sequence[int], adversary: Iterable[int]) -> Game:
    """Members are what the targets train on, others what they hold out; the adversary's own are not asked.

    With several targets the question is whether any of them trains on the triple.
    """
    members = _gathered(truth, targets, ("train",))
    others = _gathered(truth, targets, ("valid", "test"))
    known = truth.keys(_gathered(truth, list(adversary), ("train",)))
    others = others[~np.isin(truth.keys(others), np.append(truth.keys(members), known))]
    asked = np.concatenate([members[~np.isin(truth.keys(members), known)], others])
    member = np.arange(len(asked)) < len(asked) - len(others)
    trained = KnowledgeGraph.from_ids("targets", truth.entity_ids, truth.relation_ids, {"train": members})
    return Game(asked, answers_about(trained, asked.astype(np.int32), member))


def _gathered(truth: Truth, clients: Sequence[int], splits: Sequence[str]) -> Ids:
    """The distinct triples that some clients have in some splits, in the common numbers."""
    parts = [np.empty((0, 3), dtype=np.int64)]
    for client in clients:
        entity, relation = truth.entities(client), truth.relations(client)
        for split in splits:
            head, kind, tail = truth.clients[client][split].T
            parts.append(np.stack([entity[head], relation[kind], entity[tail]], axis=1))
    distinct: Ids = np.unique(np.concatenate(parts), axis=0)
    return distinct
