"""NoGE on the larger graphs of FedR's table 2, far shorter than the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedkge.experiment import Experiment
from fedkge.simulations.studies.cells import TableCell
from fedkge.simulations.studies.fedr.fedr_runs import STRATEGIES, FedRFederation
from fedkge.simulations.studies.fedr.fedr_tables import FEDR_NOTES, NOGE_NOTES, SEEDS, printed_scores, scores
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import study

__all__ = ["noge_graphs"]

CLIENTS = 5
EVERY = 2  # rounds between validations, at which clients take the mean
ROUNDS = {"WN18RR": 10, "FB15k-237": 6}  # of five to twenty CPU seconds a client


@dataclass(frozen=True)
class Shortened(FedRFederation):
    """A federation of the paper that ends after a few rounds."""

    rounds: int

    @property
    def experiment(self) -> Experiment:
        return super().experiment.override(
            [f"federation.rounds={self.rounds}", f"federation.evaluate_every={EVERY}"]
        )


@study(
    within=("metric",),
    seeds=SEEDS,
    notes=(
        "Shortened: 10 rounds on WN18RR and 6 on FB15k-237 instead of 300, validated every second round "
        "instead of every fifth. Nothing has converged.",
        *FEDR_NOTES,
        *NOGE_NOTES,
    ),
)
def noge_graphs(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """NoGE of FedR table 2 on WN18RR and FB15k-237 with five clients, shortened.

    Quick: two rounds on WN18RR.
    """
    for dataset, rounds in ROUNDS.items():
        if scale == "quick" and dataset != "WN18RR":
            continue
        for strategy in STRATEGIES:
            for seed in seeds:
                federation = Shortened(
                    dataset,
                    "fedr",
                    CLIENTS,
                    "NoGE",
                    strategy,
                    "full",
                    seed,
                    EVERY if scale == "quick" else rounds,
                )
                yield scores(federation, printed_scores("2", federation, ["mrr"]))
