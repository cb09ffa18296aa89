"""Questions put to a trained model: which tails, or which heads, does it hold most likely?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from fedkge.client.kernels.arrays import Floats
from fedkge.client.models.model import Encoded
from fedkge.client.training.threads import one_thread
from fedkge.datasets import SPLITS
from fedkge.errors import SettingError
from fedkge.simulations.trained.client_model import Trained, load_trained
from fedkge.simulations.trained.newcomers import Newcomers, admit, new_words

__all__ = ["Answer", "Asked", "Prediction", "predict", "predict_new"]

_BLOCK = 2**22  # numbers held at once


@dataclass(frozen=True)
class Answer:
    """An entity for the open place."""

    rank: int
    label: str
    score: float  # higher is truer
    known: str | None  # the split in which the client has this statement already


@dataclass(frozen=True)
class Prediction:
    """A question and its best answers; the open place is None."""

    client: int
    head: str | None
    relation: str
    tail: str | None
    answers: tuple[Answer, ...]
    text: str | None = None  # what tells of the given end, if the run did not have it
    new_words: int = 0  # of the texts that were asked together, those that no text of the run had

    @property
    def frame(self) -> pd.DataFrame:
        return pd.DataFrame([asdict(answer) for answer in self.answers])

    def _repr_html_(self) -> str:
        html: str = self.frame.to_html(index=False)
        return html


def predict(
    folder: Path | str,
    client: int,
    relation: str,
    *,
    head: str | None = None,
    tail: str | None = None,
    head_text: str | None = None,
    tail_text: str | None = None,
    top: int = 10,
) -> Prediction:
    """The best answers to (head, relation, ?) or (?, relation, tail) by one client's model of a run.

    Args:
        folder: of the run.
        client: whose model answers.
        relation: its label.
        head, tail: the label of the end that is given.
        head_text, tail_text: in place of it, the description of an entity that the run did not have.
        top: how many answers.
    """
    given = {"head": head, "tail": tail, "head_text": head_text, "tail_text": tail_text}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise SettingError(
            "give a head or a tail, and not both: the other one is the question (or head_text or tail_text, "
            "the description of a new entity)"
        )
    _check_top(top)
    trained = load_trained(Path(folder), client)
    value, asks_tail = str(given[named[0]]), named[0] in ("head", "head_text")
    if named[0] in ("head", "tail"):
        asked = Asked.of(trained, trained.relation(relation), asks_tail)
        return asked.prediction(value, trained.entity(value), top)
    return _of_newcomers(trained, Newcomers.of_text(value), relation, asks_tail, top)[0]


def predict_new(
    folder: Path | str,
    client: int,
    relation: str,
    *,
    heads: Path | str | None = None,
    tails: Path | str | None = None,
    top: int = 10,
) -> list[Prediction]:
    """The best answers for each new entity of a file, of texts by label or of vectors."""
    if (heads is None) == (tails is None):
        raise SettingError("give a file of heads or of tails, and not both: the other end is the question")
    _check_top(top)
    newcomers = Newcomers.of_file(Path(str(tails if heads is None else heads)))
    return _of_newcomers(load_trained(Path(folder), client), newcomers, relation, heads is not None, top)


def _check_top(top: int) -> None:
    if top < 1:
        raise SettingError(f"top = {top}: expected at least 1")


def _of_newcomers(
    trained: Trained, newcomers: Newcomers, relation: str, asks_tail: bool, top: int
) -> list[Prediction]:
    r, count = trained.relation(relation), trained.graph.num_entities
    wider = admit(trained, newcomers)
    asked = Asked.of(wider, r, asks_tail, count)
    unread = new_words(trained, wider)
    return [
        replace(
            asked.prediction(label, count + place, top), text=newcomers.texts.get(label), new_words=unread
        )
        for place, label in enumerate(newcomers.labels)
    ]


@dataclass(frozen=True)
class Asked:
    """A relation and a side of one client's model, whose rows are encoded once for all questions."""

    trained: Trained
    encoded: Encoded
    relation: int
    asks_tail: bool
    num_candidates: int  # the first entities

    @classmethod
    def of(cls, trained: Trained, relation: int, asks_tail: bool, candidates: int | None = None) -> Asked:
        with one_thread(), torch.no_grad():  # threads would divide an encoder's products otherwise
            encoded = trained.model.encode()
        count = trained.graph.num_entities if candidates is None else candidates
        return cls(trained, encoded, relation, asks_tail, count)

    def prediction(self, label: str, anchor: int, top: int) -> Prediction:
        """What completes the statement best, the given end being an entity."""
        graph, scores, known = self.trained.graph, self.scores(anchor), self._known(anchor)
        best = np.argsort(-scores, kind="stable")[:top]
        answers = (
            Answer(place, graph.entity_labels[entity], float(scores[entity]), known.get(int(entity)))
            for place, entity in enumerate(best, start=1)
        )
        ends = (label, None) if self.asks_tail else (None, label)
        relation = graph.relation_labels[self.relation]
        return Prediction(self.trained.client, ends[0], relation, ends[1], tuple(answers))

    def scores(self, anchor: int) -> Floats:
        """(candidates,) the score of each in the open place, some at a time: relation rows may be wide."""
        entities = np.arange(self.num_candidates, dtype=np.int32)

        def blocks() -> Iterator[Floats]:
            width = self.encoded.relations.shape[1]
            for block in np.array_split(entities, width * len(entities) // _BLOCK + 1):
                fixed, r = np.full_like(block, anchor), np.full_like(block, self.relation)
                with one_thread(), torch.no_grad():
                    triples = (fixed, r, block) if self.asks_tail else (block, r, fixed)
                    yield self.trained.model.scores_of(*triples, self.encoded, self.asks_tail)

        return np.concatenate(list(blocks()))

    def _known(self, anchor: int) -> dict[int, str]:
        """Entities with which the client states the triple, and in which split first."""
        fixed, open_place = (0, 2) if self.asks_tail else (2, 0)
        known: dict[int, str] = {}
        for split in SPLITS:
            triples = self.trained.graph[split]
            stated = triples[(triples[:, fixed] == anchor) & (triples[:, 1] == self.relation), open_place]
            for entity in stated.tolist():
                known.setdefault(entity, split)
        return known
