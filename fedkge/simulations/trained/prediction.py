"""Questions put to a trained model: which tails, or which heads, does it hold most likely?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from fedkge.client.kernels.arrays import Floats
from fedkge.client.training.threads import one_thread
from fedkge.datasets import SPLITS
from fedkge.errors import SettingError
from fedkge.simulations.trained.client_model import Trained, load_trained

__all__ = ["Answer", "Prediction", "predict"]

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
    top: int = 10,
) -> Prediction:
    """The best answers to (head, relation, ?) or (?, relation, tail) by one client's model of a run."""
    if (head is None) == (tail is None):
        raise SettingError("give a head or a tail, and not both: the other one is the question")
    if top < 1:
        raise SettingError(f"top = {top}: expected at least 1")
    trained = load_trained(Path(folder), client)
    r = trained.relation(relation)
    asks_tail = head is not None
    anchor = trained.entity(head if head is not None else str(tail))
    scores = _scores(trained, anchor, r, asks_tail)
    known = _known(trained, anchor, r, asks_tail)
    best = np.argsort(-scores, kind="stable")[:top]
    answers = (
        Answer(place, trained.graph.entity_labels[entity], float(scores[entity]), known.get(int(entity)))
        for place, entity in enumerate(best, start=1)
    )
    return Prediction(client, head, relation, tail, tuple(answers))


def _scores(trained: Trained, anchor: int, relation: int, asks_tail: bool) -> Floats:
    """(entities,) the score of each entity in the open place, some at a time: relation rows may be wide."""
    model = trained.model
    with one_thread(), torch.no_grad():  # threads would divide an encoder's products otherwise
        encoded = model.encode()
    entities = np.arange(trained.graph.num_entities, dtype=np.int32)

    def blocks() -> Iterator[Floats]:
        for block in np.array_split(entities, encoded.relations.shape[1] * len(entities) // _BLOCK + 1):
            fixed, r = np.full_like(block, anchor), np.full_like(block, relation)
            with one_thread(), torch.no_grad():
                triples = (fixed, r, block) if asks_tail else (block, r, fixed)
                yield model.scores_of(*triples, encoded, asks_tail)

    return np.concatenate(list(blocks()))


def _known(trained: Trained, anchor: int, relation: int, asks_tail: bool) -> dict[int, str]:
    """Entities with which the client states the triple, and in which split first."""
    fixed, open_place = (0, 2) if asks_tail else (2, 0)
    known: dict[int, str] = {}
    for split in SPLITS:
        triples = trained.graph[split]
        stated = triples[(triples[:, fixed] == anchor) & (triples[:, 1] == relation), open_place]
        for entity in stated.tolist():
            known.setdefault(entity, split)
    return known
