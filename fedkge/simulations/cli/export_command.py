"""`fedkge export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedkge.errors import SettingError
from fedkge.simulations.cli.display import StepDisplay

__all__ = ["export_embeddings"]


def export_embeddings(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a finished run.")],
    format_: Annotated[
        str, typer.Option("--format", help="safetensors, npz, tsv, pykeen, or rdf (with predictions).")
    ] = "safetensors",
    client: Annotated[int | None, typer.Option(min=0, help="One client (default: all).")] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder (default: RUN_DIR/export-FORMAT).")] = None,
    base: Annotated[
        str | None, typer.Option(help="rdf: the IRI below which labels that are no IRIs get one.")
    ] = None,
    statements: Annotated[
        str | None,
        typer.Option(
            help="rdf: 'star' (Turtle, << s p o >>; default) or 'reified' (N-Triples, rdf:Statement)."
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(help="rdf: new tails for each head and relation (default: 3; 0: none).")
    ] = None,
    relation: Annotated[
        list[str] | None, typer.Option(help="rdf: predict this relation alone; may be repeated.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")] = False,
) -> None:
    """Write trained embeddings in the format of another tool; as RDF also the best new statements."""
    given = {"base": base, "statements": statements, "top": top, "relations": tuple(relation or ()) or None}
    options = {name: value for name, value in given.items() if value is not None}
    if options and format_ != "rdf":
        raise SettingError("--base, --statements, --top and --relation are for --format rdf; leave them out")
    with StepDisplay("exporting", quiet) as display:
        from fedkge.simulations.trained.export import export  # takes seconds to import
        from fedkge.simulations.trained.rdf import RdfOptions

        rdf = RdfOptions(**options) if format_ == "rdf" else None  # type: ignore[arg-type]
        folder = export(run_dir, format_, client, out, rdf=rdf, watch=display.show)
    print(f"written to {folder}")
