"""One trained model of `privacy-utility`: which graph is marked how, by which method, at which ε."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.client.models import Model, build_model
from fedkge.client.privacy import mechanism_of, train_privately
from fedkge.client.privacy.accountant import epsilon
from fedkge.client.training.evaluate import evaluate, per_triple
from fedkge.datasets import unrestricted
from fedkge.datasets.confidential import mark
from fedkge.datasets.graph import BoolArray, KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import DPSettings, ModelSettings
from fedkge.seeding import draw
from fedkge.simulations.studies.cells import Key, Row, StudyCache
from fedkge.simulations.studies.central import CHOICES, EVERY_SIDE, ModelChoice, train_openly, whole_graph
from fedkge.storage import staged

__all__ = ["METHODS", "PARTS", "PREDICATES", "SMALL", "UtilityCell", "measure_utility"]

# Whole predicates. UMLS: the relations of rank 3, 6 and 9 by their number of train triples.
PREDICATES = {
    "FB15k-237": "predicates:/people*,/medicine*",
    "UMLS": "predicates:isa|causes|produces",
}
PARTS = ("confidential", "unrestricted", "all")
METHODS: Mapping[str, DPSettings | None] = {
    "U": None,
    "NDP": None,
    "sound": DPSettings(mode="sound"),
    "sound, pretrained": DPSettings(mode="sound", options={"phase": 0.2, "average": 0.4}),  # as hubs has it
    "hubs": DPSettings(mode="hubs"),
    "paper": DPSettings(mode="paper"),
}

# For a graph as small as UMLS: rates and margin by validation MRR of U, over unrestricted triples alone.
SMALL = {
    "TransE": replace(CHOICES["TransE"], learning_rate=0.1, paper_rate=0.1),
    "RotatE": ModelChoice(ModelSettings(name="RotatE", dim=50, margin=9.0), "logistic", "Adagrad", 0.1, 0.1),
}
_CHOICES = {"FB15k-237": CHOICES, "UMLS": SMALL}
_RESAMPLES = 1000
_DRAW = 0x9B1C  # tells these draws from others with the same seed

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class UtilityCell:
    """What is trained: U leaves confidential triples out, NDP has no noise, others are within `target`."""

    dataset: str
    model: str
    marking: str  # "predicates", or "random": half of the triples
    method: str
    target: float | None = None
    epochs: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.dp is None) != (self.target is None):
            raise SettingError(
                f"method {self.method} with target {self.target}: noise and only noise has an ε"
            )

    @property
    def choice(self) -> ModelChoice:
        return _CHOICES[self.dataset][self.model]

    @property
    def dp(self) -> DPSettings | None:
        return METHODS[self.method]

    @property
    def graph(self) -> KnowledgeGraph:
        """The whole graph, marked: the same triples for every cell."""
        rule = PREDICATES[self.dataset] if self.marking == "predicates" else "random:0.5"
        return mark(whole_graph(self.dataset), rule, seed=0)

    @property
    def keys(self) -> dict[str, Key]:
        return asdict(self)

    @property
    def settings(self) -> str:
        """All that its rows depend on, the mechanism's defaults too."""
        options = None if self.dp is None else mechanism_of(self.dp).options
        return repr((self, self.choice, self.dp, options))


def measure_utility(cell: UtilityCell, cache: StudyCache) -> Row:
    """Train one model; MRR by part of the test triples, and what is gained over U, triple by triple."""
    graph = cell.graph
    scores, spent = _scores(cell, graph)
    marks = graph.marks("test")
    columns = {"mrr": scores}
    if cell.method == "U":
        _keep(scores, _place(cell, cache))
    else:
        columns["gain"] = scores - _kept_scores(replace(cell, method="U", target=None), cache)
    row: Row = {}
    for number, (part, chosen) in enumerate(_parts(marks).items()):
        for name, values in columns.items():
            row |= _mean(f"{name}_{part}", values[chosen], draw(cell.seed, _DRAW, number))
    return row | spent | {"confidential_test": int(marks.sum()), "test": len(marks)}


def _parts(marks: BoolArray) -> dict[str, BoolArray]:
    return dict(zip(PARTS, (marks, ~marks, np.ones_like(marks)), strict=True))


def _mean(name: str, values: Scores, rng: np.random.Generator) -> Row:
    """A mean over triples with its 95 % bootstrap interval; of differences it is the paired one."""
    n = len(values)
    means = [np.bincount(rng.integers(0, n, n), minlength=n) @ values / n for _ in range(_RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return {name: float(values.mean()), f"{name}_low": float(low), f"{name}_high": float(high)}


def _scores(cell: UtilityCell, graph: KnowledgeGraph) -> tuple[Scores, Row]:
    """The reciprocal rank of every test triple, and what training cost."""
    model, spent = _train(cell, graph)
    ranks = evaluate(model, graph, "test", EVERY_SIDE).ranks
    return per_triple(ranks)["mrr"], spent


def _kept_scores(cell: UtilityCell, cache: StudyCache) -> Scores:
    """Scores that other cells are compared with, trained once."""
    path = _place(cell, cache)
    if not path.exists():
        _keep(_scores(cell, cell.graph)[0], path)
    return np.asarray(np.load(path, allow_pickle=False))


def _place(cell: UtilityCell, cache: StudyCache) -> Path:
    digest = blake2b(cell.settings.encode(), digest_size=8).hexdigest()
    return cache.runs / f"utility-{cell.dataset}-{cell.model}-{cell.marking}-{cell.method}-{digest}.npy"


def _keep(scores: Scores, path: Path) -> None:
    with staged(path) as partial, partial.open("wb") as file:
        np.save(file, scores, allow_pickle=False)


def _train(cell: UtilityCell, graph: KnowledgeGraph) -> tuple[Model, Row]:
    if cell.dp is not None and cell.target is not None:
        return _train_privately(cell, graph, cell.dp, cell.target)
    seen = graph if cell.method == "NDP" else unrestricted(graph)
    rng = draw(cell.seed, _DRAW)
    model, result = train_openly(cell.choice, seen, len(graph.train), cell.epochs, cell.seed, rng)
    spent = inf if cell.method == "NDP" else 0.0
    return model, _cost(spent, "exact", seconds=result.seconds)


def _train_privately(
    cell: UtilityCell, graph: KnowledgeGraph, dp: DPSettings, target: float
) -> tuple[Model, Row]:
    mechanism, choice = mechanism_of(dp), cell.choice
    settings = choice.training(len(graph.train), as_printed=not mechanism.guaranteed)
    delta = mechanism.delta(graph)
    sigma = mechanism.sigma_within(target, mechanism.plan(graph, settings), cell.epochs, delta)
    model = build_model(choice.model, mechanism.public(graph), cell.seed)
    secret = blake2b(repr(cell).encode(), digest_size=32).digest()
    noised = dp.model_copy(update={"sigma": sigma})
    rng = draw(cell.seed, _DRAW)
    result = train_privately(model, graph, rng, settings, noised, secret, epochs=cell.epochs)
    return model, _cost(
        epsilon(result.events, delta, mechanism.accountant),
        mechanism.standing(),
        delta=delta,
        sigma=sigma,
        clip=result.clip,
        seconds=result.seconds,
    )


def _cost(spent: float, standing: str, **others: Any) -> Row:
    return {"epsilon": spent, "epsilon_is": standing, "delta": 0.0, "sigma": None, "clip": None, **others}
