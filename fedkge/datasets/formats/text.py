"""Labelled triples in TSV and CSV files.

A plain file has one triple a line and no header. A header is recognised by its words and then names the
columns; a column `confidential` marks statements. Columns that the header or the user does not name, such as
times, are left out. Labels that a plain line cannot carry (tabs, line breaks)
make the writer open the file with the line `# fedkge: escaped`; only below that line are escapes undone, so
that a backslash in anybody else's file stays a backslash.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedkge.datasets.formats.called_columns import read_called
from fedkge.datasets.formats.columns import SKIPPED, TRIPLE, Columns
from fedkge.datasets.formats.container import Member, read_text
from fedkge.datasets.formats.file_format import Layout, TripleFile
from fedkge.datasets.graph import BoolArray, LabelledTriples
from fedkge.errors import DataError

__all__ = ["ESCAPED", "Text", "read_labels", "unescaped", "write_labels", "write_pairs", "write_triples"]

ESCAPED = "# fedkge: escaped"
_PLAIN = "hrt"  # the order of a file without a header, unless the user gives another
_SYNONYMS = {
    "head": ("h", "subject", "subj", "s", "source", "from"),
    "relation": ("r", "rel", "predicate", "pred", "p", "edge", "metaedge"),
    "tail": ("t", "object", "obj", "o", "target", "to"),
    "confidential": (),
}
_TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {escape: char for char, escape in _ESCAPES.items()}


class Text(TripleFile):
    """One triple a line, tab- or comma-separated."""

    suffixes = (".tsv", ".txt", ".csv", ".sif")
    has_columns = True

    def read(self, member: Member, scope: str, layout: Layout) -> LabelledTriples:
        del scope
        columns = Columns.parse(_PLAIN if layout.columns is None else layout.columns)
        if columns.words:
            return read_called(member, columns.words, "," if _has_commas(member) else "\t")
        cells, width, escaped = _cells(member)
        if not cells:
            return LabelledTriples([], [], [])
        named = _header(cells[:width]) if layout.header is not False or escaped else None
        if not columns.fits(width) and (named is None or columns.width != len(TRIPLE)):
            raise DataError(_wrong_width(member, cells[:width], columns))
        places = _places(
            named, columns if named is None or layout.columns is not None else None, member.origin
        )
        skipped = 1 if named is not None or layout.header is True else 0
        picked = {name: cells[skipped * width + position :: width] for name, position in places.items()}
        if escaped:
            picked = {name: [_unescape(cell) for cell in column] for name, column in picked.items()}
        marks = picked.get("confidential")
        return LabelledTriples(
            picked["head"],
            picked["relation"],
            picked["tail"],
            None if marks is None else _marks(marks, member, skipped),
        )


def write_triples(path: Path, triples: LabelledTriples) -> None:
    """Write one triple a line, plain where the labels allow it."""
    columns: list[Sequence[str]] = [triples.heads, triples.relations, triples.tails]
    names = list(TRIPLE)
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
    cells, width, escaped = _cells(member)
    if width != 1 and cells:
        raise DataError(f"{member.origin}: expected one label a line, found {width} columns")
    labels = [_unescape(cell) for cell in cells] if escaped else list(cells)
    if len(set(labels)) != len(labels):
        raise DataError(f"{member.origin}: a label stands twice; each needs an id of its own")
    return labels


def write_labels(path: Path, labels: Sequence[str]) -> None:
    """Write one label a line; escaped throughout, since a lone empty label would be a blank line."""
    _write(path, [ESCAPED, *(_escape(label) or "\\e" for label in labels)])


def write_pairs(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Write a label and what belongs to it on each line, escaped throughout."""
    _write(path, [ESCAPED, *("\t".join(_escape(cell) or "\\e" for cell in pair) for pair in pairs)])


def unescaped(cell: str) -> str:
    """A cell of a file that says it is escaped."""
    return _unescape(cell)


def _cells(member: Member) -> tuple[list[str], int, bool]:
    """All cells in reading order, the row width, and whether they are escaped."""
    if _has_commas(member):
        return *_csv_cells(read_text(member), member.origin), False
    lines, escaped = _lines(member)
    if not lines:
        return [], 0, escaped
    width = lines[0].count("\t") + 1
    for row, line in enumerate(lines):
        if line.count("\t") != width - 1:
            raise DataError(
                f"{member.origin}, line {_line_of(member, row)}: expected {width} tab-separated columns, "
                f"found {line.count(chr(9)) + 1}"
            )
    return "\t".join(lines).split("\t"), width, escaped


