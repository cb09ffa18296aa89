"""What federation gains over clients alone, by whose true answers a ranking leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from fedkge.experiment import Experiment
from fedkge.server.summary import experiment_hash
from fedkge.simulations.runs.run_folder import RunFolder, RunResult
from fedkge.simulations.scoring.differences import difference
from fedkge.simulations.studies.cells import Key, Row, StudyCache, TableCell
from fedkge.simulations.studies.kept_runs import kept_run
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = ["GainCell", "federation_gain"]

ALONE = "Local"
FILTERS = ("own", "all")
STRATEGIES = (ALONE, "FedE", "FedR", "FedER")
SIDES = ("tail", "both")
_SEEDS: Mapping[str, int] = {"UMLS": 5, "DDB14": 3}
# TransE throughout. Steps are larger and negatives fewer than in the FedR paper, so that clients converge.
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "UMLS": ("model.dim=64", "training.batch_size=128", "federation.evaluate_every=2"),
    "DDB14": ("federation.evaluate_every=5",),
}
_COMMON = ("model.name=TransE", "training.negatives=64", "training.learning_rate=0.003")
_ROUNDS: Mapping[Scale, int] = {"quick": 10, "full": 60}


@dataclass(frozen=True)
class GainCell:
    """One federation of five clients; its gain is over the same clients and seed, each alone."""

    dataset: str
    sides: str
    strategy: str
    rounds: int
    seed: int

    @property
    def keys(self) -> dict[str, Key]:
        return asdict(self)

    @property
    def experiment(self) -> Experiment:
        """What is ranked is what is trained: negatives replace the sides that are ranked."""
        return Experiment().override(
            [
                f"name=gain-{self.dataset}",
                f"seed={self.seed}",
                f"data.dataset={self.dataset}",
                "data.clients=5",
                "data.partition=fedr",
                f"training.corrupt={self.sides}",
                f"evaluation.sides={self.sides}",
                f"federation.strategy={self.strategy}",
                f"federation.rounds={self.rounds}",
                "privacy.union=plain",
                "privacy.secure_aggregation=false",
                "engine.name=inline",
                *_COMMON,
                *_SETTINGS[self.dataset],
            ]
        )

    @property
    def alone(self) -> GainCell:
        return replace(self, strategy=ALONE)

    def result(self, cache: StudyCache) -> RunResult:
        return kept_run(
            cache, "gain-" + "-".join(str(value) for value in self.keys.values()), self.experiment
        )


@study(
    [
        Quantity(
            f"{column}_{name}",
            f"{title}, {name} filter",
            None,
            f"{column}_{name}_low",
            f"{column}_{name}_high",
        )
        for column, title in (("mrr", "MRR"), ("gain", "MRR above Local"))
        for name in FILTERS
    ],
    seeds={"quick": 1, "full": 5},
    notes=(
        "Triples are dealt out to five clients at random (partition fedr); TransE, open sums. Local: each "
        "client alone. A client ranks among its own entities. Own filter: answers in its own triples are "
        "left out of a ranking, as in the FedR paper and as a deployment must; all: those of all clients, "
        "since what another client knows to be true is no mistake.",
        "Sides tail: negatives replace tails and tails are ranked; both: heads and tails.",
        "The gain is paired: over the same test triples for one seed, Student's t over seeds for several. "
        "The best round is chosen by validation under the own filter. DDB14 has three seeds.",
    ),
)
def federation_gain(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """What federation gains over clients alone, under both filters: Local, FedE, FedR and FedER.

    Quick: UMLS, tails, 10 rounds instead of 60, one seed.
    """
    quick = scale == "quick"
    for dataset in tuple(_SETTINGS)[: 1 if quick else None]:
        for sides in SIDES[: 1 if quick else None]:
            for seed in seeds[: _SEEDS[dataset]]:
                for strategy in STRATEGIES:
                    yield _measured(GainCell(dataset, sides, strategy, _ROUNDS[scale], seed))


def _measured(cell: GainCell) -> TableCell:
    def measure(cache: StudyCache) -> list[Row]:
        own, alone = cell.result(cache), cell.alone.result(cache)
        row: Row = {}
        for name in FILTERS:
            scores = own.summary["utility"]["filters"][name]["test"]
            row |= _named(f"mrr_{name}", scores["mrr"]["value"], scores["mrr"]["interval"])
            gain = difference([RunFolder.read(alone.folder)], [RunFolder.read(own.folder)], name)
            if cell.strategy != ALONE and gain is not None:
                row |= _named(f"gain_{name}", gain.value, gain.interval)
        return [row | {"test": scores["count"], "best_round": own.summary["utility"]["best_round"]}]

    return TableCell(cell.keys, measure, experiment_hash(cell.experiment))


def _named(name: str, value: float, interval: Sequence[float]) -> Row:
    low, high = interval
    return {name: value, f"{name}_low": low, f"{name}_high": high}
