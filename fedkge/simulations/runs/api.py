"""The command line as functions, for scripts and notebooks: no console, no event loop, no global state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedkge.attacks import PROTOCOLS, Finding, Protocol
from fedkge.datasets import Audit, KnowledgeGraph, Split
from fedkge.datasets import audit as audit_split
from fedkge.experiment import Experiment
from fedkge.server.progress import Observer
from fedkge.simulations.cli.display import RunDisplay
from fedkge.simulations.experiments.defaults import QUICKSTART, free_folder
from fedkge.simulations.report import write_report
from fedkge.simulations.runs import comparison
from fedkge.simulations.runs import run as runs
from fedkge.simulations.runs.attacking import attack_run, publish
from fedkge.simulations.runs.comparison import StrategyComparison, Watch
from fedkge.simulations.runs.run_folder import RunResult

__all__ = ["attack", "audit", "compare", "open_run", "resume", "run"]

Source = Experiment | Path | str


def run(
    experiment: Source | None = None,
    out: Path | str | None = None,
    *,
    progress: bool = False,
    track: Sequence[str] = (),
) -> RunResult:
    """Run an experiment, or the file of one, or the quickstart; `out` is a new folder."""
    chosen = _experiment(experiment)
    folder = Path(out) if out else free_folder(f"{chosen.name}-{chosen.federation.strategy}")
    with _watch(progress) as watch:
        return runs.run(chosen, folder, _observer(watch, chosen.federation.strategy), track=track)


def resume(folder: Path | str, *, progress: bool = False, track: Sequence[str] = ()) -> RunResult:
    """Go on with a run that was stopped."""
    with _watch(progress) as watch:
        return runs.resume(Path(folder), _observer(watch, str(folder)), track=track)


def compare(
    experiment: Source | None = None,
    strategies: Sequence[str] = ("Local", "FedE", "FedR"),
    out: Path | str | None = None,
    *,
    seeds: int = 1,
    progress: bool = False,
    track: Sequence[str] = (),
) -> StrategyComparison:
    """Run several strategies on the same data."""
    chosen = _experiment(experiment)
    folder = Path(out) if out else free_folder(f"{chosen.name}-comparison")
    with _watch(progress) as watch:
        return comparison.compare(chosen, strategies, folder, seeds, watch, track)


def attack(
    folder: Path | str,
    attacks: Sequence[str] | None = None,
    *,
    protocols: Sequence[Protocol] = PROTOCOLS,
    colluders: Sequence[int] | None = None,
    leak_ratios: Sequence[float] = (),
) -> list[Finding]:
    """Attack what a run recorded, and put the findings into its folder and its report.

    Args:
        folder: of a run with adversary.record on.
        attacks: names of ATTACKS; without them, those of the experiment.
        protocols: "paper", "rigorous" or both.
        colluders: clients that help the server; without them, those of the experiment.
        leak_ratios: shares of its pairs that a colluder hands over; without them, that of the experiment.
    """
    findings = attack_run(Path(folder), attacks or (), protocols, colluders, leak_ratios)
    publish(Path(folder), findings)
    write_report([Path(folder)])
    return findings


def audit(data: KnowledgeGraph | Split) -> Audit:
    """Count, compare and cross-check a graph or a division of one; `leaks` says whether to trust it."""
    return audit_split(data if isinstance(data, Split) else Split.single(data))


def open_run(folder: Path | str) -> RunResult:
    """A run that ended earlier."""
    return runs.result_of(Path(folder))


def _experiment(source: Source | None) -> Experiment:
    return source if isinstance(source, Experiment) else Experiment.load(Path(source or QUICKSTART))


@contextmanager
def _watch(progress: bool) -> Iterator[Watch | None]:
    if not progress:
        yield None
        return
    with RunDisplay() as display:
        yield display.track


def _observer(watch: Watch | None, title: str) -> Observer | None:
    return watch(title) if watch else None