def _has_commas(member: Member) -> bool:
    """Whether its separator is a comma; OpenBioLink's files are called .csv and have tabs."""
    if member.suffix != ".csv":
        return False
    first = member.read().lstrip(b"\r\n").partition(b"\n")[0]
    return first.count(b"\t") < 2 or first.count(b",") > first.count(b"\t")


def _lines(member: Member) -> tuple[list[str], bool]:
    """The lines that are not blank, and whether they are escaped."""
    text = read_text(member).replace("\r\n", "\n")
    lines = [line for line in text.split("\n") if line]
    escaped = text.startswith(ESCAPED + "\n")
    return lines[1:] if escaped else lines, escaped


def _line_of(member: Member, row: int) -> int:
    """On which line a row stands; only error messages ask, so the file is simply read again."""
    text = read_text(member)
    if _has_commas(member):
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        return [reader.line_num for cells in reader if cells][row]
    lines = enumerate(text.replace("\r\n", "\n").split("\n"), start=1)
    return [number for number, line in lines if line and (number, line) != (1, ESCAPED)][row]


def _wrong_width(member: Member, row: Sequence[str], columns: Columns) -> str:
    where = f"{member.origin}, line {_line_of(member, 0)}"
    if columns.width != len(TRIPLE):
        return (
            f"{where}: expected {columns.wanted}, as the order given says, found {len(row)}; "
            f"name every column once, with {SKIPPED} for those to leave out"
        )
    mismatch = f"expected 3 columns (head, relation, tail), found {len(row)}"
    if len(row) == 1:
        for mark, name in (("\t", "tabs"), (";", "semicolons"), (",", "commas"), (None, "spaces")):
            if len(row[0].split(mark)) >= 3:
                return f"{where}: {mismatch}, separated by {name}; use tabs, or commas in a file named .csv"
    if len(row) < len(TRIPLE):
        return f"{where}: {mismatch}; a triple needs all three"
    names = [*sorted(columns.places, key=columns.places.__getitem__), *[SKIPPED] * (len(row) - len(TRIPLE))]
    return (
        f"{where}: {mismatch}; name them with --columns {','.join(names)} (data.columns in an experiment), "
        f"where {SKIPPED} leaves a column out, such as a time; or in a header line such as "
        "'head relation tail confidential'"
    )


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


def _header(row: Sequence[str]) -> dict[str, list[int]] | None:
    """Where each name stands, if the row is a header; a name itself counts before its synonyms."""
    words = [cell.strip().lower() for cell in row]
    positions: dict[str, list[int]] = {}
    for name, synonyms in _SYNONYMS.items():
        exact = [position for position, word in enumerate(words) if word == name]
        positions[name] = exact or [position for position, word in enumerate(words) if word in synonyms]
    return positions if all(positions[name] for name in TRIPLE) else None


def _places(named: dict[str, list[int]] | None, columns: Columns | None, origin: str) -> dict[str, int]:
    """The place of each column; what the user says of a column goes before the header."""
    candidates = dict(named or {})
    candidates |= {name: [place] for name, place in columns.places.items()} if columns is not None else {}
    for name, positions in candidates.items():
        if len(positions) > 1:
            raise DataError(f"{origin}: the header names '{name}' twice; rename all but one of these columns")
    places = {name: positions[0] for name, positions in candidates.items() if positions}
    if len(set(places.values())) < len(places):
        raise DataError(
            f"{origin}: the columns given take the one that the header calls 'confidential'; "
            "leave the order out or move that column to the end"
        )
    return places


def _marks(cells: Sequence[str], member: Member, skipped: int) -> BoolArray:
    unknown = next((number for number, cell in enumerate(cells) if cell.strip().lower() not in _TRUTH), None)
    if unknown is not None:
        line = _line_of(member, skipped + unknown)
        raise DataError(
            f"{member.origin}, line {line}: '{cells[unknown]}' in column 'confidential'; use 0 or 1"
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
