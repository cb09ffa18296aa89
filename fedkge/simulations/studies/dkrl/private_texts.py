"""Utility over ε for a model of texts: entities that were never trained on, ranked after private training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import blake2b
from math import inf

import numpy as np

from fedkge.client.models import Model, build_model
from fedkge.client.privacy import mechanism_of, train_privately
from fedkge.client.privacy.accountant import epsilon
from fedkge.client.training.evaluate import evaluate
from fedkge.client.training.loop import train
from fedkge.datasets import unrestricted
from fedkge.datasets.confidential import mark
from fedkge.datasets.features import attach, find
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.inductive import inductive
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from fedkge.seeding import draw
from fedkge.simulations.studies.cells import Row, StudyCache, TableCell
from fedkge.simulations.studies.central import EVERY_SIDE, whole_graph
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = ["TASKS", "Task", "TextCell", "private_texts"]

_DRAW = 0xD7E87  # tells these draws from others with the same seed
_TARGETS = (0.5, 1.0, 3.0, 8.0)


@dataclass(frozen=True)
class Task:
    """A graph with descriptions, a reader of them, and how it is trained."""

    dataset: str
    texts: str  # below FEDKGE_DATA
    split: str  # "" for the graph's own; else `data.inductive`
    model: ModelSettings
    openly: TrainingSettings  # without noise
    privately: TrainingSettings
    dp: DPSettings
    epochs: int

    def graph(self, share: float, split_seed: int = 0) -> KnowledgeGraph:
        """The same triples are confidential in every cell."""
        return mark(_described(self.dataset, self.texts, self.split, split_seed), f"random:{share}", seed=0)


@lru_cache(maxsize=2)
def _described(dataset: str, texts: str, split: str, seed: int) -> KnowledgeGraph:
    graph = attach(whole_graph(dataset), [find(texts)])
    return inductive(graph, split, seed) if split else graph


_OPENLY = TrainingSettings(
    batch_size=512, negatives=16, learning_rate=1e-3, optimizer="Adam", loss="margin-ranking", corrupt="both"
)
TASKS: dict[Scale, Task] = {
    "quick": Task(
        "UMLS",
        "text/UMLS-entity2textlong.txt",
        "",
        ModelSettings(name="BLP", dim=32, margin=1.0, norm=1, options={"text": "glove"}),
        _OPENLY.model_copy(update={"batch_size": 256, "learning_rate": 5e-3}),
        _OPENLY.model_copy(update={"batch_size": 1024, "learning_rate": 3e-2}),
        DPSettings(mode="sound", clip=0.03, options={"average": 0.4}),
        epochs=30,
    ),
    "full": Task(
        "FB15k-237",
        "FB15k-237-entity2wikidata.json",
        "0.1,0.1",
        ModelSettings(name="BLP", dim=64, margin=9.0, norm=1, options={"text": "minilm"}),
        _OPENLY.model_copy(update={"loss": "self-adversarial", "negatives": 32, "learning_rate": 3e-3}),
        _OPENLY.model_copy(update={"loss": "self-adversarial", "batch_size": 4096, "learning_rate": 1e-2}),
        DPSettings(mode="sound", clip=0.03, options={"average": 0.4}),
        epochs=8,
    ),
}


@dataclass(frozen=True)
class TextCell:
    """U leaves confidential triples out, NDP has no noise, `sound` is within `target`."""

    confidential: float  # share of the triples
    method: str
    target: float | None = None
    seed: int = 0


def measure_texts(cell: TextCell, task: Task, split: str = "test", split_seed: int = 0) -> Row:
    """Train one model and rank the triples of a split, both sides, among all entities."""
    graph = task.graph(cell.confidential, split_seed)
    model, row = _trained(cell, task, graph)
    scores = evaluate(model, graph, split, EVERY_SIDE, draw(cell.seed, _DRAW, 1))
    for column, name in (("mrr", "mrr"), ("hits", "hits@10")):
        low, high = scores.intervals[name]
        row |= {column: scores.metrics[name], f"{column}_low": low, f"{column}_high": high}
    return row


def _trained(cell: TextCell, task: Task, graph: KnowledgeGraph) -> tuple[Model, Row]:
    rng = draw(cell.seed, _DRAW)
    if cell.target is None:
        seen = graph if cell.method == "NDP" else unrestricted(graph)
        model = build_model(task.model, seen, cell.seed)
        result = train(model, seen, rng, task.openly, epochs=task.epochs)
        spent = inf if cell.method == "NDP" else 0.0
        return model, {"epsilon": spent, "sigma": None, "seconds": result.seconds}
    mechanism = mechanism_of(task.dp)
    settings, delta = task.privately, mechanism.delta(graph)
    sigma = mechanism.sigma_within(cell.target, mechanism.plan(graph, settings), task.epochs, delta)
    model = build_model(task.model, mechanism.public(graph), cell.seed)
    secret = blake2b(repr(cell).encode(), digest_size=32).digest()
    noised = task.dp.model_copy(update={"sigma": sigma})
    made = train_privately(model, graph, rng, settings, noised, secret, epochs=task.epochs)
    assert np.isfinite(model.entity.numpy()).all()
    return model, {"epsilon": epsilon(made.events, delta), "sigma": sigma, "seconds": made.seconds}


@study(
    (
        Quantity("mrr", "MRR", None, "mrr_low", "mrr_high"),
        Quantity("hits", "Hits@10", None, "hits_low", "hits_high"),
        Quantity("epsilon", "ε"),
    ),
    seeds={"quick": 1, "full": 1},
    notes=(
        "U trains without confidential triples (ε = 0; with all of them confidential nothing is left to "
        "train on), NDP on all without noise (ε = ∞). The ε of sound is guaranteed, for one triple; "
        "descriptions and the vocabulary are public. δ = |C|^−1.1.",
        "MRR and Hits@10 are filtered, over both sides, among all entities. On FB15k-237 every test triple "
        "has an entity that no train triple has: own split by the rule of Daza et al. (2021), seed 0.",
        "Settings were chosen by validation triples: on FB15k-237 of a split with seed 1, by six runs of "
        "four epochs, at ε = 1 and without noise; on UMLS of its own split. No test triple was scored.",
    ),
)
def private_texts(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """MRR of a frozen reader of texts against ε, with all triples confidential and with half of them.

    Quick: UMLS with its texts and GloVe. Full: BLP over MiniLM on inductive FB15k-237.
    """
    task = TASKS[scale]
    for share, methods in ((1.0, ("NDP",)), (0.5, ("U",))):
        for seed in seeds:
            yield from (_cell(TextCell(share, method, None, seed), task) for method in methods)
            yield from (_cell(TextCell(share, "sound", target, seed), task) for target in _TARGETS)


def _cell(cell: TextCell, task: Task) -> TableCell:
    def measure(cache: StudyCache) -> list[Row]:
        del cache
        return [measure_texts(cell, task)]

    return TableCell(asdict(cell), measure, repr(task))
