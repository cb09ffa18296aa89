"""`fedkge export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["export_embeddings"]


def export_embeddings(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a finished run.")],
    format_: Annotated[
        str, typer.Option("--format", help="safetensors, npz, tsv or pykeen.")
    ] = "safetensors",
    client: Annotated[int | None, typer.Option(min=0, help="One client (default: all).")] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder (default: RUN_DIR/export-FORMAT).")] = None,
) -> None:
    """Write trained embeddings in the format of another tool."""
    with Console(stderr=True).status("exporting"):
        from fedkge.simulations.trained.export import export  # takes seconds to import

        folder = export(run_dir, format_, client, out)
    print(f"written to {folder}")
