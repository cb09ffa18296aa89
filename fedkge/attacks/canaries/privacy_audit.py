"""An audit of private training: canary triples are planted, training is watched, ε is bounded from below.

The adversary is the one that DP is about: it sees the tables after every round, knows every triple but the
coins that decided which canaries are in, and guesses those. A canary has a relation and two entities of its
own, declared in the vocabulary whether or not it is in, as a rare statement of a real graph would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from fedkge.attacks.canaries.canary_bound import Bound, lower_bound
from fedkge.client.kernels.arrays import Floats
from fedkge.client.models import Model, build_model
from fedkge.client.privacy import mechanism_of, train_privately
from fedkge.client.privacy.accountant import PrivacyLedger, epsilon
from fedkge.datasets.graph import IntArray, KnowledgeGraph
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from fedkge.seeding import draw

__all__ = ["ATTACKERS", "Audit", "Planted", "audit", "plant"]

_DRAW = 0xA0D17  # tells these draws from others with the same seed

Tables = Mapping[str, Floats]
Watcher = Callable[["Planted", Model, Tables, Tables], NDArray[np.float64]]


@dataclass(frozen=True)
class Planted:
    """A graph with canaries, and the coins that the attacker wants to know."""

    graph: KnowledgeGraph
    canaries: IntArray  # (m, 3)
    included: NDArray[np.bool_]  # (m,)


@dataclass(frozen=True)
class Audit:
    """What training claims to cost, and what an attacker proved that it costs at least."""

    mode: str
    sigma: float
    attacker: str
    claimed: float
    delta: float
    bound: Bound

    @property
    def refuted(self) -> bool:
        """Whether the claim is proven wrong."""
        return self.bound.epsilon > self.claimed


def plant(graph: KnowledgeGraph, num_canaries: int, rng: np.random.Generator) -> Planted:
    """Declare the canaries' labels, and let each of them into the confidential triples by a fair coin."""
    entities, relations = graph.num_entities, graph.num_relations
    each = np.arange(num_canaries)
    canaries = np.stack([entities + 2 * each, relations + each, entities + 2 * each + 1], axis=1)
    included = rng.random(num_canaries) < 0.5
    marks = np.concatenate([graph.marks("train"), np.ones(int(included.sum()), dtype=bool)])
    planted = KnowledgeGraph.from_ids(
        f"{graph.name} with canaries",
        (*graph.entity_labels, *(f"canary-{i}-{end}" for i in each for end in ("head", "tail"))),
        (*graph.relation_labels, *(f"canary-{i}" for i in each)),
        {"train": np.concatenate([graph.train, canaries[included].astype(np.int32)])},
        {"train": marks},
    )
    return Planted(planted, canaries.astype(np.int32), included)


def audit(
    graph: KnowledgeGraph,
    model: ModelSettings,
    training: TrainingSettings,
    dp: DPSettings,
    *,
    rounds: int = 4,
    num_canaries: int = 1000,
    seed: int = 0,
) -> list[Audit]:
    """Train for some rounds of `training.local_epochs`, and let every attacker guess from all iterates."""
    rng = draw(seed, _DRAW)
    planted = plant(graph, num_canaries, rng)
    trained = build_model(model, planted.graph, seed)
    scores = {name: np.zeros(num_canaries) for name in ATTACKERS}
    mechanism = mechanism_of(dp)
    ledger, delta = PrivacyLedger(), mechanism.delta(planted.graph)
    for _ in range(rounds):
        before = {name: table.copy() for name, table in trained.tables.items()}
        result = train_privately(trained, planted.graph, rng, training, dp, secret=rng.bytes(32))
        for event in result.events:
            ledger = ledger.add(event)
        for name, watch in ATTACKERS.items():
            scores[name] += watch(planted, trained, before, trained.tables)
    claimed = epsilon(ledger.events, delta, mechanism.accountant)
    return [
        Audit(dp.mode, dp.sigma, name, claimed, delta, lower_bound(found, planted.included, delta, rng))
        for name, found in scores.items()
    ]


def _touched(planted: Planted, model: Model, before: Tables, after: Tables) -> NDArray[np.float64]:
    """Whether the row of the canary's own relation moved: no other statement asks it to."""
    del model
    relations = planted.canaries[:, 1]
    moved: NDArray[np.bool_] = (before["relation"][relations] != after["relation"][relations]).any(axis=1)
    return moved.astype(np.float64)


def _along_gradient(planted: Planted, model: Model, before: Tables, after: Tables) -> NDArray[np.float64]:
    """How far the canary's rows went where its score rises; which negatives it met is not known."""
    head, relation, tail = planted.canaries.T
    places = (("entity", head), ("relation", relation), ("entity", tail))
    rows = [torch.from_numpy(before[name][ids]).requires_grad_() for name, ids in places]
    slopes = torch.cat(torch.autograd.grad(model.score(*rows).sum(), rows), dim=1)  # (m, 3 w)
    moves = torch.from_numpy(
        np.concatenate([after[name][ids] - before[name][ids] for name, ids in places], 1)
    )
    along: NDArray[np.float64] = (normalize(slopes, dim=1) * moves).sum(1).double().numpy()
    return along


ATTACKERS: dict[str, Watcher] = {"touched rows": _touched, "along the gradient": _along_gradient}
