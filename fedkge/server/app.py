"""The Flower ServerApp."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import FunctionType
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedkge.errors import SettingError, UnknownNameError
from fedkge.experiment import Experiment
from fedkge.server.privacy import check_privacy
from fedkge.server.progress import Observer
from fedkge.server.records import Records
from fedkge.server.secure import SecureFederation
from fedkge.server.strategy import STRATEGIES, Federation
from fedkge.server.summary import summarise
from fedkge.storage import storage_errors

__all__ = ["app", "build_strategy", "check_strategy", "serve"]

_PARTS = (FunctionType, property, staticmethod, classmethod)

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
    strategy = check_strategy(experiment)
    if strategy.shared and experiment.privacy.secure_aggregation:
        return SecureFederation(experiment, records, observer, strategy.shared)
    return strategy(experiment, records, observer)


def check_strategy(experiment: Experiment) -> type[Federation]:
    """The class that the experiment names; refuse one that this protection would silently pass over."""
    name = experiment.federation.strategy
    if name not in STRATEGIES:
        raise UnknownNameError("strategy", name, STRATEGIES)
    strategy = STRATEGIES[name]
    check_privacy(experiment, strategy.shared)
    own = _own_parts(strategy)
    if own and strategy.shared and experiment.privacy.secure_aggregation:
        raise SettingError(
            f"federation.strategy: {name} has its own {', '.join(own)}, which cannot act on sums; set "
            'privacy.secure_aggregation = false and privacy.union = "plain"'
        )
    return strategy


def _own_parts(strategy: type[Federation]) -> list[str]:
    """What a strategy does in another way than all; helpers of its own do nothing by themselves."""
    classes = strategy.__mro__[: strategy.__mro__.index(Federation)]
    own = {name for each in classes for name, part in vars(each).items() if isinstance(part, _PARTS)}
    return sorted(name for name in own if hasattr(Federation, name))


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
