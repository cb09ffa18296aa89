"""`fedkge predict`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["predict_answers"]


def predict_answers(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a finished run.")],
    relation: Annotated[str, typer.Option(help="The relation's label.")],
    client: Annotated[int, typer.Option(min=0, help="Whose model answers.")] = 0,
    head: Annotated[str | None, typer.Option(help="The head's label, to ask for tails.")] = None,
    tail: Annotated[str | None, typer.Option(help="The tail's label, to ask for heads.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many answers.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask a client's trained model which entities complete a statement."""
    from fedkge.simulations.trained.prediction import predict  # takes seconds to import

    prediction = predict(run_dir, client, relation, head=head, tail=tail, top=top)
    if as_json:
        print(json.dumps(asdict(prediction), indent=2, ensure_ascii=False))
        return
    table = Table("rank", "tail" if tail is None else "head", "score", "known from", box=None)
    for answer in prediction.answers:
        table.add_row(str(answer.rank), escape(answer.label), f"{answer.score:.4f}", answer.known or "")
    Console().print(table)
