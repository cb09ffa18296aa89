"""What a mapping made of its tables: rows read, triples made, fields left empty."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["PredicateCount", "Report", "TableCount"]


@dataclass(frozen=True)
class TableCount:
    """A table of the source, or a query over it; `rows` is None where the source lacks it."""

    name: str
    rows: int | None
    is_query: bool = False


@dataclass
class PredicateCount:
    """The distinct triples of a predicate, and the rows that had an empty field in place of one."""

    predicate: str
    triples: int = 0
    skipped: int = 0
    confidential: bool = False
    literals: int = 0  # of the triples, those whose object is a literal


@dataclass
class Report:
    """The counts of a whole mapping."""

    mapping: str
    source: str
    tables: list[TableCount] = field(default_factory=list)
    predicates: dict[str, PredicateCount] = field(default_factory=dict)
    entities: int = 0  # of triples without literals
    defects: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Read, of all tables and queries."""
        return sum(table.rows or 0 for table in self.tables)

    @property
    def triples(self) -> int:
        """Distinct ones."""
        return sum(count.triples for count in self.predicates.values())

    @property
    def literals(self) -> int:
        """Triples whose object is a literal."""
        return sum(count.literals for count in self.predicates.values())

    @property
    def links(self) -> int:
        """Triples between two things: what a model is trained on."""
        return self.triples - self.literals

    @property
    def confidential(self) -> int:
        """Links with a confidential predicate."""
        return sum(count.triples - count.literals for count in self.predicates.values() if count.confidential)

    @property
    def relations(self) -> int:
        """Predicates that link two things."""
        return sum(count.triples > count.literals for count in self.predicates.values())

    @property
    def skipped(self) -> int:
        """Rows that said nothing of a predicate, since a field was empty."""
        return sum(count.skipped for count in self.predicates.values())

    @property
    def absent(self) -> list[str]:
        """The tables that the source lacks."""
        return [table.name for table in self.tables if table.rows is None]

    @property
    def empty(self) -> list[str]:
        """The tables without a row."""
        return [table.name for table in self.tables if table.rows == 0 and not table.is_query]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "mapping": self.mapping,
            "source": self.source,
            "rows": self.rows,
            "triples": self.triples,
            "literals": self.literals,
            "entities": self.entities,
            "relations": self.relations,
            "confidential": self.confidential,
            "skipped": self.skipped,
            "absent": self.absent,
            "empty": self.empty,
            "defects": list(self.defects),
            "tables": [asdict(table) for table in self.tables],
            "predicates": [asdict(count) for count in self.predicates.values()],
        }
