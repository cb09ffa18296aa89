"""`fedkge report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report_runs"]


def report_runs(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR…", help="Runs or comparisons, finished or not.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file to write (default: report.html in RUN_DIR).")
    ] = None,
) -> None:
    """Write one HTML file that tells what a run gained, cost and leaked; several runs stand side by side."""
    from fedkge.simulations.report import write_report

    print(f"written to {write_report(folders, out)}")
