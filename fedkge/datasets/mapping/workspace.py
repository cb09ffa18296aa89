"""The DuckDB database in which a mapping is carried out: its logical tables, each read once."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

from fedkge.datasets.mapping.document import Place
from fedkge.datasets.mapping.expression import MACROS, identifier
from fedkge.datasets.mapping.sample import Draw, Sampling
from fedkge.datasets.mapping.source import Source
from fedkge.datasets.mapping.triples_map import LogicalTable
from fedkge.errors import DataError

__all__ = ["LoadedTable", "Need", "Workspace"]

_MEMORY = "1GB"  # DuckDB spills what is more
_LISTED = 12  # names in a message
_DOT = r"\.(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)"  # outside of quotes


@dataclass(frozen=True)
class Need:
    """What a triples map asks of its logical table."""

    columns: tuple[str, ...]
    whole_numbers: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class LoadedTable:
    """The columns of a logical table that are needed, as a table of the workspace."""

    name: str
    types: Mapping[str, str]  # lower-cased column -> type
    rows: int
    title: str  # what the report calls it
    origin: str  # what messages call it


class Workspace:
    """A database in a folder that vanishes with it."""

    def __init__(self, source: Source, sampling: Sampling | None = None, draw: Draw | None = None) -> None:
        import duckdb  # takes a while

        self.source = source
        self._sampling, self._draw = sampling, draw
        self._folder = Path(tempfile.mkdtemp(prefix="fedkge-map-"))
        self._duckdb = duckdb
        self.connection = duckdb.connect(
            str(self._folder / "workspace.duckdb"),
            config={
                "memory_limit": _MEMORY,
                "temp_directory": str(self._folder / "spill"),
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "preserve_insertion_order": "false",
            },
        )
        self._views: set[str] = set()
        self.tables: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        try:
            for statement in (*MACROS, "SET TimeZone = 'UTC'"):
                self.connection.execute(statement)
            with self.errors(self.source.name):
                self.tables = self.source.open(self.connection)
            if self._draw is not None and self._sampling is not None:
                self._sample(self._draw, self._sampling)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget everything."""
        self.connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def errors(self, origin: str) -> Iterator[None]:
        """Turn what DuckDB says into one clear line."""
        try:
            yield
        except self._duckdb.Error as error:
            raise DataError(_explained(origin, str(error))) from error

    def fetch(self, query: str, origin: str = "") -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self.errors(origin or self.source.name):
            return self.connection.execute(query).fetchall()

    def stream(self, query: str, origin: str, size: int) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a query, `size` at a time."""
        with self.errors(origin):
            result = self.connection.execute(query)
            while rows := result.fetchmany(size):
                yield rows

    def load(self, table: LogicalTable, needs: Sequence[Need], number: int) -> LoadedTable:
        """Read a logical table, and of it what triples maps need."""
        place = needs[0].place
        names = self._names(table, place)
        views = [self._view(name) for name in names]
        if table.table is not None:
            origin, relation = self.tables[names[0]], views[0]
        else:
            origin, relation = self._origin(table, place), f"({table.query})"
        with self.errors(origin):
            described = self.connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
        types = {row[0].lower(): row[1] for row in described}
        needed = _checked(needs, types, origin)
        loaded = identifier(f"logical_{number}")
        columns = ", ".join(map(identifier, sorted(needed))) or "1 AS nothing"
        with self.errors(origin):
            self.connection.execute(f"CREATE TABLE {loaded} AS SELECT {columns} FROM {relation}")
        rows = self.fetch(f"SELECT count(*) FROM {loaded}")[0][0]
        title = names[0] if table.table is not None else f"{' and '.join(names)} ({origin})"
        made = LoadedTable(loaded, {name: types[name] for name in needed}, rows, title, origin)
        self._check_numbers(made, needs)
        return made

    def missing(self, table: LogicalTable, place: Place) -> list[str]:
        """The tables that a logical table reads and the source lacks."""
        return [name for name in self._names(table, place) if name not in self.tables]

    def absence(self, name: str, place: Place) -> DataError:
        """What to tell of a table that is missing."""
        near = get_close_matches(name, self.tables, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        return DataError(
            f"{place.of(name)}: {self.source.name} has no table '{name}'; it has "
            f"{_listed(self.tables)}.{hint}"
        )

    def _names(self, table: LogicalTable, place: Place) -> list[str]:
        """The tables of the source that a logical table reads; a schema before a name is not heard."""
        if table.table is not None:
            return [re.split(_DOT, table.table)[-1].strip('"').lower()]
        assert table.query is not None
        with self.errors(self._origin(table, place)), self._duckdb.connect() as empty:
            return sorted(name.lower() for name in empty.get_table_names(table.query))

    def _origin(self, table: LogicalTable, place: Place) -> str:
        return place.of((table.query or "").splitlines()[0])

    def _view(self, table: str) -> str:
        """A view of a table of the source, or of the rows of it that are drawn."""
        view = identifier(table)
        if table not in self._views:
            with self.errors(self.tables[table]):
                relation = self.source.relation(self.connection, table)
                names = {
                    row[0].lower()
                    for row in self.connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
                }
                where = self._drawn_rows(names)
                self.connection.execute(f"CREATE VIEW {view} AS SELECT * FROM {relation}{where}")
            self._views.add(table)
        return view

    def _drawn_rows(self, columns: set[str]) -> str:
        if self._draw is None or self._sampling is None:
            return ""
        key, also = self._sampling.key.lower(), (self._sampling.also_by or "").lower()
        for column, drawn in ((key, "key"), (also, "also")):
            if column in columns:
                inside = f'SELECT "{drawn}" FROM drawn_records'
                return f" WHERE CAST({identifier(column)} AS VARCHAR) IN ({inside})"
        return ""

    def _sample(self, draw: Draw, sampling: Sampling) -> None:
        table = sampling.table.lower()
        if table not in self.tables:
            raise DataError(
                f"{self.source.name} has no table '{table}', of which a sample would be drawn; it has "
                f"{_listed(self.tables)}"
            )
        with self.errors(self.tables[table]):
            relation = self.source.relation(self.connection, table)
            self.connection.execute(f"CREATE TABLE drawn_records AS {draw.query(sampling, relation)}")
        if self.fetch("SELECT count(*) FROM drawn_records") == [(0,)]:
            what = draw.month or f"a share of {draw.share}"
            raise DataError(f"{self.tables[table]}: no record in a sample of {what}; take a larger one")

    def _check_numbers(self, loaded: LoadedTable, needs: Sequence[Need]) -> None:
        for need in needs:
            for column in need.whole_numbers:
                wrong = rf"NOT regexp_full_match(CAST({identifier(column)} AS VARCHAR), '-?\d+')"
                query = f"SELECT count(*), min({identifier(column)}) FROM {loaded.name} WHERE {wrong}"
                count, value = self.fetch(query, loaded.origin)[0]
                if count:
                    raise DataError(
                        f"{loaded.origin}: column '{column}' has '{value}' where {need.place.of(column)} "
                        f"expects a whole number ({count:,} of {loaded.rows:,} rows); correct the table, "
                        "or the order of its columns"
                    )


def _checked(needs: Sequence[Need], types: Mapping[str, str], origin: str) -> set[str]:
    """The columns that are needed, all of which must be there."""
    for need in needs:
        for column in (*need.columns, *need.whole_numbers):
            if column.lower() in types:
                continue
            near = get_close_matches(column.lower(), types, 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise DataError(
                f"{need.place.of(column)}: column '{column}' is not in {origin}, which has "
                f"{_listed(types)}.{hint}"
            )
    return {column.lower() for need in needs for column in (*need.columns, *need.whole_numbers)}


def _listed(names: Mapping[str, str]) -> str:
    shown = list(names)[:_LISTED]
    more = len(names) - len(shown)
    return (", ".join(shown) or "none") + (f" and {more} more" if more else "")


def _explained(origin: str, message: str) -> str:
    """DuckDB's message, without its drawings and advice for its own options."""
    line = re.search(r"on Line: (\d+)", message)
    where = f"{origin}, line {line[1]}" if line else origin
    if "not utf-8" in message.lower() or "invalid unicode" in message.lower():
        return f"{where}: not UTF-8; convert the file, such as with iconv -f latin1 -t utf-8"
    if "CSV Error" in message:
        reason = next(
            (
                text
                for text in message.splitlines()[1:]
                if text.strip() and not text.startswith(("Original Line", "Possible", "CSV Error"))
            ),
            "not a CSV file",
        )
        return f"{where}: {reason.strip()}"
    first = message.strip().splitlines()[0]
    reason = re.sub(r"^[A-Z][\w ]*Error: ", "", first)
    return reason if reason.startswith(origin) else f"{where}: {reason}"
