"""FedE taken apart: what its published negatives and a common start change, each by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from fedkge.experiment import Experiment
from fedkge.server.summary import experiment_hash
from fedkge.simulations.studies.cells import Key, Row, StudyCache, TableCell
from fedkge.simulations.studies.fedr.fedr_runs import FedRFederation
from fedkge.simulations.studies.fedr.fedr_tables import FEDR_NOTES
from fedkge.simulations.studies.kept_runs import kept_run
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = ["FedEApart", "fede_apart"]

_ROUNDS = {"quick": 10, "full": 60}
_EARLY = 10


@dataclass(frozen=True)
class FedEApart:
    """FedE of the FedR paper with the authors' negatives, a common start, or both."""

    negatives: str  # training.negatives_from
    start: str  # federation.start
    scale: Scale
    seed: int

    @property
    def keys(self) -> dict[str, Key]:
        return {"negatives": self.negatives, "start": self.start, "seed": self.seed}

    @property
    def experiment(self) -> Experiment:
        """Table 2's run; no early end, so that all have as many rounds."""
        rounds = _ROUNDS[self.scale]
        published = FedRFederation("DDB14", "fedr-legacy", 5, "TransE", "FedE", self.scale, self.seed)
        return published.experiment.override(
            [
                f"training.negatives_from={self.negatives}",
                f"federation.start={self.start}",
                f"federation.rounds={rounds}",
                f"federation.patience={rounds}",
            ]
        )


@study(
    [Quantity("measured", low="low", high="high")],
    within=("metric",),
    seeds={"quick": 1, "full": 3},
    notes=(
        "Negatives own: from the client's entities. First: below the number of its entities, by shared "
        "number, whoever has them, as the authors' FedE draws. The authors number entities otherwise and "
        "train rows of entities that the client lacks; here those are no negatives.",
        "Start own: each client's relation rows start from its own secret, as the authors' do from its own "
        "draw. Alike: from one seed, as here before 0.2.0.",
        "The paper prints an MRR of .4572 for this run, after as many rounds as validation asked for.",
        FEDR_NOTES[0],
    ),
)
def fede_apart(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """FedE on DDB14 with five clients (fedr-legacy, TransE): its negatives and its start, each apart.

    Quick: 10 rounds instead of 60, 32 negatives instead of 256, learning rate 0.003 instead of 0.001.
    """
    for seed, (negatives, start) in product(seeds, product(("own", "first"), ("own", "alike"))):
        yield _measured(FedEApart(negatives, start, scale, seed))


def _measured(cell: FedEApart) -> TableCell:
    def measure(cache: StudyCache) -> list[Row]:
        words = "-".join(str(value) for value in cell.keys.values())
        result = kept_run(cache, f"fede-apart-{words}", cell.experiment)
        rows: list[Row] = []
        for name, block in result.summary["utility"]["filters"].items():
            mrr = block["test"]["mrr"]
            low, high = mrr["interval"]
            rows.append(
                {"metric": f"test MRR, {name} filter", "measured": mrr["value"], "low": low, "high": high}
            )
        metrics = result.metrics
        valid = metrics[(metrics["split"] == "valid") & (metrics["metric"] == "mrr")]
        early = valid[(valid["round"] == _EARLY) & (valid["client"].astype(str) == "all")]["value"]
        rows.append({"metric": f"validation MRR, round {_EARLY}", "measured": float(early.iloc[0])})
        return rows

    return TableCell(cell.keys, measure, experiment_hash(cell.experiment))
