"""`fedkge tune`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedkge.simulations.cli.display import StepDisplay
from fedkge.simulations.experiments.completion import complete_setting
from fedkge.simulations.experiments.defaults import QUICKSTART

if TYPE_CHECKING:
    from fedkge.simulations.tuning.tuning import Tuning

__all__ = ["tune_experiment"]


def tune_experiment(
    file: Annotated[
        Path | None, typer.Argument(metavar="[EXPERIMENT.toml]", help="Default: the embedded quickstart.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Override: section.key=value. May be repeated.", autocompletion=complete_setting
        ),
    ] = None,
    client: Annotated[int, typer.Option(min=0, help="Who tunes, on its own public triples.")] = 0,
    as_if: Annotated[
        str | None,
        typer.Option(help="Public triples to mark as if confidential, as in data.confidential."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Of each dry run (default: all rounds of the experiment).")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")] = False,
) -> None:
    """Choose options of differential privacy in dry runs on public triples; no confidential one is read."""
    from fedkge.experiment import Experiment  # pydantic takes a quarter of a second
    from fedkge.simulations.tuning.tuning import tune_privacy  # takes seconds to import

    experiment = Experiment.load(file or QUICKSTART).override(sets or [])
    with StepDisplay("dry runs", quiet) as display:
        tuning = tune_privacy(
            experiment, client=client, as_if=as_if, epochs=epochs, seeds=seeds, watch=display.show
        )
    if as_json:
        print(_json(tuning))
        return
    _show(tuning)


def _json(tuning: Tuning) -> str:
    return json.dumps(
        {
            "mode": tuning.mode,
            "predicates": tuning.predicates,
            "best": tuning.best,
            "candidates": json.loads(tuning.table.to_json(orient="records", double_precision=15)),
        },
        indent=2,
    )


def _show(tuning: Tuning) -> None:
    table = Table("rank", "option", "value", "MRR", "gain", "95 % interval", box=None)
    for row in tuning.table.to_dict("records"):
        named = (row["option"], f"{row['value']:g}") if row["option"] else ("as given", "")
        gain = (f"{row['gain']:+.4f}", f"{row['gain_low']:.4f} to {row['gain_high']:.4f}")
        table.add_row(str(row["rank"]), *named, f"{row['mrr']:.4f}", *(gain if row["option"] else ("", "")))
    print(f"marked as if confidential: {len(tuning.predicates)} public predicates; MRR on validation triples")
    Console().print(table)
    clear = tuning.best != tuning.given
    print("for the experiment file:" if clear else "no option gains more than its interval; keep:")
    print(tuning.lines)
