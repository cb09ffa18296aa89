"""The three answers of the README: what clients gain, pay and leak, with secure aggregation on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from fedkge.attacks.findings import most_recovered
from fedkge.experiment import Experiment
from fedkge.server.summary import experiment_hash
from fedkge.simulations.experiments.defaults import QUICKSTART
from fedkge.simulations.runs.run_folder import RunFolder, RunResult
from fedkge.simulations.scoring.differences import difference
from fedkge.simulations.studies.cells import Key, Row, StudyCache, TableCell
from fedkge.simulations.studies.kept_runs import kept_run
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = ["AnswersCell", "three_answers"]

ALONE = "Local"
STRATEGIES = (ALONE, "FedR", "FedE")
FILTERS = ("own", "all")
_SEEDS: Mapping[str, int] = {"UMLS": 5, "DDB14": 1}
# Clients that share relations, unlike those of the quickstart: what one knows of a relation fits the others.
_SHARED_RELATIONS = (
    "name=answers-DDB14",
    "data.dataset=DDB14",
    "data.partition=fedr",
    "model.name=TransE",
    "model.dim=128",
    "training.batch_size=512",
    "federation.rounds=60",
    "federation.evaluate_every=5",
)


@dataclass(frozen=True)
class AnswersCell:
    """The quickstart with a strategy and seed, or the same asked of a graph that is dealt out at random."""

    dataset: str
    strategy: str
    seed: int

    @property
    def keys(self) -> dict[str, Key]:
        return asdict(self)

    @property
    def experiment(self) -> Experiment:
        changes = [f"seed={self.seed}", f"federation.strategy={self.strategy}", "engine.name=inline"]
        more = () if self.dataset == "UMLS" else _SHARED_RELATIONS
        return Experiment.load(QUICKSTART).override([*changes, *more])

    def result(self, cache: StudyCache) -> RunResult:
        return kept_run(cache, f"answers-{self.dataset}-{self.strategy}-{self.seed}", self.experiment)


@study(
    [
        *(
            Quantity(
                f"{column}_{name}",
                f"{title}, {name} filter",
                None,
                f"{column}_{name}_low",
                f"{column}_{name}_high",
            )
            for column, title in (("mrr", "MRR"), ("gain", "MRR above Local"))
            for name in FILTERS
        ),
        Quantity("bytes", "bytes of a run"),
        Quantity("recovered", "triples recovered", None, "recovered_low", "recovered_high"),
        Quantity("guessing", "triples recovered by guessing"),
    ],
    seeds={"quick": 1, "full": 5},
    notes=(
        "Five clients, secure aggregation and private union on. UMLS: the embedded quickstart (dirichlet, "
        "ComplEx). DDB14: dealt out at random (fedr), TransE, 60 rounds, one seed.",
        "The gain is paired: over the same test triples for one seed, Student's t over seeds for several.",
        "Triples recovered: the reconstruction furthest above guessing, of all adversaries, clients and both "
        "protocols, from what was really sent; cells.csv names it.",
    ),
)
def three_answers(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """What clients gain, pay and leak under secure aggregation: Local, FedR and FedE.

    Quick: UMLS and one seed.
    """
    for dataset in tuple(_SEEDS)[: 1 if scale == "quick" else None]:
        for seed in seeds[: _SEEDS[dataset]]:
            for strategy in STRATEGIES:
                yield _measured(AnswersCell(dataset, strategy, seed))


def _measured(cell: AnswersCell) -> TableCell:
    def measure(cache: StudyCache) -> list[Row]:
        own = RunFolder.read(cell.result(cache).folder)
        alone = RunFolder.read(replace(cell, strategy=ALONE).result(cache).folder)
        row: Row = {"bytes": own.bytes_total}
        for name in FILTERS:
            mrr = own.summary.part("utility", "filters", name, "test", "mrr")
            row |= _spanned(f"mrr_{name}", mrr.number("value"), mrr.listed("interval"))
            gain = difference([alone], [own], name)
            if cell.strategy != ALONE and gain is not None:
                row |= _spanned(f"gain_{name}", gain.value, gain.interval)
        finding = most_recovered(own.findings)
        if finding is not None:
            row |= _spanned("recovered", finding.value, (finding.low, finding.high))
            row |= {"guessing": finding.baseline, "by": f"{finding.metric}, {finding.where}"}
        return [row]

    return TableCell(cell.keys, measure, experiment_hash(cell.experiment))


def _spanned(name: str, value: float | None, interval: Sequence[float | None]) -> Row:
    low, high = interval
    return {name: value, f"{name}_low": low, f"{name}_high": high}
