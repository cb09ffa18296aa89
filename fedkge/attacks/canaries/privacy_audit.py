"""An audit of private training: canary triples are planted, training is watched, ε is bounded from below.

The adversary is the one that DP is about: it sees the tables after every round, may send others before it,
may ask again, knows every triple but the coins that decided which canaries are in, and guesses those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedkge.attacks.canaries.attackers import ATTACKERS, COMPARING, IN_BATCH, Answer
from fedkge.attacks.canaries.canary_bound import Bound, lower_bound
from fedkge.attacks.canaries.planting import Planted, plant
from fedkge.attacks.canaries.servers import Passive, Server, Turn
from fedkge.client.models import Model, build_model
from fedkge.client.privacy import PrivacyAccount, mechanism_of
from fedkge.client.training.optimizers import State
from fedkge.datasets import unrestricted
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from fedkge.seeding import draw

__all__ = ["CanaryAudit", "Planting", "audit"]

_DRAW = 0xA0D17  # tells these draws from others with the same seed

Planting = Callable[[KnowledgeGraph, int, np.random.Generator], Planted]


@dataclass(frozen=True)
class CanaryAudit:
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


class _Client:
    """A client under audit: it charges every release, and keeps what its mechanism keeps."""

    def __init__(self, model: Model, account: PrivacyAccount, training: TrainingSettings, seed: int) -> None:
        self.model, self.account, self.training, self.seed = model, account, training, seed
        self.memory: State = {}

    def answer(self, server: Server, planted: Planted, round: int, rng: np.random.Generator) -> list[Answer]:
        """One round, as often as the server asks for it."""
        tables, memory, answers = self.model.rows, self.memory, []
        for ask in range(server.asks):
            server.send(planted, tables, Turn(round, ask, rng))
            before = {name: table.copy() for name, table in tables.items()}
            known = draw(self.seed, _DRAW, round)  # a server knows how unrestricted triples are drawn
            result = self.account.train(self.model, known, self.training, round, None, memory=memory)
            answers.append(Answer(before, {name: table.copy() for name, table in tables.items()}))
            self.memory = result.memory
        return answers


def audit(
    graph: KnowledgeGraph,
    model: ModelSettings,
    training: TrainingSettings,
    dp: DPSettings,
    *,
    rounds: int = 4,
    num_canaries: int = 1000,
    seed: int = 0,
    server: Server | None = None,
    planting: Planting = plant,
) -> list[CanaryAudit]:
    """Train for some rounds of `training.local_epochs`, and let every attacker guess from all answers.

    Args:
        server: what sends rows; left out: one that leaves them alone.
        planting: what puts canaries into the graph.
    """
    rng, server = draw(seed, _DRAW), server or Passive()
    planted = planting(graph, num_canaries, rng)
    public = unrestricted(planted.graph) if mechanism_of(dp).hides_counts else planted.graph
    attackers = {**ATTACKERS, **(COMPARING if server.asks > 1 else {})}
    attackers |= IN_BATCH if planted.parameter != "entity" else {}
    scores = {name: np.zeros(num_canaries) for name in attackers}
    with TemporaryDirectory() as folder:
        account = _account(Path(folder), planted.graph, training, dp, rounds, rng.bytes(32), server.paid)
        client = _Client(build_model(model, public, seed), account, training, seed)
        for round in range(1, rounds + 1):
            answers = client.answer(server, planted, round, rng)
            for name, watch in attackers.items():
                scores[name] += watch(planted, client.model, answers)
    claimed, delta = account.spent(), account.delta
    return [
        CanaryAudit(
            dp.mode,
            account.dp.sigma,
            name,
            claimed,
            delta,
            lower_bound(guesses, planted.included, delta, rng),
        )
        for name, guesses in scores.items()
    ]


def _account(
    folder: Path,
    graph: KnowledgeGraph,
    training: TrainingSettings,
    dp: DPSettings,
    rounds: int,
    secret: bytes,
    paid: int,
) -> PrivacyAccount:
    """The account of a client; noise for a target is for a run in which every round is paid so often.

    It has no budget: what is asked for is answered, and the claim is what was spent.
    """

    def opened(dp: DPSettings) -> PrivacyAccount:
        return PrivacyAccount(folder / "ledger.json", 0, graph, training, dp, rounds, secret, simulated=True)

    if dp.target_epsilon is None:
        return opened(dp)
    sigma = opened(dp).dp.sigma * sqrt(paid)
    return opened(dp.model_copy(update={"sigma": sigma, "target_epsilon": None}))
