"""Reports: one HTML file about a run, or about several side by side, to be looked at and sent on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedkge.simulations.report.comparison_page import comparison_page
from fedkge.simulations.report.run_page import run_page
from fedkge.simulations.runs.run_folder import RunFolder, runs_in
from fedkge.storage import staged

__all__ = ["write_report"]

FILE = "report.html"


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Report on the runs in these folders; without a place, into the folder if there is only one."""
    paths = [path for folder in folders for path in runs_in(folder)]
    runs = [RunFolder.read(path) for path in dict.fromkeys(path.resolve() for path in paths)]
    page = run_page(runs[0]) if len(runs) == 1 else comparison_page(runs)
    target = out or (folders[0] / FILE if len(folders) == 1 else Path(FILE))
    with staged(target) as path:
        path.write_text(page.html(), encoding="utf-8")
    return target
