"""Mapped triples as files: N-Triples, or TSV with a mark on each confidential triple."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from fedkge.datasets.formats.text import ESCAPED
from fedkge.datasets.mapping.mapping import Mapping
from fedkge.datasets.mapping.materialization import Row
from fedkge.errors import SettingError
from fedkge.storage import staged

__all__ = ["marks_beside", "write_mapped"]

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def write_mapped(target: Path, mapping: Mapping, batches: Iterable[list[Row]]) -> None:
    """Write triples as they come; the file is whole or absent."""
    writers: dict[str, Callable[[IO[str], Mapping, Iterable[list[Row]]], None]] = {
        ".nt": _write_ntriples,
        ".tsv": _write_tsv,
    }
    write = writers.get(target.suffix.lower())
    if write is None:
        raise SettingError(f"{target}: expected a file ending in .tsv or .nt")
    if mapping.unescaped and target.suffix.lower() == ".nt":
        raise SettingError(
            f"{mapping.name} puts free text into IRIs as it is, which N-Triples cannot hold; write a .tsv"
        )
    with staged(target) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        write(file, mapping, batches)
    beside = marks_beside(target, mapping)
    if beside is not None:
        with staged(beside) as partial:
            partial.write_text(
                "".join(f"{name}\n" for name in sorted(mapping.confidential)), encoding="utf-8"
            )


def marks_beside(target: Path, mapping: Mapping) -> Path | None:
    """The file of confidential predicates that N-Triples need, which carry no marks."""
    if target.suffix.lower() != ".nt" or not mapping.confidential:
        return None
    return target.with_suffix(".confidential.txt")


def _write_ntriples(file: IO[str], mapping: Mapping, batches: Iterable[list[Row]]) -> None:
    del mapping
    for rows in batches:
        file.writelines(f"{_term(s)} <{p}> {_term(o)} .\n" for s, p, o in rows)


def _term(term: str) -> str:
    return term if term.startswith(("_:", '"')) else f"<{term}>"


def _write_tsv(file: IO[str], mapping: Mapping, batches: Iterable[list[Row]]) -> None:
    """Links alone: a literal is no entity."""
    marked = mapping.confidential
    if mapping.unescaped:
        file.write(ESCAPED + "\n")
    file.write("head\trelation\ttail\tconfidential\n" if marked else "head\trelation\ttail\n")
    for rows in batches:
        links = (row for row in rows if not row[2].startswith('"'))
        if mapping.unescaped:
            links = ((_escape(s), p, _escape(o)) for s, p, o in links)
        if marked:
            file.writelines(f"{s}\t{p}\t{o}\t{'1' if p in marked else '0'}\n" for s, p, o in links)
        else:
            file.writelines(f"{s}\t{p}\t{o}\n" for s, p, o in links)


def _escape(label: str) -> str:
    return re.sub(r"[\\\t\n\r]", lambda match: _ESCAPES[match[0]], label)
