"""A mapping: triples maps, and what our annotations say of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyoxigraph

from fedkge.datasets.mapping.document import Document
from fedkge.datasets.mapping.sample import Sampling
from fedkge.datasets.mapping.triples_map import TriplesMap, triples_maps
from fedkge.datasets.mapping.vocabulary import FEDKGE

__all__ = ["Mapping"]


@dataclass(frozen=True)
class Mapping:
    """An R2RML document as it was read."""

    name: str
    maps: tuple[TriplesMap, ...]
    confidential: frozenset[str] = frozenset()  # predicates
    absent_tables: bool = False  # a source may lack some
    unescaped: bool = False  # templates make IRIs as they are: they hold in TSV alone
    defects: tuple[str, ...] = ()  # what is wrong with it, in its own words
    sampling: Sampling | None = None

    @classmethod
    def read(cls, path: Path) -> Mapping:
        """Read a Turtle file."""
        return cls.of(Document.read(path))

    @classmethod
    def of(cls, document: Document) -> Mapping:
        """What a document says."""
        marked = (
            subject.value
            for subject in document.subjects(FEDKGE + "confidential")
            if isinstance(subject, pyoxigraph.NamedNode)
            and any(str(value.value) == "true" for value in _literals(document, subject))
        )
        return cls(
            document.name,
            tuple(triples_maps(document)),
            frozenset(marked),
            document.says(FEDKGE + "absentTables"),
            document.says(FEDKGE + "unescaped"),
            tuple(document.literals(FEDKGE + "defect")),
            Sampling.read(document),
        )


def _literals(document: Document, subject: pyoxigraph.NamedNode) -> list[pyoxigraph.Literal]:
    values = document.values(subject, FEDKGE + "confidential")
    return [value for value in values if isinstance(value, pyoxigraph.Literal)]
