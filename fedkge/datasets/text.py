"""Labelled triples in TSV and CSV files.

A plain file has one triple a line and no header. A header is recognised by its words and then names the
columns; a column `confidential` marks statements. Labels that a plain line cannot carry (tabs, line breaks)
make the writer open the file with the line `# fedkge: escaped`; only below that line are escapes undone, so
that a backslash in anybody else's file stays a backslash.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from fedkge.datasets.container import Member, read_text
from fedkge.datasets.graph import BoolArray, LabelledTriples
from fedkge.errors import DataError, SettingError

__all__ = ["read_labels", "read_triples", "write_labels", "write_triples"]

ESCAPED = "# fedkge: escaped"
COLUMNS = ("head", "relation", "tail")
_SYNONYMS = {
    **dict.fromkeys(("head", "h", "subject", "subj", "s", "source", "from"), "head"),
    **dict.fromkeys(("relation", "r", "rel", "predicate", "pred", "p", "edge"), "relation"),
    **dict.fromkeys(("tail", "t", "object", "obj", "o", "target", "to"), "tail"),
    "confidential": "confidential",
}
_TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {escape: char for char, escape in _ESCAPES.items()}


def read_triples(member: Member, columns: str | None = None, header: bool | None = None) -> LabelledTriples:
    """The triples of one file; `columns` is an order such as 'hrt' or 'htr', `header` None means 'look'."""
    cells, width, escaped, line = _cells(member)
    if not cells:
        return LabelledTriples([], [], [])
    names = _header(cells[:width]) if header is not False or escaped else None
    if header is True and names is None and columns is None:
        names = dict(zip(COLUMNS, range(3), strict=True))  # an unknown header: skip it, keep the usual order
    if names is not None:
        cells, line = cells[width:], line + 1
    if columns is not None:
        names = _order(columns)
    if names is None and width != 3:
        raise DataError(
            f"{member.origin}, line {line}: expected 3 columns (head, relation, tail), found {width}; "
            "remove the others, or name them in a header line such as 'head relation tail confidential'"
        )
    names = names or dict(zip(COLUMNS, range(3), strict=True))
    picked = {name: cells[place::width] for name, place in names.items()}
    if escaped:
        picked = {name: [_unescape(cell) for cell in column] for name, column in picked.items()}
    marks = picked.get("confidential")
    return LabelledTriples(
        picked["head"],
        picked["relation"],
        picked["tail"],
        None if marks is None else _marks(marks, member.origin, line),
    )


def write_triples(path: Path, triples: LabelledTriples) -> None:
    """Write one triple a line, plain where the labels allow it."""
    columns: list[Sequence[str]] = [triples.heads, triples.relations, triples.tails]
    names = list(COLUMNS)
    if triples.confidential is not None:
        columns.append(["1" if mark else "0" for mark in triples.confidential])
        names.append("confidential")
    first = [column[0] for column in columns if column]
    odd = any(_is_odd(cell) for column in columns for cell in column) or _header(first) is not None
    lines = [ESCAPED] if odd else []
    if odd or triples.confidential is not None:
        lines.append("\t".join(names))
    if odd:
        columns = [[_escape(cell) for cell in column] for column in columns]
    lines += ["\t".join(row) for row in zip(*columns, strict=True)]
    _write(path, lines)


def read_labels(member: Member) -> list[str]:
    """A vocabulary: one label a line, in order of id."""
    cells, width, escaped, _ = _cells(member)
    if width != 1 and cells:
        raise DataError(f"{member.origin}: expected one label a line, found {width} columns")
    labels = [_unescape(cell) for cell in cells] if escaped else list(cells)
    if len(set(labels)) != len(labels):
        raise DataError(f"{member.origin}: a label stands twice; each needs an id of its own")
    return labels


def write_labels(path: Path, labels: Sequence[str]) -> None:
    """Write one label a line; escaped throughout, since a lone empty label would be a blank line."""
    _write(path, [ESCAPED, *(_escape(label) or "\\e" for label in labels)])


def _cells(member: Member) -> tuple[list[str], int, bool, int]:
    """All cells in reading order, the row width, whether they are escaped, and the first line's number."""
    text = read_text(member)
    if member.suffix == ".csv":
        return *_csv_cells(text, member.origin), False, 1
    escaped = text.startswith(ESCAPED + "\n")
    first_line = 1
    if escaped:
        text, first_line = text[len(ESCAPED) + 1 :], 2
    text = text.replace("\r\n", "\n")
    lines = [line for line in text.split("\n") if line]
    if not lines:
        return [], 0, escaped, first_line
    width = lines[0].count("\t") + 1
    if any(line.count("\t") != width - 1 for line in lines):
        _refuse_width(text, width, member.origin, first_line)
    return "\t".join(lines).split("\t"), width, escaped, first_line


def _refuse_width(text: str, width: int, origin: str, first_line: int) -> NoReturn:
    for number, line in enumerate(text.split("\n"), start=first_line):
        found = line.count("\t") + 1
        if line and found != width:
            raise DataError(f"{origin}, line {number}: expected {width} tab-separated columns, found {found}")
    raise AssertionError("no line has another width")


def _csv_cells(text: str, origin: str) -> tuple[list[str], int]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    cells: list[str] = []
    width = 0
    try:
        for row in reader:
            width = width or len(row)
            if row and len(row) != width:
                where = f"{origin}, line {reader.line_num}"
                raise DataError(f"{where}: expected {width} comma-separated columns, found {len(row)}")
            cells += row
    except csv.Error as error:
        raise DataError(f"{origin}, line {reader.line_num}: {error}") from error
    return cells, width


def _header(row: Sequence[str]) -> dict[str, int] | None:
    """Column places by name, if the row is a header."""
    places = {
        _SYNONYMS[cell.strip().lower()]: place
        for place, cell in enumerate(row)
        if cell.strip().lower() in _SYNONYMS
    }
    return places if all(name in places for name in COLUMNS) else None


def _order(columns: str) -> dict[str, int]:
    initials = {"h": "head", "r": "relation", "t": "tail"}
    if sorted(columns) != ["h", "r", "t"]:
        raise SettingError(f"columns '{columns}': expected an order of the letters h, r and t, such as 'htr'")
    return {initials[letter]: place for place, letter in enumerate(columns)}


def _marks(cells: Sequence[str], origin: str, first_line: int) -> BoolArray:
    unknown = next((number for number, cell in enumerate(cells) if cell.strip().lower() not in _TRUTH), None)
    if unknown is not None:
        raise DataError(
            f"{origin}, line {first_line + unknown}: '{cells[unknown]}' in column 'confidential'; use 0 or 1"
        )
    return np.array([_TRUTH[cell.strip().lower()] for cell in cells], dtype=bool)


def _is_odd(cell: str) -> bool:
    return "\t" in cell or "\n" in cell or "\r" in cell or cell.startswith(("#", "\ufeff"))


def _escape(cell: str) -> str:
    return re.sub(r"[\\\t\n\r]", lambda match: _ESCAPES[match[0]], cell)


def _unescape(cell: str) -> str:
    return re.sub(r"\\[\\tnre]", lambda match: _UNESCAPES.get(match[0], ""), cell)


def _write(path: Path, lines: Sequence[str]) -> None:
    try:
        path.write_bytes("".join(line + "\n" for line in lines).encode())
    except UnicodeEncodeError as error:
        raise DataError(f"{path}: a label has a character that UTF-8 cannot hold ({error})") from error
