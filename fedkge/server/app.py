"""The Flower ServerApp."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedkge.errors import UnknownNameError
from fedkge.experiment import Experiment
from fedkge.server.privacy import check_privacy
from fedkge.server.progress import Observer
from fedkge.server.records import Records
from fedkge.server.secure import SecureFederation
from fedkge.server.strategy import STRATEGIES, Federation
from fedkge.server.summary import summarise
from fedkge.storage import storage_errors

__all__ = ["app", "build_strategy", "serve"]

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """A run under Flower's own runtime: the experiment and the run folder come with the run config."""
    experiment = Experiment.from_json(str(context.run_config["experiment"]))
    folder = Path(str(context.run_config["folder"]))
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "experiment.toml").write_text(experiment.to_toml(), encoding="utf-8")
        if roster := str(context.run_config.get("roster", "")):
            shutil.copyfile(roster, folder / "roster.txt")
    serve(grid, experiment, folder)


def build_strategy(experiment: Experiment, records: Records, observer: Observer | None = None) -> Federation:
    """The strategy that the experiment names, over sums if it shares anything and is to be protected."""
    name = experiment.federation.strategy
    if name not in STRATEGIES:
        raise UnknownNameError("strategy", name, STRATEGIES)
    shared = STRATEGIES[name].shared
    check_privacy(experiment, shared)
    if shared and experiment.privacy.secure_aggregation:
        return SecureFederation(experiment, records, observer, shared)
    return STRATEGIES[name](experiment, records, observer)


def serve(
    grid: Grid, experiment: Experiment, folder: Path, observer: Observer | None = None, resume: bool = False
) -> dict[str, Any]:
    """Run an experiment over a grid and write what comes of it; the content of summary.json is returned."""
    records = Records(folder)
    strategy = build_strategy(experiment, records, observer)
    strategy.summary()
    outcome = strategy.start(grid, experiment.data.clients, resume)
    content = summarise(experiment, outcome, strategy.ledger, experiment.engine.workers)
    tables = {name: table.rows for name, table in outcome.tables.items()}
    if outcome.labels:
        records.write_tables("shared", tables, {name: outcome.labels[name] for name in tables})
    records.write_json("summary.json", content)
    return content
