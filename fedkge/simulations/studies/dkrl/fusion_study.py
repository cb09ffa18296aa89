"""What text adds to structure where entities are known: structure alone, text alone, and both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fedkge.simulations.studies.cells import Row, StudyCache, TableCell
from fedkge.simulations.studies.dkrl.described_runs import DescribedRun, Reader, scored
from fedkge.simulations.studies.dkrl.inductive_study import STACK
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = ["FUSED", "fusion"]

FUSED: Mapping[str, Reader] = {
    "structure alone": Reader("TransE"),
    "text alone": Reader("BLP", STACK),
    "both by two weights": Reader("Fusion", STACK),
    "both by a gate": Reader("Fusion", STACK, ("model.options.weights=gate",)),
}


@study(
    [Quantity("measured", low="low", high="high")],
    within=("metric",),
    seeds={"quick": 1, "full": 3},
    notes=(
        "The usual split of WN18RR: every entity is trained. TransE decodes all rows, trained alike: 128 "
        "dimensions, 256 negatives for a batch, Adam at 0.001, at most 40 epochs, the best by validation.",
    ),
)
def fusion(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """What descriptions add to structure, all entities known: structure alone, text alone, both; WN18RR.

    Quick: UMLS instead of WN18RR, 20 epochs, one seed.
    """
    dataset = "UMLS" if scale == "quick" else "WN18RR"
    for row, reader in FUSED.items():
        for seed in seeds:
            yield _measured(row, DescribedRun(dataset, reader, False, scale, seed))


def _measured(row: str, run: DescribedRun) -> TableCell:
    def measure(cache: StudyCache) -> Iterator[Row]:
        return scored(run.result(cache), {})

    return TableCell(run.keys(row), measure, run.settings)
