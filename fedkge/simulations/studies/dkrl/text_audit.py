"""What an attacker proves about ε of training over texts: as published, and sound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fedkge.attacks.canaries.planting import plant_among_alike, plant_described
from fedkge.attacks.canaries.privacy_audit import CanaryAudit, Planting, audit
from fedkge.attacks.canaries.servers import Echoing, Passive, Server
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from fedkge.simulations.studies.cells import Row, StudyCache, TableCell
from fedkge.simulations.studies.dpkge.dpkge_audit import BOUNDS, audit_row
from fedkge.simulations.studies.dpkge.dpkge_cells import graph_of
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import study

__all__ = ["SETTINGS", "Attack", "audited", "text_audit"]

_ALL = 10**9  # a batch that holds every triple
_CLIP = 1e-3  # below every gradient, so that each counts for all that it may
_DELTA = 1e-5
_MODEL = ModelSettings(name=Echoing.model, dim=16, margin=1.0)


@dataclass(frozen=True)
class Attack:
    """How a client trains, and who looks on."""

    mode: str
    batch: str  # "64", as published, or "all"
    server: type[Server]

    @property
    def training(self) -> TrainingSettings:
        """BLP's loss and negatives; of all triples at once each has one, and what moves is mostly its own."""
        own = self.batch == "all"
        return TrainingSettings(
            local_epochs=1,
            batch_size=_ALL if own else int(self.batch),
            negatives=1 if own else 64,
            learning_rate=100.0 if own else 1.0,  # a step of noise is far above what float32 rounds
            optimizer="SGD",
            loss="logistic" if own else "margin-ranking",
            corrupt="both",
        )

    def planting(self, crowd: int) -> Planting:
        return partial(plant_among_alike, crowd=crowd) if self.server is Echoing else plant_described


SETTINGS = (
    Attack("sgm", "64", Passive),
    Attack("sgm", "64", Echoing),
    Attack("sound", "64", Passive),
    Attack("sound", "64", Echoing),
    Attack("sound", "all", Passive),
)


def audited(
    graph: KnowledgeGraph,
    attack: Attack,
    sigma: float,
    num_canaries: int,
    crowd: int,
    rounds: int,
    seed: int = 0,
) -> list[CanaryAudit]:
    """What every attacker proves; all triples of the graph are to be confidential."""
    margin = _MODEL.margin if attack.training.loss == "margin-ranking" else 0.0
    return audit(
        graph,
        _MODEL.model_copy(update={"margin": margin}),
        attack.training,
        DPSettings(mode=attack.mode, sigma=sigma, clip=_CLIP, delta=_DELTA),
        rounds=rounds,
        num_canaries=num_canaries,
        seed=seed,
        server=attack.server(),
        planting=attack.planting(crowd),
    )


@study(
    BOUNDS,
    within=("attacker",),
    seeds={"quick": 1, "full": 1},
    notes=(
        "Each canary has entities whose descriptions have a word of their own, and descriptions are public. "
        "Echoing: all other entities are described alike, so that an example of theirs asks for nothing but "
        "that canaries among its negatives stay below; its gradient, however short, is clipped to the bound "
        "alone. A canary in a batch of 64 is pushed by dozens of examples, where the noise is for one.",
        "Under sound, negatives come from the public vocabulary, whether or not a canary is in.",
    ),
)
def text_audit(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """Lower bounds on ε (95 % confidence) over texts: with negatives out of the batch, and sound.

    UMLS, all of it confidential, a linear reader. Quick: 100 canaries, a crowd of 4,000, 4 rounds, σ = 1.
    Full: 200 canaries, a crowd of 15,000, 15 rounds, σ = 1 and 1.2.
    """
    full = scale == "full"
    canaries, crowd, rounds = (200, 15_000, 15) if full else (100, 4_000, 4)
    for attack in SETTINGS:
        for sigma in (1.0, 1.2) if full else (1.0,):
            for seed in seeds:
                yield _cell(attack, sigma, canaries, crowd, rounds, seed)


def _cell(attack: Attack, sigma: float, canaries: int, crowd: int, rounds: int, seed: int) -> TableCell:
    def measure(cache: StudyCache) -> list[Row]:
        del cache
        found = audited(graph_of("UMLS", 1.0), attack, sigma, canaries, crowd, rounds, seed)
        return [audit_row(one) for one in found]

    keys = {"mode": attack.mode, "batch": attack.batch, "server": attack.server.__name__.lower()}
    return TableCell({**keys, "sigma": sigma, "seed": seed}, measure, f"{canaries} {crowd} {rounds}")
