"""Things that go wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedkge.client.secure import SecureParticipant
from fedkge.exchange import Download, Upload
from fedkge.experiment import Experiment
from fedkge.simulations.runs.engines import RayGrid
from fedkge.simulations.runs.run import RunResult, run


class Crash(BaseException):
    """Stands for a process that ends without a word."""


def crash_in(round: int) -> Callable[[Any], None]:
    def crash(progress: Any) -> None:
        if progress.round == round and progress.loss is not None:
            raise Crash

    return crash


def run_with_dying_workers(experiment: Experiment, folder: Path, ray: Any, rounds: set[int]) -> RunResult:
    """A run on Ray whose first worker is killed after these rounds."""
    grids: list[RayGrid] = []
    build = RayGrid.__init__

    def remember(self: RayGrid, *arguments: Any) -> None:
        build(self, *arguments)
        grids.append(self)

    def kill(progress: Any) -> None:
        if progress.round in rounds and progress.loss is not None:
            ray.kill(grids[0].actors[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RayGrid, "__init__", remember)
        return run(experiment, folder, kill)


def failures(folder: Path) -> list[tuple[Any, ...]]:
    return list(pd.read_csv(folder / "failures.csv").itertuples(index=False, name=None))


def failing(monkeypatch: pytest.MonkeyPatch, verb: str, clients: set[int], rounds: set[int]) -> None:
    """Let clients raise whenever they are asked this in these rounds."""
    answer = getattr(SecureParticipant, verb)

    def sometimes(self: SecureParticipant, download: Download) -> Upload:
        if self.client in clients and download.round in rounds:
            raise RuntimeError("out of coffee")
        return answer(self, download)

    monkeypatch.setattr(SecureParticipant, verb, sometimes)
