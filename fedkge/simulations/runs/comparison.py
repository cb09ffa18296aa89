"""Several strategies on the same split and seeds, side by side: what each gains and what it costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedkge.experiment import Experiment
from fedkge.server.progress import Observer
from fedkge.simulations.report import write_report
from fedkge.simulations.runs.engines import one_ray
from fedkge.simulations.runs.layout import divide
from fedkge.simulations.runs.rows import Row, row_of, saved
from fedkge.simulations.runs.run import run_or_resume
from fedkge.simulations.runs.run_folder import RunFolder, RunResult
from fedkge.simulations.scoring.differences import Difference, difference
from fedkge.storage import storage_errors
from fedkge.strategy import STRATEGIES

__all__ = ["StrategyComparison", "compare"]

Watch = Callable[[str], Observer]  # a strategy and seed, to whatever shows its run


@dataclass(frozen=True)
class StrategyComparison:
    """The rows, and the runs behind them."""

    rows: tuple[Row, ...]
    runs: dict[str, tuple[RunResult, ...]]
    folder: Path

    def reduction(self, row: Row, column: str) -> float | None:
        """The share of FedE's bytes that a strategy saves."""
        return saved(self.rows, row, column)

    def gain(self, row: Row, filter: str) -> Difference | None:
        """How much better than the first strategy it ranks under a filter; None of the first itself."""
        first, own = self.rows[0].strategy, row.strategy
        if own == first:
            return None
        folders = {name: [RunFolder(result.folder) for result in self.runs[name]] for name in (first, own)}
        return difference(folders[first], folders[own], filter)

    @property
    def frame(self) -> pd.DataFrame:
        return pd.DataFrame([self._record(row) for row in self.rows])

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """All runs' metrics by round, with strategy and seed."""
        return self._joined(lambda result: result.metrics)

    @cached_property
    def messages(self) -> pd.DataFrame:
        """All runs' messages by round, with strategy and seed."""
        return self._joined(lambda result: result.messages)

    def _repr_html_(self) -> str:
        html: str = self.frame.to_html(index=False)
        return html

    def _joined(self, part: Callable[[RunResult], pd.DataFrame]) -> pd.DataFrame:
        frames = [
            part(result).assign(strategy=name, seed=RunFolder(result.folder).experiment.at("seed"))
            for name, results in self.runs.items()
            for result in results
        ]
        return pd.concat(frames, ignore_index=True)

    def _record(self, row: Row) -> dict[str, Any]:
        return {
            "strategy": row.strategy,
            "mrr": row.mrr,
            "mrr_low": row.interval[0],
            "mrr_high": row.interval[1],
            **row.hits,
            "rounds": row.rounds,
            "rounds_to_target": row.rounds_to_target,
            "bytes_to_target": row.bytes_to_target,
            "bytes_total": row.bytes_total,
            "saved_to_target": self.reduction(row, "bytes_to_target"),
            "saved_total": self.reduction(row, "bytes_total"),
            "seconds": row.seconds,
            **self._by_filter(row),
        }

    def _by_filter(self, row: Row) -> dict[str, float | None]:
        """The MRR under each filter, and by how much it exceeds the first strategy's."""
        columns: dict[str, float | None] = {}
        for name, score in row.filters.items():
            gain = self.gain(row, name)
            columns |= dict(zip(_names("mrr", name), (score.mrr, *score.interval), strict=True))
            known = (gain.value, *gain.interval) if gain else (None, None, None)
            columns |= dict(zip(_names("gain", name), known, strict=True))
        return columns


def _names(what: str, filter: str) -> tuple[str, str, str]:
    return f"{what}_{filter}", f"{what}_{filter}_low", f"{what}_{filter}_high"


def compare(
    experiment: Experiment,
    strategies: Sequence[str],
    folder: Path,
    seeds: int = 1,
    watch: Watch | None = None,
    track: Sequence[str] = (),
) -> StrategyComparison:
    """Run each strategy once per seed; the seed changes the split too, and all strategies share it.

    Runs that are in the folder already are gone on with.
    """
    for name in strategies:
        STRATEGIES[name]
    runs: dict[str, list[RunResult]] = {name: [] for name in strategies}
    with one_ray(experiment.engine):
        for seed in range(experiment.seed, experiment.seed + seeds):
            seeded = experiment.model_copy(update={"seed": seed})
            split = divide(seeded)
            for name in strategies:
                federation = experiment.federation.model_copy(update={"strategy": name})
                one = seeded.model_copy(update={"federation": federation})
                observer = watch(f"{name}, seed {seed}") if watch else None
                runs[name].append(run_or_resume(one, folder / f"{name}-seed{seed}", observer, split, track))
    comparison = StrategyComparison(
        tuple(row_of(name, [result.summary for result in results]) for name, results in runs.items()),
        {name: tuple(results) for name, results in runs.items()},
        folder,
    )
    with storage_errors(folder):
        comparison.frame.to_csv(folder / "comparison.csv", index=False)
        (folder / "comparison.json").write_text(
            json.dumps([comparison._record(row) for row in comparison.rows], indent=2) + "\n",
            encoding="utf-8",
        )
    write_report([folder])
    return comparison
