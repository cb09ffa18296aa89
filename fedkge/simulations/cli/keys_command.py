"""`fedkge keys`: what a client needs for secure aggregation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Make a client's identity for secure aggregation.")


@app.callback()
def _group() -> None:
    """Without this, typer takes the only command for the whole group."""


@app.command("new")
def new_identity(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The client's own, to be kept secret.")],
) -> None:
    """Write a new identity into FOLDER and print its public key: one line of everybody's roster."""
    from fedkge.client.keyring import create_identity  # takes a while to import

    print(create_identity(folder).hex())
