"""`fedkge init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedkge.errors import SettingError
from fedkge.simulations.cli.data_commands import Columns
from fedkge.simulations.experiments.defaults import QUICKSTART
from fedkge.storage import staged

__all__ = ["write_starter"]


def write_starter(
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FOLDER_OF_TSVS]",
            help="Triples in TSV, CSV or RDF files, or folders client-0, client-1, … or 0, 1, … "
            "(default: an example).",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write (default: NAME.toml).")] = None,
    columns: Columns = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write a commented experiment file for your own data, ready to run."""
    from fedkge.experiment import Experiment
    from fedkge.simulations.experiments.starter import Starter

    starter = None if data is None else Starter.of(data, columns)
    text = QUICKSTART.read_text(encoding="utf-8") if starter is None else starter.to_toml()
    experiment = Experiment.from_toml(text)
    target = out or Path(f"{experiment.name}.toml")
    if target.exists() and not force:
        raise SettingError(f"{target} exists already; choose another --out, or --force to replace it")
    with staged(target) as partial:
        partial.write_text(text, encoding="utf-8")
    if starter is not None:
        print(f"{starter.counts}; {starter.clients} clients, strategy {starter.strategy}")
        if starter.warning:
            print(f"warning: {starter.warning}")
    print(f"written to {target}; run it with: fedkge run {target}")
