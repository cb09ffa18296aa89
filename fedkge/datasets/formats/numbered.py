"""Rows of ids beside their labels, as graphs over time come: `train.txt` with `entity2id.txt`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.formats.container import Member, read_text
from fedkge.datasets.formats.file_format import GraphFiles
from fedkge.datasets.graph import SPLITS, KnowledgeGraph
from fedkge.errors import DataError

__all__ = ["Numbered"]

_ENTITIES, _RELATIONS = "entity2id.txt", "relation2id.txt"
_DIGITS = 18  # more would not fit into 64 bits


class Numbered(GraphFiles):
    """`train.txt`, `valid.txt`, `test.txt` with subject, relation, object and perhaps more, all by id.

    Vocabularies have a label, a tab and its id on each line, and perhaps more (FinDKG: a kind). Times and
    what else follows the triple are left out. Files of labels beside such vocabularies are none of these.
    """

    names = (_ENTITIES, _RELATIONS, *(f"{split}.txt" for split in SPLITS))

    def recognises(self, files: Mapping[str, Member]) -> bool:
        if not {_ENTITIES, _RELATIONS, "train.txt"} <= files.keys():
            return False
        first = next(iter(_lines(files["train.txt"])), (0, ""))[1].split()
        labels = {line.partition("\t")[0] for _, line in _lines(files[_ENTITIES])}
        return len(first) >= 3 and all(map(_is_id, first[:3])) and first[0] not in labels

    def read(self, name: str, files: Mapping[str, Member]) -> KnowledgeGraph:
        entities, relations = (_labels(files[file]) for file in (_ENTITIES, _RELATIONS))
        arrays = {
            split: _triples(files[f"{split}.txt"], len(entities), len(relations))
            for split in SPLITS
            if f"{split}.txt" in files
        }
        return KnowledgeGraph.from_ids(name, entities, relations, arrays)


def _lines(member: Member) -> list[tuple[int, str]]:
    """The lines that are not blank, with their numbers."""
    lines = read_text(member).replace("\r\n", "\n").split("\n")
    return [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _labels(member: Member) -> tuple[str, ...]:
    labels: dict[int, str] = {}
    lines = _lines(member)
    if lines and _is_id(lines[0][1].strip()):  # OpenKE counts the lines first
        lines = lines[1:]
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) < 2 or not _is_id(cells[1].strip()):
            raise DataError(f"{member.origin}, line {number}: expected a label, a tab and its id")
        if labels.setdefault(int(cells[1]), cells[0].strip()) != cells[0].strip():
            raise DataError(f"{member.origin}, line {number}: id {cells[1]} stands above with another label")
    if sorted(labels) != list(range(len(labels))):
        raise DataError(f"{member.origin}: the ids are not 0 to {len(labels) - 1}; number them without gaps")
    if len(set(labels.values())) != len(labels):
        raise DataError(f"{member.origin}: a label stands twice; rename one, or give both rows one id")
    return tuple(labels[key] for key in range(len(labels)))


def _triples(member: Member, entities: int, relations: int) -> NDArray[np.int64]:
    rows = []
    for number, line in _lines(member):
        cells = line.split()[:3]
        if len(cells) < 3 or not all(map(_is_id, cells)):
            raise DataError(f"{member.origin}, line {number}: expected three ids: subject, relation, object")
        head, relation, tail = map(int, cells)
        if max(head, tail) >= entities or relation >= relations:
            raise DataError(
                f"{member.origin}, line {number}: an id beyond {_ENTITIES} ({entities} labels) or "
                f"{_RELATIONS} ({relations} labels); do these files belong together?"
            )
        rows.append((head, relation, tail))
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _is_id(cell: str) -> bool:
    return cell.isascii() and cell.isdecimal() and len(cell) <= _DIGITS
