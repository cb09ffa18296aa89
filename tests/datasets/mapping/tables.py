"""Small databases and mappings for tests."""

from __future__ import annotations

from pathlib import Path

import duckdb

from fedkge.datasets.mapping import Mapping, Report, materialize, open_source, write_mapped
from fedkge.datasets.mapping.document import Document
from fedkge.datasets.mapping.sample import Draw

PREFIXES = """
@prefix rr: <http://www.w3.org/ns/r2rml#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix fedkge: <urn:fedkge:mapping:> .
@prefix ex: <http://example.com/> .
@base <http://example.com/base/> .
"""


def database(folder: Path, script: str) -> Path:
    """A DuckDB file with what a SQL script makes."""
    path = folder / "tables.duckdb"
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.execute(script)
    return path


def csv_folder(folder: Path, **tables: str) -> Path:
    """A folder of CSV files."""
    place = folder / "tables"
    place.mkdir(exist_ok=True)
    for name, text in tables.items():
        (place / f"{name}.csv").write_text(text, encoding="utf-8")
    return place


def mapping(text: str) -> Mapping:
    """A mapping whose prefixes are known."""
    return Mapping.of(Document.parse(PREFIXES + text, "clinic.ttl"))


def mapped(
    source: Path | str, chosen: Mapping | str, target: Path, draw: Draw | None = None, types: bool = True
) -> tuple[list[str], Report]:
    """The lines that a mapping writes, and its report."""
    chosen = mapping(chosen) if isinstance(chosen, str) else chosen
    tables = open_source(str(source))
    report = Report(chosen.name, tables.name)
    write_mapped(target, chosen, materialize(chosen, tables, report, draw, types))
    return target.read_text(encoding="utf-8").splitlines(), report


def ntriples(folder: Path, script: str, text: str) -> list[str]:
    """What a mapping makes of a SQL script's tables, as sorted N-Triples."""
    return sorted(mapped(database(folder, script), text, folder / "out.nt")[0])
