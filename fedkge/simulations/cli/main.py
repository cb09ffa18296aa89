"""The command `fedkge`; one more command is a module beside this one and a line below.

An option of an experiment is a field of fedkge/experiment.py alone: `--set`, its completion and the reference
read the schema.
"""

from __future__ import annotations

import logging
import sys
from io import TextIOWrapper
from typing import Annotated

import click
import typer
from rich.console import Console
from rich.logging import RichHandler

import fedkge
from fedkge.errors import FedkgeError, InputError
from fedkge.simulations.cli import (
    attack_command,
    data_commands,
    export_command,
    init_command,
    keys_command,
    list_command,
    node_command,
    predict_command,
    report_command,
    reproduce_command,
    run_commands,
    tune_command,
)

__all__ = ["app", "main"]

_STOPPED = 130

app = typer.Typer(
    name="fedkge",
    help="Embed knowledge graphs across organisations; measure what each gains, pays and leaks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click suggests already
    rich_markup_mode="rich",
)
app.add_typer(data_commands.app, name="data")
app.add_typer(keys_command.app, name="keys")
app.command("run")(run_commands.run_experiment)
app.command("compare")(run_commands.compare_strategies)
app.command("attack")(attack_command.attack_recorded_run)
app.command("flower-config")(run_commands.write_flower_config)
app.command("node")(node_command.start_node)
app.command("reproduce")(reproduce_command.reproduce_table)
app.command("report")(report_command.report_runs)
app.command("init")(init_command.write_starter)
app.command("predict")(predict_command.predict_answers)
app.command("export")(export_command.export_embeddings)
app.command("tune")(tune_command.tune_experiment)
app.command("list")(list_command.list_names)


def _version(wanted: bool) -> None:
    if wanted:
        print(fedkge.__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    logging.basicConfig(
        level=logging.WARNING,
        format="%(message)s",
        handlers=[RichHandler(logging.WARNING, Console(stderr=True), show_time=False, show_path=False)],
        force=True,
    )


def main() -> None:
    """Run the command line: exit code 0 when done, 2 for bad input, 1 for anything else."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign shows '?'
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        _fail(str(error), code=2)
    except FedkgeError as error:
        _fail(str(error), code=1)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        sys.exit(0)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "fedkge"
        _fail(f"{error.format_message()} See '{where} --help'.", code=2)
    except (KeyboardInterrupt, click.Abort):
        code = _STOPPED
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    if code == _STOPPED:  # typer returns it in place of KeyboardInterrupt
        print("fedkge: stopped; what was already written is complete and readable", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> None:
    print(f"fedkge: {' '.join(message.splitlines())}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
