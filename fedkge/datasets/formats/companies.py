"""Listed companies, their directors, concepts and industries, as stock-knowledge-graph writes them (CSV)."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping

from fedkge.datasets.formats.container import Member, read_text
from fedkge.datasets.formats.file_format import GraphFiles
from fedkge.datasets.graph import KnowledgeGraph, LabelledTriples
from fedkge.errors import DataError

__all__ = ["COMPANY", "Companies"]

COMPANY = "company:"
_CODE = 6  # digits; a spreadsheet cuts zeros off at the front
_OFTEN = 11  # titles with a relation of their own
_OTHER = "其他"  # the relation of all other titles
_START, _END, _ID = ":START_ID", ":END_ID", ":ID"

Triple = tuple[str, str, str]


class Companies(GraphFiles):
    """Files of Neo4j's import: who directs a company under which title, its concepts, its industries.

    Persons are the hashed ids that the edges have; a file with their names is not read. Statements that
    repeat others are left out.
    """

    names = ("stock_concept.csv", "stock_industry.csv", "executive_stock.csv", "concept.csv", "industry.csv")

    def read(self, name: str, files: Mapping[str, Member]) -> KnowledgeGraph:
        missing = [file for file in self.names if file not in files]
        if missing:
            raise DataError(
                f"{name}: {self.names[0]} is there, but {' and '.join(missing)} not; add it beside"
            )
        triples = dict.fromkeys(
            [
                *_titles(files["executive_stock.csv"]),
                *_kinds(files["stock_concept.csv"], files["concept.csv"], "concept"),
                *_kinds(files["stock_industry.csv"], files["industry.csv"], "industry"),
            ]
        )
        heads, relations, tails = ([triple[column] for triple in triples] for column in range(3))
        return KnowledgeGraph.from_labels(name, {"train": LabelledTriples(heads, relations, tails)})


def _titles(member: Member) -> list[Triple]:
    """One relation for each frequent title; a person may have several, with / between them."""
    held = [
        (person, title.strip(), company)
        for person, titles, company in _rows(member, _START, "jobs", _END)
        for title in titles.split("/")
        if title.strip()
    ]
    often = {title for title, _ in Counter(title for _, title, _ in held).most_common(_OFTEN)}
    return [
        (f"person:{person}", title if title in often else _OTHER, _company(company))
        for person, title, company in held
    ]


def _kinds(edges: Member, kinds: Member, kind: str) -> Iterator[Triple]:
    """What a company counts to, by name."""
    names = {number: name for number, name in _rows(kinds, _ID, "name")}  # noqa: C416 (rows vary in length)
    for line, (company, number) in enumerate(_rows(edges, _START, _END), start=2):
        if number not in names:
            raise DataError(f"{edges.origin}, line {line}: {kinds.name} has no id '{number}'; add it there")
        yield _company(company), f"{kind}_of", f"{kind}:{names[number]}"


def _company(code: str) -> str:
    return COMPANY + code.zfill(_CODE)


def _rows(member: Member, *columns: str) -> Iterator[tuple[str, ...]]:
    """Cells of some columns by name; of ids also with a kind, as in `:START_ID(Stock)` or `stock_id:ID`."""
    reader = csv.reader(io.StringIO(read_text(member), newline=""), strict=True)
    try:
        header = next(reader, [])
        places = [_place(member, header, column) for column in columns]
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise DataError(
                    f"{member.origin}, line {reader.line_num}: expected {len(header)} comma-separated "
                    f"columns, found {len(row)}"
                )
            yield tuple(row[place].strip() for place in places)
    except csv.Error as error:
        raise DataError(f"{member.origin}, line {reader.line_num}: {error}") from error


def _place(member: Member, header: list[str], column: str) -> int:
    for place, cell in enumerate(header):
        bare = cell.partition("(")[0].strip()
        if bare == column or (column == _ID and bare.endswith(_ID)):
            return place
    raise DataError(
        f"{member.origin}, line 1: no column '{column}' (it has {', '.join(header) or 'none'}); is this a "
        "file of stock-knowledge-graph?"
    )
