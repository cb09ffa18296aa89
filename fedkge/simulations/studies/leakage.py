"""What differential privacy costs a federation and what it stops, over ε; no paper of this field has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedkge.attacks import Finding
from fedkge.experiment import Experiment
from fedkge.server.summary import experiment_hash
from fedkge.simulations.runs.attacking import attack_run, publish
from fedkge.simulations.studies.cells import Row, StudyCache, TableCell
from fedkge.simulations.studies.fedr.reconstruction_study import experiment_of
from fedkge.simulations.studies.kept_runs import kept_run
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = ["largest", "leakage_over_epsilon", "private_experiment", "score", "shares", "worst_of"]

SIGMAS = (None, 0.5, 1.0, 2.0, 8.0)  # None: no differential privacy
_METRICS = ("ERR", "TRR")


@study(
    quantities=[Quantity("measured", low="low", high="high")],
    within=("metric",),
    seeds={"quick": 1, "full": 3},
    notes=(
        "ε is that of the client who spent most. ERR and TRR are what the server and one colluder recover of "
        "the client who loses most, by the published attack; cells.csv has what guessing reaches.",
    ),
)
def leakage_over_epsilon(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """Utility, ε and leakage of FedE by σ, all statements confidential; DDB14, three clients.

    Quick: 8 rounds instead of 300, 32 negatives instead of 256, learning rate 0.003 instead of 0.001.
    """
    for sigma in SIGMAS:
        for seed in seeds:
            yield _measured(sigma, scale, seed)


def _measured(sigma: float | None, scale: Scale, seed: int) -> TableCell:
    experiment = private_experiment(sigma, scale, seed)

    def measure(cache: StudyCache) -> list[Row]:
        result = kept_run(cache, f"leakage-{'off' if sigma is None else sigma}-{seed}", experiment)
        findings = attack_run(result.folder, ["reconstruction"], ["paper"], [0], [1.0])
        publish(result.folder, findings)
        utility, spent = result.summary["utility"]["test"], result.summary["privacy"]["epsilon"]
        return [{"metric": "MRR", **score(utility)}, largest(spent), *worst_of(findings)]

    return TableCell({"sigma": sigma, "seed": seed}, measure, experiment_hash(experiment))


def score(utility: Mapping[str, Any]) -> Row:
    """MRR with its interval, of a split in a summary."""
    mrr = utility["mrr"]
    return {"measured": mrr["value"], "low": mrr["interval"][0], "high": mrr["interval"][1]}


def largest(spent: Mapping[str, float] | None) -> Row:
    """The ε of the client who spent most."""
    return {"metric": "ε", "measured": max(spent.values()) if spent else None}


def private_experiment(sigma: float | None, scale: Scale, seed: int) -> Experiment:
    """The attacked FedE of Table 1, with noise."""
    noise = (
        () if sigma is None else ("privacy.dp.mode=sound", f"privacy.dp.sigma={sigma}", "privacy.dp.clip=0.1")
    )
    return experiment_of("DDB14", "FedE", scale, seed).override(["data.confidential=1.0", *noise])


def worst_of(
    findings: Sequence[Finding], metrics: Sequence[str] = _METRICS, views: Sequence[str] = ("uploads",)
) -> list[Row]:
    """What the server and its colluder find of the client who loses most, and what guessing reaches there."""
    rows: list[Row] = []
    for metric in metrics:
        successes = [
            finding
            for finding in findings
            if finding.metric == metric
            and finding.view in views
            and " + " in finding.adversary
            and finding.value is not None
        ]
        worst = max(successes, key=lambda finding: finding.value or 0.0, default=None)
        if worst is not None:
            rows.append({"metric": metric, **shares(worst)})
    return rows


def shares(finding: Finding) -> Row:
    """A success with its interval, and that of guessing."""
    return {
        "measured": finding.value,
        "low": finding.low,
        "high": finding.high,
        "chance": finding.baseline,
    }
