"""Tidy CSV files of a run, read with a clear word about the line that is damaged."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedkge.errors import DataError

__all__ = ["read_rows", "read_text"]

Kinds = Mapping[str, Callable[[str], Any]]  # column -> how to read its cells

_REMEDY = "restore the file, or run the experiment again"


def read_rows(path: Path, kinds: Kinds, finished: bool = True) -> list[dict[str, Any]]:
    """The rows of a file, none where there is no file; an unfinished run may have been cut within a line."""
    if not path.exists():
        return []
    text = read_text(path)
    if not finished:
        text = text[: text.rfind("\n") + 1]
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        if missing := [name for name in kinds if name not in (reader.fieldnames or ())]:
            raise DataError(f"{path}: no column '{missing[0]}'; expected {', '.join(kinds)}; {_REMEDY}")
        return [_row(row, kinds) for row in reader]
    except (csv.Error, ValueError) as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}; {_REMEDY}") from None


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); make it readable") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8 text; {_REMEDY}") from None


def _row(row: Mapping[str | None, Any], kinds: Kinds) -> dict[str, Any]:
    if None in row or None in row.values():
        raise ValueError("the number of cells is not that of the columns")
    return {name: kind(row[name]) for name, kind in kinds.items()}
