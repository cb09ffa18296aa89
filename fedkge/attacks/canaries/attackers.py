"""How an attacker guesses which canaries a client trained on, from what it sent and what came back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from fedkge.attacks.canaries.planting import Planted
from fedkge.client.kernels.arrays import Floats
from fedkge.client.models import Model

__all__ = ["ATTACKERS", "COMPARING", "IN_BATCH", "Answer"]

Scores = NDArray[np.float64]


class Answer(NamedTuple):
    """The tables that a client was sent, and what it made of them."""

    before: Mapping[str, Floats]
    after: Mapping[str, Floats]


Watcher = Callable[[Planted, Model, Sequence[Answer]], Scores]


def _touched(planted: Planted, model: Model, answers: Sequence[Answer]) -> Scores:
    """How many of the canary's rows moved: chosen for hubs, or asked for by no other statement."""
    del model
    moved = np.zeros(len(planted.canaries))
    for before, after in answers:
        for name, ids in planted.places:
            moved += (before[name][ids] != after[name][ids]).any(axis=1)
    return moved


def _along_gradient(planted: Planted, model: Model, answers: Sequence[Answer]) -> Scores:
    """How far the canary's rows went where its score rises; which negatives it met is not known."""
    total = np.zeros(len(planted.canaries))
    for answer in answers:
        total += _along(_slopes(planted, model, answer.before), _moves(planted, answer))
    return total


def _along_head(planted: Planted, model: Model, answers: Sequence[Answer]) -> Scores:
    """The same for its head alone, which no other canary has: what others do to shared rows is left out."""
    total = np.zeros(len(planted.canaries))
    for answer in answers:
        width = answer.before[planted.parameter].shape[1]
        slopes, moves = _slopes(planted, model, answer.before), _moves(planted, answer)
        total += _along(slopes[:, :width], moves[:, :width])
    return total


def _distance(planted: Planted, model: Model, answers: Sequence[Answer]) -> Scores:
    """How far the rows of its entities went, wherever to: as negatives of others they are pushed about."""
    del model
    total = np.zeros(len(planted.canaries))
    for before, after in answers:
        for name, ids in (planted.places[0], planted.places[2]):
            total += np.square(after[name][ids] - before[name][ids], dtype=np.float64).sum(axis=1)
    return total


def _pushed(planted: Planted, model: Model, answers: Sequence[Answer]) -> Scores:
    """How far the rows of its entities were pushed from what the crowd asks for: as negatives of others."""
    total = np.zeros(len(planted.canaries))
    if not len(planted.crowd):
        return total
    head, relation, tail = planted.crowd[0]
    features = torch.from_numpy(planted.graph.features["entity"][[head, tail]])
    for before, after in answers:
        h, t = features @ torch.from_numpy(before[planted.parameter])
        r = torch.from_numpy(before["relation"][relation])
        queries = model.query_tail(h[None], r[None]), model.query_head(t[None], r[None])
        asked = normalize(torch.cat(queries), dim=1).sum(0).numpy()
        for name, ids in (planted.places[0], planted.places[2]):
            total -= (after[name][ids] - before[name][ids]).astype(np.float64) @ asked
    return total


def _difference(planted: Planted, model: Model, answers: Sequence[Answer]) -> Scores:
    """The first two answers of a round, less one another: what they have in common, noise too, is gone."""
    first, second = (_moves(planted, answer) for answer in answers[:2])
    slopes = [_slopes(planted, model, answer.before) for answer in answers[:2]]
    return _along(slopes[0] - slopes[1], first - second)


def _slopes(planted: Planted, model: Model, tables: Mapping[str, Floats]) -> Tensor:
    """(m, rows' widths together) where each canary's score rises."""
    rows = [torch.from_numpy(tables[name][ids]).requires_grad_() for name, ids in planted.places]
    return torch.cat(torch.autograd.grad(model.score(*rows).sum(), rows), dim=1)


def _moves(planted: Planted, answer: Answer) -> Tensor:
    """(m, rows' widths together) how far each canary's rows went."""
    moves = [answer.after[name][ids] - answer.before[name][ids] for name, ids in planted.places]
    return torch.from_numpy(np.concatenate(moves, axis=1))


def _along(slopes: Tensor, moves: Tensor) -> Scores:
    along: Scores = (normalize(slopes, dim=1) * moves).sum(1).double().numpy()
    return along


ATTACKERS: dict[str, Watcher] = {
    "touched rows": _touched,
    "along the gradient": _along_gradient,
    "along its head's": _along_head,
    "distance": _distance,
}
IN_BATCH: dict[str, Watcher] = {"pushed by others": _pushed}  # for training with negatives out of a batch
COMPARING: dict[str, Watcher] = {"difference of answers": _difference}  # of a round that is asked for twice
