"""Triples by id, as OpenKE writes them: `train2id.txt` (head tail relation) beside `entity2id.txt`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.formats.container import Member, read_text
from fedkge.datasets.formats.file_format import GraphFiles
from fedkge.datasets.graph import SPLITS, KnowledgeGraph
from fedkge.errors import DataError

__all__ = ["IdForm"]

_VOCABULARIES = ("entity2id.txt", "relation2id.txt")


class IdForm(GraphFiles):
    """A folder of `*2id.txt` files; the counts in their first lines must be true."""

    names = (*(f"{split}2id.txt" for split in SPLITS), *_VOCABULARIES)

    def read(self, name: str, files: Mapping[str, Member]) -> KnowledgeGraph:
        missing = [file for file in _VOCABULARIES if file not in files]
        if missing:
            raise DataError(
                f"{name}: train2id.txt is there, but {' and '.join(missing)} is not; add it beside"
            )
        arrays = {split: _triples(files[f"{split}2id.txt"]) for split in SPLITS if f"{split}2id.txt" in files}
        entities, relations = (_labels(files[file]) for file in _VOCABULARIES)
        return KnowledgeGraph.from_ids(name, entities, relations, arrays)


def _lines(member: Member) -> list[str]:
    lines = read_text(member).replace("\r\n", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    try:
        count = int(lines[0])
    except (IndexError, ValueError):
        raise DataError(f"{member.origin}, line 1: expected the number of lines that follow") from None
    if count != len(lines) - 1:
        raise DataError(
            f"{member.origin}: line 1 promises {count} lines, {len(lines) - 1} follow; is the file truncated?"
        )
    return lines[1:]


def _triples(member: Member) -> NDArray[np.int64]:
    lines = _lines(member)
    try:
        if any(len(line.split()) != 3 for line in lines):
            raise ValueError
        htr = np.array(" ".join(lines).split(), dtype=np.int64).reshape(-1, 3)
    except (ValueError, OverflowError):
        number = next(number for number, line in enumerate(lines, start=2) if not _is_row(line))
        raise DataError(
            f"{member.origin}, line {number}: expected three numbers: head tail relation"
        ) from None
    return htr[:, [0, 2, 1]]


def _is_row(line: str) -> bool:
    cells = line.split()
    return len(cells) == 3 and all(map(_is_id, cells))


def _is_id(cell: str) -> bool:
    return cell.isdecimal() and len(cell) <= 18  # more digits would not fit into 64 bits


def _labels(member: Member) -> tuple[str, ...]:
    labels: dict[int, str] = {}
    lines = _lines(member)
    for number, line in enumerate(lines, start=2):
        label, _, key = line.rpartition("\t") if "\t" in line else line.rpartition(" ")
        if not key.strip().isdecimal():
            raise DataError(f"{member.origin}, line {number}: expected a label and its id")
        labels[int(key)] = label.strip()
    if sorted(labels) != list(range(len(lines))):
        raise DataError(f"{member.origin}: the ids are not 0 to {len(lines) - 1}, each once")
    if len(set(labels.values())) != len(labels):
        raise DataError(f"{member.origin}: a label stands twice")
    return tuple(labels[key] for key in range(len(labels)))
