"""The division of Wang et al. (2021): a target half and a shadow half, each with members and non-members.

All triples are true; a non-member is one that was held back from training.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedkge.attacks.membership.guesses import Bools, Values
from fedkge.client.kernels.arrays import Ids
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError

__all__ = ["Answers", "Questions", "halve", "hold_back", "questions"]


@dataclass(frozen=True)
class Answers:
    """Which of the triples asked about are members, and for which of them the answer is not given away."""

    member: Bools  # (n,)
    seen: Bools  # (n,) training met both entities and the relation
    matched: Bools  # (n,) it met them in other triples than this one
    degree: Values  # (n,) how many other triples of training the rarer of its entities has

    def among(self, chosen: Bools) -> Answers:
        return Answers(self.member[chosen], self.seen[chosen], self.matched[chosen], self.degree[chosen])

    @property
    def subsets(self) -> dict[str, Bools]:
        """All triples; those whose parts were trained; those whose parts were trained without them.

        A non-member with an entity that was never trained on shows a cold start, not membership. The last
        subset asks the same of members: a member that alone brought its entity into training is left out.
        """
        return {"all": np.ones(len(self.member), dtype=bool), "seen": self.seen, "matched": self.matched}


@dataclass(frozen=True)
class Questions:
    """The triples of one half in random order: what an adversary is handed, apart from the answers."""

    triples: Ids  # (n, 3)
    answers: Answers


def halve(graph: KnowledgeGraph, rng: np.random.Generator) -> tuple[KnowledgeGraph, KnowledgeGraph]:
    """Target and shadow half; `train` holds the members of each, `test` the non-members."""
    triples = np.unique(graph.triples, axis=0)
    if len(triples) < 4:
        raise DataError(
            f"{graph.name}: {len(triples)} distinct triples cannot be halved twice; give 4 or more"
        )
    quarters = np.array_split(triples[rng.permutation(len(triples))], 4)
    return (
        _half(graph, "target", quarters[0], quarters[1]),
        _half(graph, "shadow", quarters[2], quarters[3]),
    )


def hold_back(graph: KnowledgeGraph, rng: np.random.Generator) -> KnowledgeGraph:
    """A graph as one such half by itself: half of its triples are members, the others are held back."""
    triples = np.unique(graph.triples, axis=0)
    if len(triples) < 2:
        raise DataError(f"{graph.name}: {len(triples)} distinct triples cannot be halved; give 2 or more")
    members, others = np.array_split(triples[rng.permutation(len(triples))], 2)
    return _half(graph, "alone", members, others)


def _half(graph: KnowledgeGraph, name: str, members: Ids, others: Ids) -> KnowledgeGraph:
    """A half with the whole vocabulary: as published, every model has a row for every entity."""
    splits = {"train": members, "test": others}
    return KnowledgeGraph.from_ids(
        f"{graph.name} {name}", graph.entity_labels, graph.relation_labels, splits, None
    )


def questions(half: KnowledgeGraph, rng: np.random.Generator) -> Questions:
    """Members and non-members of a half, mixed."""
    triples = np.concatenate([half.train, half.test])
    member = np.arange(len(triples)) < len(half.train)
    order = rng.permutation(len(triples))
    return Questions(triples[order], answers_about(half, triples[order], member[order]))


def answers_about(half: KnowledgeGraph, triples: Ids, member: Bools) -> Answers:
    """Membership, and how often training met the parts of each triple."""
    entities = np.bincount(half.train[:, [0, 2]].ravel(), minlength=half.num_entities)
    relations = np.bincount(half.train[:, 1], minlength=half.num_relations)
    head, relation, tail = triples.T
    loops = (head == tail).astype(np.int64)
    seen = np.minimum(np.minimum(entities[head], entities[tail]), relations[relation]) > 0
    counted = member.astype(np.int64)
    elsewhere = np.minimum(entities[head], entities[tail]) - counted * (1 + loops)
    matched = (elsewhere > 0) & (relations[relation] - counted > 0)
    return Answers(member, seen, matched, elsewhere.astype(np.float64))
