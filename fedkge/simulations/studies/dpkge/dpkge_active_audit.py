"""What servers that choose rows, and ask again, prove about ε, for every mechanism."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, sqrt
from typing import Any, Literal

from fedkge.attacks.canaries.planting import plant, plant_at_hub, plant_at_threshold
from fedkge.attacks.canaries.privacy_audit import CanaryAudit, Planting, audit
from fedkge.attacks.canaries.servers import SERVERS
from fedkge.client.privacy.accountant import gaussian_sigma
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from fedkge.simulations.studies.cells import Row, StudyCache, TableCell
from fedkge.simulations.studies.dpkge.dpkge_audit import BOUNDS, audit_row
from fedkge.simulations.studies.dpkge.dpkge_cells import graph_of
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import study

__all__ = ["SCENARIOS", "Scenario", "active_audit", "audited"]

_ALL = 10**9  # a batch that holds every confidential triple
_DELTA = 1e-5
_ROUNDS = 2
_SURE = 3.8 * sqrt(3)  # of the noise of the choice: where the threshold of `hubs` is, in its σ
_MOST = 60_000  # confidential triples around a threshold: δ has to stay below 1 / |C|
_TRAINING = TrainingSettings(
    local_epochs=1,
    batch_size=_ALL,  # what all triples of a step show, an attacker finds most in
    negatives=1,
    learning_rate=0.01,
    optimizer="SGD",
    loss="logistic",
    corrupt="tail",
)
_QUIET = {"phase": 1.0, "momentum": 0.0, "average": 0.0, "negatives": 1, "least": 0.0}
_STEPS = {**_QUIET, "steps": _ROUNDS, "choice": 0.1, "start": 0.01}


@dataclass(frozen=True)
class Scenario:
    """One server, where canaries stand, and which part of a mechanism's budget they look at."""

    server: str
    canaries: str  # "own rows", "at a hub" or "at the threshold"
    options: dict[str, Any] = field(default_factory=dict)  # of the mechanism
    clip: float | None = 1.0
    noise: Literal["auto", "lazy"] = "auto"
    learning_rate: float = 0.01

    def planting(self, epsilon: float) -> Planting:
        if self.canaries == "own rows":
            return plant
        choice = self.options.get("choice", 0.1)
        deviation = gaussian_sigma(epsilon, _DELTA) * sqrt(SERVERS[self.server].paid / choice)
        threshold = max(_SURE * deviation, self.options.get("least", 0.0))
        if self.canaries == "at a hub":
            known = self.server != "starting"
            return partial(plant_at_hub, crowd=ceil(2.5 * threshold) + 50, known=known)
        return partial(plant_at_threshold, degree=round(threshold))

    def dim(self, num_canaries: int) -> int:
        """Every canary at a hub has one number of its row for itself."""
        return {"own rows": 16, "at a hub": num_canaries + 1, "at the threshold": 4}[self.canaries]

    def num_canaries(self, asked: int, epsilon: float) -> int:
        """At the threshold each has two entities with as many triples as the threshold asks for."""
        if self.canaries != "at the threshold":
            return asked
        degree = _SURE * gaussian_sigma(epsilon, _DELTA) / sqrt(self.options["choice"])
        return min(asked, int(_MOST / max(degree, 1)))


# Where rows are extreme, steps are large: noise about as large as rounding covers least.
_EVERY = ("passive", "extreme", "colliding", "inconsistent")
SCENARIOS: dict[str, tuple[Scenario, ...]] = {
    "paper": (Scenario("passive", "own rows"),),
    "sound": (
        *(
            Scenario(server, where)
            for where in ("own rows", "at a hub")
            for server in _EVERY
            if server != "extreme"
        ),
        Scenario("extreme", "own rows", noise="lazy", learning_rate=30.0),
        Scenario("extreme", "at a hub", noise="lazy", learning_rate=1e5),
    ),
    "hubs": (
        *(Scenario(server, "own rows", _STEPS, None) for server in _EVERY),
        *(Scenario(server, "at a hub", _STEPS, None) for server in _EVERY if server != "extreme"),
        Scenario("extreme", "at a hub", {**_STEPS, "learning_rate": 1e6}, None),
        Scenario(
            "starting",
            "at a hub",
            {**_QUIET, "steps": _ROUNDS, "choice": 0.1, "start": 0.85, "learning_rate": 1e-20},
            None,
        ),
        Scenario(
            "passive",
            "at the threshold",
            {**_QUIET, "steps": _ROUNDS, "choice": 0.9, "start": 0.01},
            None,
        ),
    ),
}


def audited(
    graph: KnowledgeGraph, mode: str, scenario: Scenario, epsilon: float, num_canaries: int, seed: int
) -> list[CanaryAudit]:
    """What every attacker proves where the run is to stay within ε."""
    dp = DPSettings(
        mode=mode,
        target_epsilon=epsilon,
        delta=_DELTA,
        clip=scenario.clip,
        noise=scenario.noise,
        options=scenario.options,
    )
    server = SERVERS[scenario.server]()
    num_canaries = scenario.num_canaries(num_canaries, epsilon)
    model = ModelSettings(name=server.model, dim=scenario.dim(num_canaries), margin=0.0)
    return audit(
        graph,
        model,
        _TRAINING.model_copy(update={"learning_rate": scenario.learning_rate}),
        dp,
        rounds=_ROUNDS,
        num_canaries=num_canaries,
        seed=seed,
        server=server,
        planting=scenario.planting(epsilon),
    )


@study(BOUNDS, within=("attacker",), seeds={"quick": 1, "full": 1})
def active_audit(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """Lower bounds on ε (95 % confidence) that servers reach which choose rows and ask again.

    Canaries enter the confidential half of UMLS: with rows of their own, at a relation and an entity that
    `hubs` surely chooses, or at entities where one triple more decides whether they are chosen. Quick: 300
    canaries and ε = 1. Full: 2,000 canaries.
    """
    canaries, targets = (2000, (0.1, 1.0, 4.0)) if scale == "full" else (300, (1.0,))
    for mode, scenarios in SCENARIOS.items():
        for scenario in scenarios:
            for epsilon in targets:
                for seed in seeds:
                    yield _cell(mode, scenario, epsilon, canaries, seed)


def _cell(mode: str, scenario: Scenario, epsilon: float, canaries: int, seed: int) -> TableCell:
    def measure(cache: StudyCache) -> list[Row]:
        del cache
        audits = audited(graph_of("UMLS", 0.5), mode, scenario, epsilon, canaries, seed)
        return [audit_row(one) for one in audits]

    where = {"server": scenario.server, "canaries": scenario.canaries}
    return TableCell({"mode": mode, **where, "target": epsilon, "seed": seed}, measure, f"{canaries}")
