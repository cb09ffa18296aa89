"""`fedkge run` and `fedkge compare`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedkge.errors import DataError, SettingError
from fedkge.simulations.cli.display import RunDisplay, human_bytes, print_table
from fedkge.simulations.experiments.completion import complete_setting
from fedkge.simulations.experiments.defaults import QUICKSTART, free_folder
from fedkge.storage import storage_errors

if TYPE_CHECKING:
    from fedkge.experiment import Experiment
    from fedkge.simulations.runs.run_folder import RunResult

__all__ = ["compare_strategies", "run_experiment", "write_flower_config"]

File = Annotated[
    Path | None, typer.Argument(metavar="[EXPERIMENT.toml]", help="Default: the embedded quickstart.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Override: section.key=value. May be repeated.", autocompletion=complete_setting
    ),
]
Track = Annotated[
    list[str] | None, typer.Option(help="Also log to tensorboard, mlflow or wandb. May be repeated.")
]
Engine = Annotated[str | None, typer.Option(help="inline or ray.")]
Address = Annotated[str | None, typer.Option(help="A Ray cluster, such as host:6379 or auto.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]


def run_experiment(
    file: File = None,
    sets: Sets = None,
    out: Annotated[
        Path | None, typer.Option(help="A new folder for the run (default: runs/NAME-STRATEGY-N).")
    ] = None,
    engine: Engine = None,
    ray_address: Address = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    track: Track = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one experiment and write everything about it into a folder."""
    from fedkge.simulations.runs import run as runs  # takes seconds to import

    if resume is not None:
        given = _read(file, sets, engine, ray_address) if file or sets else None
        with RunDisplay(quiet) as display:
            result = runs.resume(resume, display.track(f"resuming {resume}"), given, track or ())
    else:
        experiment = _read(file, sets, engine, ray_address)
        folder = out or free_folder(f"{experiment.name}-{experiment.federation.strategy}")
        title = f"{experiment.federation.strategy} {experiment.model.name}"
        with RunDisplay(quiet) as display, _resumable(f"fedkge run --resume {folder}"):
            result = runs.run(experiment, folder, display.track(title), track=track or ())
    if as_json:
        print(json.dumps(result.summary, indent=2))
        return
    _show_run(result)
    _show_place(result.folder)


