"""Triples of a wide table whose header calls the columns otherwise: PrimeKG's x_name, relation, y_name."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

from fedkge.datasets.formats.columns import TRIPLE
from fedkge.datasets.formats.container import Member, read_text
from fedkge.datasets.graph import LabelledTriples
from fedkge.errors import DataError

__all__ = ["read_called"]


def read_called(member: Member, words: Mapping[str, str], separator: str) -> LabelledTriples:
    """Three columns of a table, row by row: the rest of it is never held."""
    rows = _rows(member, separator)
    header = [cell.strip() for cell in next(rows, [])]
    places = [_place(member, header, words[name]) for name in TRIPLE]
    kept: dict[str, str] = {}  # a label once, however many rows have it
    columns: tuple[list[str], ...] = ([], [], [])
    for row in rows:
        for column, place in zip(columns, places, strict=True):
            column.append(kept.setdefault(row[place], row[place]))
    heads, relations, tails = columns
    return LabelledTriples(heads, relations, tails)


def _rows(member: Member, separator: str) -> Iterator[list[str]]:
    lines = io.TextIOWrapper(io.BytesIO(member.read()), encoding="utf-8-sig", newline="")
    if separator == ",":
        reader = csv.reader(lines, strict=True)
    else:
        reader = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE, strict=True)
    width = 0
    try:
        for row in reader:
            width = width or len(row)
            if row and len(row) != width:
                where = f"{member.origin}, line {reader.line_num}"
                raise DataError(f"{where}: expected {width} columns, as the header has, found {len(row)}")
            if row:
                yield row
    except csv.Error as error:
        raise DataError(f"{member.origin}, line {reader.line_num}: {error}") from error
    except UnicodeDecodeError:
        read_text(member)  # says in which line
        raise


def _place(member: Member, header: Sequence[str], word: str) -> int:
    if header.count(word) != 1:
        found = f"{header.count(word)} columns" if word in header else "no column"
        listed = ", ".join(header) or "nothing"
        raise DataError(
            f"{member.origin}, line 1: {found} called '{word}'; the header has {listed}; correct "
            "--columns (data.columns in an experiment)"
        )
    return header.index(word)
