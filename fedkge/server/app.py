"""The Flower ServerApp."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedkge.agreement import run_name
from fedkge.errors import DataError, SettingError
from fedkge.experiment import Experiment
from fedkge.server.loop import Federation
from fedkge.server.privacy import check_privacy
from fedkge.server.progress import Observer
from fedkge.server.records import Records
from fedkge.server.summary import experiment_hash, summarise
from fedkge.storage import storage_errors
from fedkge.strategy import STRATEGIES, Strategy, shared_by

__all__ = ["app", "check_strategy", "serve"]

_log = logging.getLogger(__name__)

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """A run under Flower's own runtime: the experiment and the run folder come with the run config."""
    config = context.run_config
    experiment = Experiment.from_json(str(config["experiment"]))
    experiment.check_deployed()
    folder, resume = Path(str(config["folder"])), bool(config.get("resume", False))
    stored = folder / "experiment.toml"
    run = run_name(experiment, config)
    command = f"fedkge flower-config {stored} --folder {folder} --run {run} --resume"
    if resume:
        _check_stored(stored, experiment)
    elif stored.exists():
        raise DataError(f"{folder} holds a run; choose another --folder, or go on with it: {command}")
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        stored.write_text(experiment.to_toml(), encoding="utf-8")
        if roster := str(config.get("roster", "")):
            shutil.copyfile(roster, folder / "roster.txt")
    serve(grid, experiment, folder, resume=resume, run=run, resume_command=command)


def _check_stored(path: Path, experiment: Experiment) -> None:
    """Whether this is the experiment that was begun there, and is not over."""
    if not path.exists():
        raise DataError(f"{path.parent} holds no run to go on with; leave out --resume to begin one")
    if experiment_hash(Experiment.load(path)) != experiment_hash(experiment):
        raise DataError(f"{path.parent} holds a different experiment; resume with its own {path.name}")
    if (path.parent / "summary.json").exists():
        raise DataError(f"the run in {path.parent} is finished: its results are in summary.json")


def check_strategy(experiment: Experiment) -> type[Strategy]:
    """The class that the experiment names; refuse one that the protection does not allow."""
    name = experiment.federation.strategy
    strategy = STRATEGIES[name]
    shared = shared_by(experiment.federation)
    check_privacy(experiment, shared)
    if strategy.needs_uploads and strategy.merge is Strategy.merge:
        raise SettingError(f"federation.strategy: {name} sets needs_uploads, and must override merge")
    if strategy.needs_uploads and shared and experiment.privacy.secure_aggregation:
        raise SettingError(
            f"federation.strategy: {name} cannot work on sums: {strategy.needs_uploads}; set "
            'privacy.secure_aggregation = false and privacy.union = "plain"'
        )
    return strategy


def serve(
    grid: Grid,
    experiment: Experiment,
    folder: Path,
    observer: Observer | None = None,
    resume: bool = False,
    run: str = "",
    resume_command: str | None = None,
    federate: Callable[[Experiment, Records, Observer | None, str], Federation] = Federation,
) -> dict[str, Any]:
    """Run an experiment over a grid and write what comes of it; the content of summary.json is returned."""
    records = Records(folder, resume_command)
    check_strategy(experiment)
    shared = " and ".join(shared_by(experiment.federation)) or "nothing"
    _log.info("%s shares %s", experiment.federation.strategy, shared)
    federation = federate(experiment, records, observer, run)
    outcome = federation.start(grid, experiment.data.clients, resume)
    content = summarise(experiment, outcome, federation.ledger, experiment.engine.workers)
    records.write_json("summary.json", content)
    return content
