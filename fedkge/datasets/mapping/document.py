"""A mapping as a Turtle document: its statements, and the lines they stand on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

import pyoxigraph

from fedkge.datasets.formats.container import members, read_text
from fedkge.datasets.mapping.vocabulary import FEDKGE, OF_FEDKGE, OF_R2RML, RR
from fedkge.errors import DataError

__all__ = ["Document", "Node", "Place"]

Node = pyoxigraph.NamedNode | pyoxigraph.BlankNode | pyoxigraph.Literal | pyoxigraph.Triple

_BASE = "urn:fedkge:document:/"  # of relative IRIs such as <#Patient>, unless the document has its own
_OURS = {RR: OF_R2RML, FEDKGE: OF_FEDKGE}


@dataclass(frozen=True)
class Document:
    """The statements of a Turtle file."""

    name: str
    text: str
    statements: tuple[tuple[Node, str, Node], ...]

    @classmethod
    def read(cls, path: Path) -> Document:
        """Parse a file; words in R2RML's namespace or ours that neither has are refused."""
        return cls.parse(read_text(members(path)[0]), path.name)

    @classmethod
    def parse(cls, text: str, name: str) -> Document:
        """Parse Turtle."""
        try:
            quads = list(
                pyoxigraph.parse(
                    input=text.encode(), format=pyoxigraph.RdfFormat.TURTLE, base_iri=_BASE + "mapping"
                )
            )
        except SyntaxError as error:
            raise DataError(f"{name}: not valid Turtle: {error.msg}") from error
        document = cls(name, text, tuple((quad.subject, quad.predicate.value, quad.object) for quad in quads))
        document._check_words()
        return document

    def _check_words(self) -> None:
        for _, predicate, _ in self.statements:
            for namespace, known in _OURS.items():
                word = predicate.removeprefix(namespace)
                if word != predicate and word not in known:
                    near = get_close_matches(word, known, 1)
                    hint = f" Did you mean '{near[0]}'?" if near else ""
                    raise DataError(
                        f"{self.line_with(word)}: unknown word '{word}' of <{namespace}>; "
                        f"known: {', '.join(sorted(known))}.{hint}"
                    )

    @cached_property
    def _by_subject(self) -> dict[Node, list[tuple[str, Node]]]:
        index: dict[Node, list[tuple[str, Node]]] = {}
        for subject, predicate, value in self.statements:
            index.setdefault(subject, []).append((predicate, value))
        return index

    def values(self, subject: Node, predicate: str) -> list[Node]:
        """The objects of a subject's property, in order."""
        return [value for name, value in self._by_subject.get(subject, []) if name == predicate]

    def subjects(self, *predicates: str) -> list[Node]:
        """The subjects that have one of the properties, in order of appearance."""
        return list(dict.fromkeys(node for node, name, _ in self.statements if name in predicates))

    def literals(self, predicate: str) -> list[str]:
        """The texts of a property, whoever has it."""
        return [
            value.value
            for _, name, value in self.statements
            if name == predicate and isinstance(value, pyoxigraph.Literal)
        ]

    def says(self, predicate: str) -> bool:
        """Whether a property is true of anything."""
        return "true" in self.literals(predicate)

    def line_with(self, text: str, first: int = 1, last: int | None = None) -> str:
        """The document's name, and the line that has a text, where one has."""
        for number, line in enumerate(self.text.splitlines()[:last], start=1):
            if number >= first and text in line:
                return f"{self.name}, line {number}"
        return self.name

    @cached_property
    def _starts(self) -> list[tuple[int, str]]:
        """The lines on which statements about a named subject begin, and its name without its prefix."""
        found = (
            (number, re.match(r"(?:<([^>]*)>|[\w-]*:([\w.-]+))\s", line + " "))
            for number, line in enumerate(self.text.splitlines(), start=1)
        )
        return [(number, _local(match[1] or match[2] or "")) for number, match in found if match]

    def place(self, subject: Node) -> Place:
        """Where the statements about a subject stand."""
        name = _local(subject.value) if isinstance(subject, pyoxigraph.NamedNode) else ""
        for (number, start), (end, _) in zip(self._starts, [*self._starts[1:], (0, "")], strict=True):
            if name and start == name:
                return Place(self, number, end - 1 if end else None)
        return Place(self)


@dataclass(frozen=True)
class Place:
    """Some lines of a document."""

    document: Document
    first: int | None = None
    last: int | None = None

    def of(self, text: str = "") -> str:
        """The document and the line that has the text, of these lines; else the first of them."""
        name = self.document.name
        start = f"{name}, line {self.first}" if self.first else name
        if not text:
            return start
        line = self.document.line_with(text, self.first or 1, self.last)
        return start if line == name else line


def _local(iri: str) -> str:
    return re.split(r"[#/:]", iri)[-1]
