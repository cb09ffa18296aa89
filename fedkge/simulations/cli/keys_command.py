"""`fedkge keys`: what a client needs for secure aggregation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="A client's identity for secure aggregation, and what it may take part in."
)


@app.command("new")
def new_identity(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The client's own, to be kept secret.")],
) -> None:
    """Write a new identity into FOLDER and print its public key: one line of everybody's roster."""
    from fedkge.client.keyring import create_identity  # takes a while to import

    print(create_identity(folder).hex())


@app.command("allow")
def allow(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The client's own, with its identity.")],
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's name.")],
) -> None:
    """Consent to one more run: sums of two runs over the same data can be subtracted from each other."""
    from fedkge.client.keyring import allow_run  # takes a while to import

    allow_run(folder, run)
    print(f"{folder} may take part in {run}")
