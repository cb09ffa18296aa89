"""Where defaults of private training come from: dry runs on public relations marked as if confidential."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from fedkge.client.privacy import mechanism_of
from fedkge.datasets.confidential import mark
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import DPSettings
from fedkge.simulations.studies.cells import Key, Row, StudyCache, TableCell
from fedkge.simulations.studies.central import CHOICES, EVERY_SIDE, ModelChoice, whole_graph
from fedkge.simulations.studies.private.utility_cells import PREDICATES, SMALL
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study
from fedkge.simulations.tuning.candidates import Candidate, candidates_of
from fedkge.simulations.tuning.public_task import PublicTask, Scores, pretended
from fedkge.simulations.tuning.tuning import half_width
from fedkge.storage import staged

__all__ = ["TuningCell", "measure_tuning", "privacy_tuning"]

_MODELS: Mapping[str, Mapping[str, ModelChoice]] = {"FB15k-237": CHOICES, "UMLS": SMALL}
_AS_IF = {"FB15k-237": "predicates:/music*,/location*", "UMLS": None}
_EPOCHS = {"quick": 30, "full": 60}

# Dataset, model, mechanism.
_LINES: Mapping[Scale, tuple[tuple[str, str, str], ...]] = {
    "quick": (("UMLS", "TransE", "sound"), ("UMLS", "TransE", "hubs")),
    "full": (
        ("FB15k-237", "TransE", "sound"),
        ("FB15k-237", "TransE", "hubs"),
        ("FB15k-237", "DistMult", "sound"),
    ),
}
_OPTIONS = {"DistMult": ("gradient_share",)}  # of a model that is there for one option


@dataclass(frozen=True)
class TuningCell:
    """One option of a mechanism: all values that are tried, beside the default."""

    dataset: str
    model: str
    mode: str
    option: str
    epochs: int
    seed: int
    target: float = 1.0

    @property
    def dp(self) -> DPSettings:
        return DPSettings(mode=self.mode, target_epsilon=self.target)

    @property
    def choice(self) -> ModelChoice:
        return _MODELS[self.dataset][self.model]

    @property
    def candidates(self) -> list[Candidate]:
        """The default, and each other value of the option."""
        every = candidates_of(self.dp, self.choice.optimizer)
        return [candidate for candidate in every if candidate.option in ("", self.option)]

    @property
    def task(self) -> PublicTask:
        graph = _public(self.dataset)
        training = self.choice.training(len(graph.train))
        return PublicTask(graph, self.choice.model, training, EVERY_SIDE, self.epochs)

    @property
    def keys(self) -> dict[str, Key]:
        return {
            "dataset": self.dataset,
            "model": self.model,
            "mechanism": self.mode,
            "target": self.target,
            "option": self.option,
            "epochs": self.epochs,
            "seed": self.seed,
        }

    @property
    def settings(self) -> str:
        """All that its rows depend on, the mechanism's defaults too."""
        values = [candidate.value for candidate in self.candidates]
        return repr((self, self.choice, _AS_IF[self.dataset], mechanism_of(self.dp).options, values))


@lru_cache(maxsize=2)
def _public(dataset: str) -> KnowledgeGraph:
    """Without the predicates on which mechanisms are compared."""
    return pretended(mark(whole_graph(dataset), PREDICATES[dataset]), _AS_IF[dataset])


def measure_tuning(cell: TuningCell, cache: StudyCache) -> list[Row]:
    """A row a value, in their order: MRR, what it gains over the default, its rank."""
    task, default = cell.task, getattr(mechanism_of(cell.dp).options, cell.option)
    first, *others = cell.candidates
    scores = {default: _default_scores(cell, task, first, cache)}
    scores |= {candidate.value: task.scores(candidate.dp, cell.seed) for candidate in others}
    means = {value: float(part.mean()) for value, part in scores.items()}
    return [
        {
            "value": f"{value:g}{' (default)' if value == default else ''}",
            **_interval("mrr", scores[value]),
            **(_interval("gain", scores[value] - scores[default]) if value != default else {}),
            "rank": 1 + sum(mean > means[value] for mean in means.values()),
            "triples": len(scores[value]),
            "confidential": int(task.graph.marks("train").sum()),
        }
        for value in sorted(scores)
    ]


def _interval(name: str, values: Scores) -> Row:
    mean, width = float(values.mean()), half_width(values)
    return {name: mean, f"{name}_low": mean - width, f"{name}_high": mean + width}


def _default_scores(cell: TuningCell, task: PublicTask, first: Candidate, cache: StudyCache) -> Scores:
    """What every option of a mechanism is compared with, trained once."""
    about = repr((task.model, task.training, task.epochs, first.dp, mechanism_of(first.dp).options))
    words = repr((cell.dataset, _AS_IF[cell.dataset], cell.seed, about))
    digest = blake2b(words.encode(), digest_size=8).hexdigest()
    path = cache.runs / f"tuning-{cell.dataset}-{cell.model}-{cell.mode}-{cell.seed}-{digest}.npy"
    if not path.exists():
        scores = task.scores(first.dp, cell.seed)
        with staged(path) as partial, partial.open("wb") as file:
            np.save(file, scores, allow_pickle=False)
    return np.asarray(np.load(path, allow_pickle=False))


@study(
    (
        Quantity("mrr", "MRR", None, "mrr_low", "mrr_high"),
        Quantity("gain", "MRR above the default", None, "gain_low", "gain_high"),
        Quantity("rank", "rank"),
    ),
    within=("value",),
    seeds={"quick": 1, "full": 3},
    notes=(
        "No triple of the predicates on which privacy-utility compares mechanisms is here: they are dropped "
        "first (FB15k-237: /people and /medicine; UMLS: the relations of rank 3, 6 and 9). Of what is left, "
        "predicates are marked as if confidential. FB15k-237: /music and /location. UMLS: every third by "
        "train triples, as long as they stay within the number of triples that were dropped.",
        "One option at a time, the others at their defaults; ε = 1, δ = |C|^−1.1 over the marked train "
        "triples C. MRR is filtered, over both sides, on the validation triples that are marked.",
        "The rank is among the values of one option. Intervals are Student's: over validation triples for "
        "one seed, paired where it is a gain, and over seeds for several. An interval over triples does not "
        "know how much another seed moves a score.",
    ),
)
def privacy_tuning(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """Options of hubs and sound on public relations marked as if confidential: where their defaults stand.

    Quick: UMLS, 30 epochs, one seed.
    """
    for seed in seeds:
        for dataset, model, mode in _LINES[scale]:
            choice = _MODELS[dataset][model]
            tried = candidates_of(DPSettings(mode=mode), choice.optimizer)
            for option in dict.fromkeys(candidate.option for candidate in tried[1:]):
                if option in _OPTIONS.get(model, (option,)):
                    yield _measured(TuningCell(dataset, model, mode, option, _EPOCHS[scale], seed))


def _measured(cell: TuningCell) -> TableCell:
    def measure(cache: StudyCache) -> list[Row]:
        return measure_tuning(cell, cache)

    return TableCell(cell.keys, measure, cell.settings)
