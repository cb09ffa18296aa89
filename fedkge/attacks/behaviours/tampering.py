"""A client that tampers with one round: it pushes triples apart, and watches who pulls them together again.

In the round of the plan the client moves the entity rows of the triples it asks about so that their scores
fall. In the next round it sends back what it was sent. If another client trains on a triple, its training
raises the score again; nobody repairs a triple that nobody trains on. Secure aggregation hides whose rows
moved, not that they did: the aggregate is all this adversary needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from flwr.app import Context, Message
from numpy.typing import NDArray

from fedkge.attacks.membership.central.signals import scores
from fedkge.attacks.membership.guesses import Values
from fedkge.client.app import resident
from fedkge.client.kernels.arrays import Ids
from fedkge.client.models import Model
from fedkge.client.participant import Participant
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, SettingError
from fedkge.exchange import Download, decode
from fedkge.storage import staged

__all__ = ["Tampering", "Watched", "apart", "push_apart"]

Labels = tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Watched:
    """The scores of the triples under the rows that the server sent, round by round."""

    rounds: tuple[int, ...]
    scores: Values  # (rounds, n)

    def at(self, round: int) -> Values:
        if round not in self.rounds:
            raise DataError(f"the run ended before round {round}; tamper earlier, or run more rounds")
        values: Values = self.scores[self.rounds.index(round)]
        return values


@dataclass(frozen=True)
class Tampering:
    """What one malicious client does: a Flower mod, made from a file that names the triples it asks about.

    A round's rows arrive with the next round's message: what round r did is watched in round r + 1.
    """

    round: int
    strength: float  # how far entity rows are moved, in mean lengths of a row; 0 only watches, as a control
    triples: Labels
    path: str = ""  # where the plan was read; what is watched is kept beside it

    def save(self, path: Path) -> None:
        if self.round < 1 or not self.strength >= 0 or not self.triples:
            raise SettingError(
                f"tampering in round {self.round} by {self.strength:g} with {len(self.triples)} triples: "
                "expected a round from 1 on, a strength of at least 0 and at least one triple"
            )
        with staged(path) as part:
            part.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Tampering:
        plan = json.loads(path.read_text(encoding="utf-8"))
        triples = tuple((head, relation, tail) for head, relation, tail in plan["triples"])
        return cls(plan["round"], plan["strength"], triples, str(path))

    def __call__(
        self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        if message.metadata.message_type == "train":
            participant, busy = resident(context)
            with busy:
                self._possess(participant)
                download = decode(bytes(message.content["fedkge"]["payload"]), Download)  # type: ignore[arg-type]
                participant.take_to_train(download.tables)
                self._watch(download.round, participant)
        return call_next(message, context)

    def watched(self) -> Watched:
        """What the client saw, after the run."""
        kept = self._kept()
        rounds = sorted(kept)
        return Watched(tuple(rounds), np.array([kept[round] for round in rounds], dtype=np.float64))

    @cached_property
    def _file(self) -> Path:
        return Path(self.path).with_suffix(".watched.json")

    def _kept(self) -> dict[int, list[float]]:
        if not self._file.is_file():
            return {}
        kept = json.loads(self._file.read_text(encoding="utf-8"))
        return {int(round): values for round, values in kept.items()}

    def _possess(self, participant: Participant) -> None:
        """Change the client's program: training is its last step before an upload."""
        if "_train" in vars(participant):
            return
        honest = participant._train
        triples = numbered(participant.graph, self.triples)

        def train(round: int) -> None:
            before = participant.model.tables["entity"].copy()
            honest(round)
            if round == self.round:
                push_apart(participant.model, triples, self.strength)
            elif round == self.round + 1:
                participant.model.tables["entity"][:] = before

        participant._train = train  # type: ignore[method-assign]

    def _watch(self, round: int, participant: Participant) -> None:
        seen = scores(participant.model, numbered(participant.graph, self.triples))
        kept: Mapping[int, list[float]] = self._kept() | {round: seen.tolist()}
        with staged(self._file) as part:
            part.write_text(json.dumps(kept), encoding="utf-8")


def numbered(graph: KnowledgeGraph, triples: Labels) -> Ids:
    """Labelled triples in a client's own numbers; it must hold all their parts."""
    entity = {label: number for number, label in enumerate(graph.entity_labels)}
    relation = {label: number for number, label in enumerate(graph.relation_labels)}
    try:
        rows = [(entity[head], relation[kind], entity[tail]) for head, kind, tail in triples]
    except KeyError as error:
        raise DataError(
            f"the tampering client does not hold {error}; ask about triples of its labels"
        ) from None
    return np.array(rows, dtype=np.int32)


def push_apart(model: Model, triples: Ids, strength: float) -> None:
    """Move the entity rows of each triple down the slope of its score."""
    head, relation, tail = (torch.from_numpy(column.astype(np.int64)) for column in triples.T)
    h, t = (model.entity[ends].clone().requires_grad_() for ends in (head, tail))
    model.score(h, model.relation[relation], t).sum().backward()  # type: ignore[no-untyped-call]
    length = strength * float(model.entity.norm(dim=1).mean())
    for ends, rows in ((head, h), (tail, t)):
        assert rows.grad is not None
        slope = torch.nn.functional.normalize(rows.grad, dim=1)
        model.entity.index_add_(0, ends, slope, alpha=-length)


def apart(triples: NDArray[np.int64], num_entities: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which triples to ask about so that no entity is in two of them, chosen at random.

    One round of Luby (1986): each draws a number, and stays if it has the lowest at both its ends.
    """
    number = rng.permutation(len(triples))
    lowest = np.full(num_entities, len(triples), dtype=np.int64)
    np.minimum.at(lowest, triples[:, 0], number)
    np.minimum.at(lowest, triples[:, 2], number)
    first = (lowest[triples[:, 0]] == number) & (lowest[triples[:, 2]] == number)
    chosen: NDArray[np.bool_] = first & (triples[:, 0] != triples[:, 2])  # a loop cannot be pushed apart
    return chosen
