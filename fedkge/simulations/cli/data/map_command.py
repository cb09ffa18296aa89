"""`fedkge data map`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedkge.errors import SettingError
from fedkge.simulations.cli.display import StepDisplay

if TYPE_CHECKING:
    from fedkge.datasets.mapping import Report

__all__ = ["map_tables"]

_BASE = "http://example.com/base/"


def map_tables(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TABLES",
            help="A folder of CSV or Parquet files (also below FEDKGE_DATA), an SQLite or DuckDB file, or "
            "postgresql://…",
        ),
    ],
    mapping: Annotated[
        str, typer.Option(help="An R2RML document (.ttl), or a shipped one: eicu, mimic-iii.")
    ],
    out: Annotated[
        Path, typer.Option(help="The file to write: .tsv (links and marks), or .nt (all that is said).")
    ],
    as_published: Annotated[
        bool,
        typer.Option("--as-published", help="A shipped mapping as it was published, its defects included."),
    ] = False,
    sample: Annotated[
        str | None,
        typer.Option(help="A share of the patients (0.006), a month of admissions (2150-01), or 'paper'."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
    types: Annotated[bool, typer.Option("--types/--no-types", help="Triples of rdf:type, or none.")] = True,
    base: Annotated[str, typer.Option(help="What relative IRIs begin with.")] = _BASE,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")] = False,
) -> None:
    """Make a graph of the tables of a database, by a mapping in R2RML."""
    from fedkge.datasets.mapping import (  # takes a while to import
        SHIPPED,
        Draw,
        Report,
        found,
        mapping_of,
        marks_beside,
        materialize,
        open_source,
        write_mapped,
    )

    if out.exists() and not force:
        raise SettingError(f"{out} exists already; choose another --out, or --force to replace it")
    chosen = mapping_of(mapping, as_published)
    if sample == "paper":
        if mapping not in SHIPPED:
            raise SettingError(f"--sample paper: '{mapping}' is no shipped mapping; give a share or a month")
        sample = SHIPPED[mapping].published.sample
    draw = Draw.parse(sample, seed) if sample is not None else None
    tables = open_source(found(source))
    report = Report(chosen.name, tables.name, defects=chosen.defects)
    with StepDisplay("mapping", quiet or as_json) as display:
        batches = materialize(chosen, tables, report, draw, types, base, display.show)
        write_mapped(out, chosen, batches)
    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
        return
    if not quiet:
        _show_predicates(report)
    print(_summary(report))
    if mapping in SHIPPED:
        _show_published(report, mapping)
    for defect in report.defects:
        print(f"as published: {defect}")
    print(f"written to {out}")
    if out.suffix.lower() == ".tsv" and report.literals:
        print(f"{report.literals:,} triples with a literal are left out: a .tsv has links alone")
    beside = marks_beside(out, chosen)
    if beside is not None:
        print(f'confidential predicates: {beside}; data.confidential = "predicates:@{beside}"')


def _show_predicates(report: Report) -> None:
    table = Table("predicate", "triples", "empty fields", "confidential", box=None)
    for count in report.predicates.values():
        mark = "yes" if count.confidential else ""
        table.add_row(escape(count.predicate), f"{count.triples:,}", f"{count.skipped:,}", mark)
    Console().print(table)


def _summary(report: Report) -> str:
    lines = [
        f"{report.rows:,} rows read, {report.triples:,} triples made, "
        f"{report.skipped:,} empty fields skipped",
        f"{report.entities:,} entities, {report.relations} relations, {report.links:,} links; "
        f"{report.confidential:,} of them confidential ({report.confidential / max(report.links, 1):.1%})",
    ]
    if report.absent:
        lines.append(f"tables that are absent: {', '.join(report.absent)}")
    if report.empty:
        lines.append(f"tables without a row: {', '.join(report.empty)}")
    return "\n".join(lines)


def _show_published(report: Report, mapping: str) -> None:
    """Table 1 of the paper beside what was made."""
    from fedkge.datasets.mapping import SHIPPED

    paper = SHIPPED[mapping].published
    table = Table(f"{mapping}", "entities", "relations", "triples", "confidential", box=None)
    table.add_row(
        "DPKGE, Table 1 (train + valid + test; confidential: of train)",
        f"{paper.entities:,}",
        f"{paper.relations}",
        f"{paper.triples:,}",
        f"{paper.confidential / paper.train:.2%}",
    )
    share = report.confidential / max(report.links, 1)
    made = (f"{report.entities:,}", f"{report.relations}", f"{report.links:,}", f"{share:.2%}")
    table.add_row("these tables", *made)
    Console().print(table)
