"""Triples maps: a logical table, and what each of its rows says."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pyoxigraph

from fedkge.datasets.mapping.document import Document, Node, Place
from fedkge.datasets.mapping.template import column_name
from fedkge.datasets.mapping.term_map import TermMap, only, text_of
from fedkge.datasets.mapping.vocabulary import FEDKGE, RDF_TYPE, RR
from fedkge.errors import DataError

__all__ = ["Join", "LogicalTable", "Parent", "Statement", "TriplesMap", "triples_maps"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogicalTable:
    """A table or view by name, or a SQL query."""

    table: str | None = None
    query: str | None = None

    @property
    def name(self) -> str:
        """What a message calls it."""
        return f"table '{self.table}'" if self.table is not None else "the query"


@dataclass(frozen=True)
class Join:
    """Rows belong together where the child's column equals the parent's."""

    child: str
    parent: str


@dataclass(frozen=True)
class Parent:
    """An object that is the subject of another triples map."""

    subject: TermMap
    table: LogicalTable
    joins: tuple[Join, ...]
    place: Place


@dataclass(frozen=True)
class Statement:
    """What a row says of its subject: one predicate, one object."""

    predicate: TermMap
    object: TermMap | Parent


@dataclass(frozen=True)
class TriplesMap:
    """How the rows of a logical table become triples."""

    place: Place
    table: LogicalTable
    subject: TermMap
    statements: tuple[Statement, ...]
    whole_numbers: tuple[str, ...] = ()  # columns that hold nothing else


def triples_maps(document: Document) -> list[TriplesMap]:
    """The triples maps of a document, in its order."""
    nodes = document.subjects(RR + "logicalTable", RR + "subjectMap", RR + "subject")
    if not nodes:
        raise DataError(
            f"{document.name}: no triples map in it; expected R2RML: subjects with rr:logicalTable, "
            "rr:subjectMap and rr:predicateObjectMap"
        )
    if document.subjects(RR + "graph", RR + "graphMap"):
        _log.warning("%s: named graphs are ignored: all triples go into one graph", document.name)
    return [_Reader(document, node).triples_map() for node in nodes]


@dataclass(frozen=True)
class _Reader:
    """Reads the triples map of a node."""

    document: Document
    node: Node

    @property
    def place(self) -> Place:
        return self.document.place(self.node)

    def triples_map(self) -> TriplesMap:
        table = self._one("logicalTable")
        statements = [
            statement
            for node in self._values(self.node, "predicateObjectMap")
            for statement in self._statements(node)
        ]
        numbers = [text_of(value) for value in self.document.values(table, FEDKGE + "wholeNumber")]
        return TriplesMap(
            self.place,
            self.table(),
            self.subject(),
            (*self._classes(), *statements),
            tuple(map(column_name, numbers)),
        )

    def table(self) -> LogicalTable:
        node = self._one("logicalTable")
        table, query = (only(self.document, node, word, self.place) for word in ("tableName", "sqlQuery"))
        if (table is None) == (query is None):
            raise DataError(
                f"{self.place.of('logicalTable')}: a logical table has either rr:tableName or rr:sqlQuery"
            )
        if table is not None:
            return LogicalTable(table=text_of(table))
        assert query is not None
        return LogicalTable(query=text_of(query).strip().rstrip(";"))

    def subject(self) -> TermMap:
        return self._term(self.node, "subject")[0]

    def _classes(self) -> list[Statement]:
        maps = self._values(self.node, "subjectMap")
        classes = [value for node in maps for value in self._values(node, "class")]
        kind = TermMap.of_constant(pyoxigraph.NamedNode(RDF_TYPE))
        return [Statement(kind, TermMap.of_constant(value)) for value in classes]

    def _statements(self, node: Node) -> list[Statement]:
        predicates = self._term(node, "predicate", several=True)
        maps = self._values(node, "objectMap")
        parents = [value for value in maps if self._values(value, "parentTriplesMap")]
        plain = [value for value in maps if value not in parents]
        objects: list[TermMap | Parent] = [self._parent(value) for value in parents]
        if plain or self._values(node, "object") or not parents:
            objects += self._term(node, "object", several=True, maps=plain)
        return [Statement(predicate, value) for predicate in predicates for value in objects]

    def _term(
        self, node: Node, role: str, several: bool = False, maps: list[Node] | None = None
    ) -> list[TermMap]:
        """The terms of a role: constants by shortcut, and term maps."""
        constants = [TermMap.of_constant(value) for value in self._values(node, role)]
        for constant in constants:
            constant.check(self.place, role)
        nodes = self._values(node, f"{role}Map") if maps is None else maps
        terms = constants + [TermMap.read(self.document, value, self.place, role) for value in nodes]
        if not terms or (len(terms) > 1 and not several):
            raise DataError(
                f"{self.place.of()}: {len(terms)} {role} maps; expected {'one or more' if several else 'one'}"
            )
        return terms

    def _parent(self, node: Node) -> Parent:
        parent = only(self.document, node, "parentTriplesMap", self.place)
        assert parent is not None
        reader = _Reader(self.document, parent)
        if not self._values(parent, "logicalTable"):
            raise DataError(
                f"{self.place.of('parentTriplesMap')}: {parent} is no triples map of {self.document.name}"
            )
        joins = tuple(
            Join(self._column(condition, "child"), self._column(condition, "parent"))
            for condition in self._values(node, "joinCondition")
        )
        if not joins and reader.table() != self.table():
            raise DataError(
                f"{self.place.of('parentTriplesMap')}: two different logical tables are joined by "
                "no rr:joinCondition; give one"
            )
        return Parent(reader.subject(), reader.table(), joins, reader.place)

    def _column(self, condition: Node, word: str) -> str:
        value = only(self.document, condition, word, self.place)
        if value is None:
            raise DataError(f"{self.place.of('joinCondition')}: a join has an rr:child and an rr:parent")
        return column_name(text_of(value))

    def _one(self, word: str) -> Node:
        value = only(self.document, self.node, word, self.place)
        if value is None:
            raise DataError(f"{self.place.of()}: a triples map without rr:{word}")
        return value

    def _values(self, node: Node, word: str) -> list[Node]:
        return self.document.values(node, RR + word)
