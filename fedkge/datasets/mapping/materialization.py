"""Carrying out a mapping: from the rows of tables to distinct triples, predicate by predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fedkge.datasets.mapping.expression import Columns, identifier
from fedkge.datasets.mapping.mapping import Mapping
from fedkge.datasets.mapping.report import PredicateCount, Report, TableCount
from fedkge.datasets.mapping.sample import Draw
from fedkge.datasets.mapping.source import Source
from fedkge.datasets.mapping.term_map import TermMap
from fedkge.datasets.mapping.triples_map import LogicalTable, Parent, Statement, TriplesMap
from fedkge.datasets.mapping.vocabulary import RDF_TYPE
from fedkge.datasets.mapping.workspace import LoadedTable, Need, Workspace
from fedkge.errors import DataError, SettingError

__all__ = ["BASE", "Progress", "Row", "materialize"]

BASE = "http://example.com/base/"  # of relative IRIs, as in the W3C's test cases
_ROWS = 100_000  # handed on at once

Row = tuple[str, str, str]  # subject, predicate, object: see `expression`
Progress = Callable[[int, int, str], None]  # steps done, steps in all, what goes on


@dataclass(frozen=True)
class _Select:
    """The rows of one statement of one triples map, as SQL."""

    subject: str
    predicate: str
    object: str
    tables: str  # after FROM
    present: str  # a condition: no field that is needed is empty
    constant: str | None  # the predicate, where it is the same for every row
    origin: str

    @property
    def query(self) -> str:
        """Its triples."""
        return (
            f"SELECT {self.subject} AS s, {self.predicate} AS p, {self.object} AS o FROM {self.tables} "
            f"WHERE {self.present}"
        )

    @property
    def skipped(self) -> str:
        """A query for the number of its rows with an empty field."""
        return f"SELECT count(*) FROM {self.tables} WHERE NOT ({self.present})"


def materialize(
    mapping: Mapping,
    source: Source,
    report: Report,
    draw: Draw | None = None,
    types: bool = True,
    base: str = BASE,
    progress: Progress | None = None,
) -> Iterator[list[Row]]:
    """The distinct triples, in lists, ordered by predicate as the mapping has them, then by label.

    Args:
        report: what is counted on the way.
        draw: take a part of the records.
        types: whether classes become triples of rdf:type.
        base: what relative IRIs begin with.
    """
    if draw is not None and mapping.sampling is None:
        raise SettingError(
            f"{mapping.name} does not say how its records can be sampled; add fedkge:sample to it, or draw a "
            "part of the tables yourself"
        )
    with Workspace(source, mapping.sampling, draw) as workspace:
        yield from _Run(mapping, workspace, report, types, base, progress or _unseen).batches()


@dataclass
class _Run:
    """One mapping over one source."""

    mapping: Mapping
    workspace: Workspace
    report: Report
    types: bool
    base: str
    progress: Progress

    def batches(self) -> Iterator[list[Row]]:
        loaded = self._load()
        groups = self._groups(loaded)
        self.workspace.connection.execute("CREATE TEMP TABLE entities (number UHUGEINT)")
        for number, (predicate, selects) in enumerate(groups.items()):
            self.progress(number, len(groups), predicate or "triples")
            yield from self._group(selects)
        query = "SELECT count(DISTINCT number) FROM entities"
        self.report.entities = self.workspace.fetch(query)[0][0]
        self.progress(len(groups), len(groups), "done")
        if not self.report.triples:
            raise DataError(
                f"{self.report.source}: {self.mapping.name} makes no triple of it: "
                f"{len(self.report.absent)} of its tables are absent, {len(self.report.empty)} are empty"
            )

    def _load(self) -> dict[LogicalTable, LoadedTable]:
        needs: dict[LogicalTable, list[Need]] = {}
        for triples_map in self.mapping.maps:
            for table, need in _needs(triples_map):
                needs.setdefault(table, []).append(need)
        loaded: dict[LogicalTable, LoadedTable] = {}
        absent: set[str] = set()
        for number, (table, asked) in enumerate(needs.items()):
            self.progress(number, len(needs), f"reading {table.table or 'a query'}")
            place = asked[0].place
            missing = self.workspace.missing(table, place)
            if missing and not self.mapping.absent_tables:
                raise self.workspace.absence(missing[0], place)
            if missing:
                absent.update(missing)
                continue
            loaded[table] = self.workspace.load(table, asked, number)
            made = loaded[table]
            self.report.tables.append(TableCount(made.title, made.rows, is_query=table.table is None))
        if not loaded:
            raise DataError(
                f"{self.workspace.source.name}: none of the tables that {self.mapping.name} maps is there "
                f"({', '.join(sorted(absent))}); is it another database?"
            )
        self.report.tables += [TableCount(name, None) for name in sorted(absent)]
        return loaded

    def _groups(self, loaded: dict[LogicalTable, LoadedTable]) -> dict[str, list[_Select]]:
        """What makes triples of one predicate, together: a triple that two statements make counts once."""
        selects = [
            self._select(triples_map, statement, loaded)
            for triples_map in self.mapping.maps
            if triples_map.table in loaded
            for statement in triples_map.statements
            if not isinstance(statement.object, Parent) or statement.object.table in loaded
        ]
        chosen = [select for select in selects if self.types or select.constant != RDF_TYPE]
        if any(select.constant is None for select in chosen):  # it may make triples of any predicate
            return {"": chosen}
        groups: dict[str, list[_Select]] = {}
        for select in chosen:
            groups.setdefault(select.constant or "", []).append(select)
        return groups

    def _select(
        self, triples_map: TriplesMap, statement: Statement, loaded: dict[LogicalTable, LoadedTable]
    ) -> _Select:
        table = loaded[triples_map.table]
        child = self._columns("child", table)
        tables = f"{table.name} AS child"
        terms = [triples_map.subject, statement.predicate]
        present = [f"child.{identifier(name)}" for term in terms for name in term.columns]
        if isinstance(statement.object, Parent):
            parent, target = statement.object, child
            if parent.joins:
                other = loaded[parent.table]
                target = self._columns("parent", other)
                on = " AND ".join(
                    f"CAST(child.{identifier(join.child)} AS VARCHAR) = "
                    f"CAST(parent.{identifier(join.parent)} AS VARCHAR)"
                    for join in parent.joins
                )
                tables += f" JOIN {other.name} AS parent ON {on}"
            value = target.term(parent.subject)
            present += [f"{target.alias}.{identifier(name)}" for name in parent.subject.columns]
        else:
            value = child.term(statement.object)
            present += [f"child.{identifier(name)}" for name in statement.object.columns]
        return _Select(
            child.term(triples_map.subject),
            child.term(statement.predicate),
            value,
            tables,
            " AND ".join(f"{name} IS NOT NULL" for name in dict.fromkeys(present)) or "true",
            _constant(statement.predicate),
            table.origin,
        )

    def _columns(self, alias: str, table: LoadedTable) -> Columns:
        return Columns(alias, table.types, table.origin, self.base, not self.mapping.unescaped)

    def _group(self, selects: Sequence[_Select]) -> Iterator[list[Row]]:
        """The distinct triples of some statements."""
        run, origin = self.workspace, selects[0].origin
        union = " UNION ALL ".join(select.query for select in selects)
        run.fetch(
            f"CREATE OR REPLACE TEMP TABLE distinct_triples AS SELECT DISTINCT s, p, o FROM ({union})", origin
        )
        for column in ("s", "o"):
            links = f"SELECT md5_number({column}) FROM distinct_triples WHERE o NOT LIKE '\"%'"
            run.fetch(f"INSERT INTO entities SELECT DISTINCT * FROM ({links})", origin)
        self._count(selects)
        yield from run.stream("SELECT s, p, o FROM distinct_triples ORDER BY p, s, o", origin, _ROWS)

    def _count(self, selects: Sequence[_Select]) -> None:
        counts = self.workspace.fetch(
            "SELECT p, count(*), count(*) FILTER (WHERE o LIKE '\"%') FROM distinct_triples "
            "GROUP BY p ORDER BY p"
        )
        for predicate, triples, literals in counts:
            count = self._counter(predicate)
            count.triples += triples
            count.literals += literals
        for select in selects:
            skipped = self.workspace.fetch(select.skipped)[0][0]
            if select.constant or skipped:
                self._counter(select.constant or "(from a column)").skipped += skipped

    def _counter(self, predicate: str) -> PredicateCount:
        marked = predicate in self.mapping.confidential
        fresh = PredicateCount(predicate, confidential=marked)
        return self.report.predicates.setdefault(predicate, fresh)


def _needs(triples_map: TriplesMap) -> Iterator[tuple[LogicalTable, Need]]:
    """The columns that a triples map needs of its own table, and of those that it joins."""
    columns = list(triples_map.subject.columns)
    for statement in triples_map.statements:
        columns += statement.predicate.columns
        if isinstance(statement.object, Parent):
            parent = statement.object
            columns += [join.child for join in parent.joins]
            asked = (*parent.subject.columns, *(join.parent for join in parent.joins))
            yield parent.table, Need(asked, (), parent.place)
        else:
            columns += statement.object.columns
    yield triples_map.table, Need(tuple(columns), triples_map.whole_numbers, triples_map.place)


def _unseen(done: int, total: int, state: str) -> None:
    """Nobody looks."""


def _constant(predicate: TermMap) -> str | None:
    return None if predicate.constant is None else str(getattr(predicate.constant, "value", ""))
