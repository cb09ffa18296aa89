"""The Flower ServerApp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedkge.experiment import Experiment
from fedkge.server.progress import Observer
from fedkge.server.records import Records
from fedkge.server.strategy import build_strategy
from fedkge.server.summary import summarise
from fedkge.storage import storage_errors

__all__ = ["app", "serve"]

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """A run under Flower's own runtime: the experiment and the run folder come with the run config."""
    experiment = Experiment.from_json(str(context.run_config["experiment"]))
    folder = Path(str(context.run_config["folder"]))
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "experiment.toml").write_text(experiment.to_toml(), encoding="utf-8")
    serve(grid, experiment, folder)


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
    if tables:
        records.write_tables("shared", tables, {name: outcome.labels[name] for name in tables})
    records.write_json("summary.json", content)
    return content