def compare_strategies(
    file: File = None,
    strategies: Annotated[str, typer.Option(help="Names, separated by commas.")] = "Local,FedE,FedR",
    target_mrr: Annotated[
        float | None, typer.Option(help="Also report the cost of reaching this MRR.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 1,
    sets: Sets = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A new folder (default: runs/NAME-comparison-N), or one to go on with."),
    ] = None,
    engine: Engine = None,
    ray_address: Address = None,
    track: Track = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run several strategies on the same data and print one table: what each gains and what it costs."""
    from fedkge.simulations.runs.comparison import compare  # takes seconds to import

    overrides = [*(sets or []), *([f"federation.target_mrr={target_mrr}"] if target_mrr is not None else [])]
    experiment = _read(file, overrides, engine, ray_address)
    folder = out or free_folder(f"{experiment.name}-comparison")
    names = [name.strip() for name in strategies.split(",") if name.strip()]
    with RunDisplay(quiet) as display, _resumable(f"the same command and --out {folder}"):
        comparison = compare(experiment, names, folder, seeds, display.track, track or ())
    if as_json:
        print(comparison.frame.to_json(orient="records", indent=2))
        return
    _show_comparison(comparison, experiment)
    _show_place(folder)


def write_flower_config(
    folder: Annotated[Path, typer.Option(help="Where the server is to write the run.")],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("run.toml"),
    roster: Annotated[
        Path | None, typer.Option(help="The clients' public keys, for secure aggregation.")
    ] = None,
    run: Annotated[
        str, typer.Option(help="What all clients call the run (default: after the experiment).")
    ] = "",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run that was begun in the folder.")
    ] = False,
    file: File = None,
    sets: Sets = None,
) -> None:
    """Write the run config with which `flwr run . --run-config FILE` runs an experiment."""
    simulated = ["adversary.attacks=[]"] if file is None else []  # those of the embedded quickstart
    experiment = _read(file, [*simulated, *(sets or [])], None, None)
    experiment.check_deployed()
    if roster is not None:
        _check_roster(roster, experiment.data.clients)
    from fedkge.agreement import run_name  # takes a while to import

    name = run_name(experiment, {"run": run})
    with storage_errors(out.parent):
        lines = [
            f"run = {json.dumps(name)}",
            f"experiment = {json.dumps(experiment.to_json())}",
            f"folder = {json.dumps(str(folder.resolve()))}",
            *([f"roster = {json.dumps(str(roster.resolve()))}"] if roster else []),
            *(["resume = true"] if resume else []),
        ]
        out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"written to {out}; run it with: FLWR_TELEMETRY_ENABLED=0 flwr run . --run-config {out} --stream")


def _check_roster(path: Path, num_clients: int) -> None:
    from fedkge.crypto import Roster  # takes a while to import

    try:
        roster = Roster.from_text(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, SettingError) as error:
        raise DataError(
            f"{path}: no roster ({error}); write one line for each client, as "
            "'fedkge keys new FOLDER' prints it"
        ) from None
    if len(roster) != num_clients:
        raise DataError(
            f"{path}: {len(roster)} public keys for {num_clients} clients; give one line for each, or set "
            f"data.clients = {len(roster)}"
        )


def _read(
    file: Path | None, sets: list[str] | None, engine: str | None, ray_address: str | None
) -> Experiment:
    from fedkge.experiment import Experiment  # pydantic takes a quarter of a second

    overrides = list(sets or [])
    if engine is not None:
        overrides.append(f"engine.name={engine}")
    if ray_address is not None:
        overrides.append(f"engine.ray_address={ray_address}")
    return Experiment.load(file or QUICKSTART).override(overrides)


@contextmanager
def _resumable(how: str) -> Iterator[None]:
    """Whoever stops a run is told how to go on with it."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"stopped; go on with: {how}", file=sys.stderr)
        raise


def _show_run(result: RunResult) -> None:
    from fedkge.simulations.report.run_page import scores_table
    from fedkge.simulations.runs.run_folder import RunFolder

    table = scores_table(RunFolder(result.folder))
    print_table(table)
    if table.note:
        print(table.note)
    summary = result.summary
    cost = summary["communication"]
    print(
        f"{cost['rounds']} rounds (best {summary['utility']['best_round']}), "
        f"{human_bytes(cost['bytes_up'])} up, {human_bytes(cost['bytes_down'])} down; "
        f"{summary['speed']['train_triples_per_s']:,.0f} triples/s per core"
    )
    print(f"result {summary['result_hash'][:16]}")


def _show_place(folder: Path) -> None:
    print(f"written to {folder}")
    print(f"to look at: {folder / 'report.html'}")


def _show_comparison(comparison: Any, experiment: Experiment) -> None:
    table = Table("strategy", "test MRR", "95 % interval", "Hits@10", "rounds", "bytes", "saved", box=None)
    for row in comparison.rows:
        low, high = row.interval
        cost = (human_bytes(row.bytes_total), _share(comparison.reduction(row, "bytes_total")))
        gain = (f"{row.mrr:.4f}", f"{low:.4f}–{high:.4f}", f"{row.hits['hits@10']:.4f}")
        table.add_row(row.strategy, *gain, f"{row.rounds:g}", *cost)
    Console().print(table)
    _show_filters(comparison)
    target = experiment.federation.target_mrr
    if target is not None:
        _show_target(comparison, target)
    settings = experiment.evaluation.as_clients_rank()
    print(f"test MRR: filter own, sides {settings.sides}, candidates {settings.candidates}")
    print("saved: against FedE's bytes, as counted on the wire")


def _show_filters(comparison: Any) -> None:
    """The MRR by each client's own answers beside that by all, each with its lead over the first strategy."""
    first, bases = comparison.rows[0], set()
    names = [name for name in first.filters if all(name in row.filters for row in comparison.rows)]
    columns = (column for name in names for column in (f"MRR, filter {name}", f"− {first.strategy}"))
    table = Table("strategy", *columns, box=None)
    for row in comparison.rows:
        cells = []
        for name in names:
            gain = comparison.gain(row, name)
            bases |= {gain.basis} if gain else set()
            cells += [
                f"{row.filters[name].mrr:.4f}",
                str(gain) if gain else "",
            ]
        table.add_row(row.strategy, *cells)
    Console().print(table)
    if bases:
        over = " or ".join(sorted(bases))
        print(f"filter all: other clients' true answers are left out too; differences ± 95 % over {over}")


def _show_target(comparison: Any, target: float) -> None:
    """What each strategy needed to reach the target."""
    table = Table("strategy", f"rounds to {target:g}", f"bytes to {target:g}", "saved", box=None)
    for row in comparison.rows:
        if row.rounds_to_target is None:
            table.add_row(row.strategy, "never", "", "")
            continue
        cost = (human_bytes(row.bytes_to_target), _share(comparison.reduction(row, "bytes_to_target")))
        table.add_row(row.strategy, f"{row.rounds_to_target:g}", *cost)
    Console().print(table)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"
