"""Runs that differ in their seed only, under a label that tells them from the others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedkge.attacks.findings import Finding
from fedkge.errors import DataError
from fedkge.simulations.runs.rows import Row, row_of
from fedkge.simulations.runs.run_folder import RunFolder

__all__ = ["Group", "differences", "grouped"]

_INCIDENTAL = ("seed", "name", "engine.")  # no other setting makes another experiment
_STRATEGY = "federation.strategy"
_MOST_NAMED = 3


@dataclass(frozen=True)
class Group:
    """One setting over all its seeds."""

    label: str
    runs: Sequence[RunFolder]

    @property
    def finished(self) -> list[RunFolder]:
        return [run for run in self.runs if run.is_finished]

    @cached_property
    def row(self) -> Row | None:
        """Gain and cost; none before a run has ended."""
        try:
            return (
                row_of(self.label, [run.summary.content for run in self.finished]) if self.finished else None
            )
        except (KeyError, TypeError) as error:
            names = ", ".join(run.name for run in self.finished)
            raise DataError(
                f"{names}: a summary.json lacks {error}; report on the run alone, or run it again"
            ) from None

    @property
    def findings(self) -> list[Finding]:
        return [finding for run in self.runs for finding in run.findings]


def grouped(runs: Iterable[RunFolder]) -> list[Group]:
    """In the order in which they come."""
    by_settings: dict[str, list[RunFolder]] = {}
    for run in runs:
        by_settings.setdefault(json.dumps(_essence(run), sort_keys=True, default=str), []).append(run)
    members = list(by_settings.values())
    varied = differences([group[0] for group in members])
    return [Group(label, group) for label, group in zip(_labels(members, varied), members, strict=True)]


def differences(runs: Sequence[RunFolder]) -> list[str]:
    """The settings in which runs differ, other than the incidental ones."""
    settings = [_essence(run) for run in runs]
    names = dict.fromkeys(name for options in settings for name in options)
    return [name for name in names if len({str(options.get(name)) for options in settings}) > 1]


def _essence(run: RunFolder) -> dict[str, Any]:
    return {name: value for name, value in run.experiment.flat().items() if not name.startswith(_INCIDENTAL)}


def _labels(groups: Sequence[Sequence[RunFolder]], varied: Sequence[str]) -> list[str]:
    """By strategy where that tells them apart, else by what varies, else by folder."""
    strategies = [group[0].strategy for group in groups]
    if len(set(strategies)) == len(groups):
        return strategies
    named = [name for name in varied if name != _STRATEGY]
    if len(named) > _MOST_NAMED:
        return [group[0].name for group in groups]
    return [
        ", ".join(
            [group[0].strategy, *(f"{name.split('.')[-1]} {_essence(group[0]).get(name)}" for name in named)]
        )
        for group in groups
    ]
