"""`fedkge reproduce`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedkge.errors import InputError
from fedkge.simulations.cli.display import CellDisplay

if TYPE_CHECKING:
    from fedkge.simulations.studies.measuring import Order
    from fedkge.simulations.studies.reproduction import Reproduction

__all__ = ["reproduce_table"]

_TEXT_COLUMNS = 200  # where there is no terminal


def reproduce_table(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="See --list.")] = None,
    scale: Annotated[str, typer.Option(help="quick (minutes) or full (the paper's settings).")] = "quick",
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds (default: the recipe's).")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Some cells: dataset=DDB14,clients=5. Two values of a key: both. May be repeated."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(help="Finished cells are kept here and used again; the table goes to OUT/NAME-SCALE."),
    ] = Path("runs/reproduce"),
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Measure cells of older code again; each stays until then.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the recipes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")] = False,
) -> None:
    """Measure a published table again, and print it beside the published numbers."""
    if listed:
        _list(as_json)
        return
    if name is None:
        raise InputError("give the name of a recipe; see: fedkge reproduce --list")
    from fedkge.simulations.studies.measuring import Order  # takes seconds to import
    from fedkge.simulations.studies.scale import scale_named

    order = Order(name, out, scale_named(scale), seeds, tuple(only or ()), refresh)
    order.wanted  # noqa: B018 - a mistake in what is asked for comes before the bars
    try:
        with CellDisplay(quiet) as display:
            reproduction = order.fill(display.show)
    except KeyboardInterrupt:
        _stopped(order)
        raise
    if as_json:
        print(_json(reproduction))
        return
    _show(reproduction)
    print(f"written to {order.output}: cells.csv, table.md")
    print(f"to look at: {order.output / 'report.html'}")


def _list(as_json: bool) -> None:
    from fedkge.simulations.studies import RECIPES  # takes seconds to import

    if as_json:
        print(json.dumps({name: recipe.about for name, recipe in RECIPES.items()}, indent=2))
        return
    width = max(map(len, RECIPES))
    for name, recipe in RECIPES.items():
        print(f"{name:<{width}}  {recipe.about}")


def _json(reproduction: Reproduction) -> str:
    return json.dumps(
        {
            "recipe": reproduction.name,
            "scale": reproduction.scale,
            "finished": reproduction.finished,
            "total": reproduction.total,
            "code": reproduction.code,
            "older": len(reproduction.older),
            "origins": reproduction.origins,
            "notices": reproduction.notices,
            "notes": reproduction.notes,
            "lines": json.loads(reproduction.lines.to_json(orient="records", double_precision=15)),
        },
        indent=2,
    )


def _show(reproduction: Reproduction) -> None:
    table = Table(*reproduction.header, box=None)
    for row in reproduction.texts():
        table.add_row(*row)
    print(reproduction.recipe.about)
    for notice in filter(None, (*reproduction.notices, reproduction.common)):
        print(notice)
    Console(width=None if Console().is_terminal else _TEXT_COLUMNS).print(table)
    for note in filter(None, reproduction.notes):
        print(f"note: {note}")


def _stopped(order: Order) -> None:
    """Whoever stops is told what is kept and how to go on."""
    reproduction = order.reproduction()
    print(
        f"stopped; {reproduction.finished} of {reproduction.total} cells are finished and kept",
        file=sys.stderr,
    )
    print(f"go on with: {order.command}", file=sys.stderr)
