"""Where tables are: a folder of CSV files, an SQLite or DuckDB file, a PostgreSQL server."""

from __future__ import annotations

import csv
import gzip
import re
import sqlite3
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import urlsplit

from fedkge.datasets.mapping.expression import identifier, text
from fedkge.errors import DataError

if TYPE_CHECKING:
    import duckdb

__all__ = ["Source", "open_source"]

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_ROWS = 50_000  # copied from SQLite at once
_CHUNK = 1 << 20  # bytes
_SCHEMES = ("postgres", "postgresql")
_LONGEST_LINE = 1 << 24  # of a CSV file: a note of a doctor may be long


class Source(ABC):
    """Tables by name, which is lower-case."""

    name: str

    @abstractmethod
    def open(self, connection: duckdb.DuckDBPyConnection) -> Mapping[str, str]:
        """The names of all tables, and of each what messages call it."""

    @abstractmethod
    def relation(self, connection: duckdb.DuckDBPyConnection, table: str) -> str:
        """SQL for the rows of a table, to stand after FROM."""


def open_source(where: str) -> Source:
    """The source that a path or URL names."""
    if where.partition("://")[0] in _SCHEMES:
        return Postgres(where)
    path = Path(where)
    if path.is_dir():
        return Folder(path)
    if not path.is_file():
        raise DataError(
            f"{where}: no such folder or file, nor below FEDKGE_DATA; give a folder of CSV files, an SQLite "
            "or DuckDB file, or a URL such as postgresql://user@host/database (the demos of eICU and "
            "MIMIC-III are downloads: docs/medical.md)"
        )
    with path.open("rb") as file:
        start = file.read(16)
    if start.startswith(b"SQLite format 3"):
        return Sqlite(path)
    if start[8:12] == b"DUCK":
        return Attached(path)
    raise DataError(
        f"{where}: neither an SQLite nor a DuckDB file; give one of these, or the folder of the CSV files"
    )


@dataclass
class Folder(Source):
    """CSV (also .gz), TSV and Parquet files: a table is called as its file, an empty field is NULL."""

    path: Path

    def __post_init__(self) -> None:
        self.name = str(self.path)
        self._files: dict[str, Path] = {}

    def open(self, connection: duckdb.DuckDBPyConnection) -> Mapping[str, str]:
        del connection
        for file in sorted(self.path.iterdir()):
            stem, ending = _parts(file)
            if ending not in (*_SEPARATORS, ".parquet") or not file.is_file():
                continue
            if stem in self._files:
                raise DataError(f"{self._files[stem]} and {file.name} are both table '{stem}'; remove one")
            self._files[stem] = file
        return {table: str(file) for table, file in self._files.items()}

    def relation(self, connection: duckdb.DuckDBPyConnection, table: str) -> str:
        del connection
        file = self._files[table]
        ending = _parts(file)[1]
        if ending == ".parquet":
            return f"read_parquet({text(str(file))})"
        columns = ", ".join(f"{text(name)}: 'VARCHAR'" for name in _header(file, _SEPARATORS[ending]))
        return (
            f"read_csv({text(str(file))}, columns={{{columns}}}, auto_detect=false, header=true, nullstr='', "
            f"delim={text(_SEPARATORS[ending])}, quote='\"', escape='\"', max_line_size={_LONGEST_LINE})"
        )


@dataclass
class Sqlite(Source):
    """An SQLite file; a table is copied when it is first read."""

    path: Path

    def __post_init__(self) -> None:
        self.name = str(self.path)
        self._copied: set[str] = set()

    def open(self, connection: duckdb.DuckDBPyConnection) -> Mapping[str, str]:
        del connection
        with self._reading() as file:
            rows = file.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        return {row[0].lower(): f"{self.path}, table {row[0]}" for row in rows}

    def _reading(self) -> closing[sqlite3.Connection]:
        return closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True))

    def relation(self, connection: duckdb.DuckDBPyConnection, table: str) -> str:
        copy = identifier(f"sqlite_{table}")
        if table in self._copied:
            return copy
        try:
            with self._reading() as file:
                described = file.execute(f"SELECT * FROM pragma_table_info({text(table)})").fetchall()
                types = {row[1]: _sqlite_type(row[2]) for row in described}
                connection.execute(
                    f"CREATE TABLE {copy} ("
                    + ", ".join(f"{identifier(name)} {kind}" for name, kind in types.items())
                    + ")"
                )
                rows = iter(file.execute(f"SELECT * FROM {identifier(table)}"))
                while chunk := list(islice(rows, _ROWS)):
                    _insert(connection, copy, types, chunk)
        except sqlite3.Error as error:
            raise DataError(f"{self.path}, table {table}: {error}; check the file with sqlite3") from error
        self._copied.add(table)
        return copy


class _Catalogue(Source):
    """The tables of a database that DuckDB attaches, in any of its schemas."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._schemas: dict[str, list[tuple[str, str]]] = {}

    @abstractmethod
    def attach(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Attach the database as `source`."""

    def open(self, connection: duckdb.DuckDBPyConnection) -> Mapping[str, str]:
        self.attach(connection)
        rows = connection.execute(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = 'source' "
            "AND table_schema NOT IN ('information_schema', 'pg_catalog') ORDER BY ALL"
        ).fetchall()
        for schema, table in rows:
            self._schemas.setdefault(table.lower(), []).append((schema, table))
        return {table: f"{self.name}, table {places[0][1]}" for table, places in self._schemas.items()}

    def relation(self, connection: duckdb.DuckDBPyConnection, table: str) -> str:
        del connection
        places = self._schemas[table]
        if len(places) > 1:
            schemas = ", ".join(schema for schema, _ in places)
            raise DataError(
                f"{self.name}: table '{table}' is in several schemas ({schemas}); keep one visible"
            )
        schema, name = places[0]
        return f"source.{identifier(schema)}.{identifier(name)}"


class Attached(_Catalogue):
    """A DuckDB file."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))

    def attach(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(f"ATTACH {text(self.name)} AS source (READ_ONLY)")


class Postgres(_Catalogue):
    """A PostgreSQL server, read through DuckDB's extension."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        try:
            place = f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"
        except ValueError as error:
            raise DataError(
                f"PostgreSQL's URL: {error}; write postgresql://user@host:5432/database"
            ) from None
        super().__init__(f"PostgreSQL at {place}")
        self._url = url

    def attach(self, connection: duckdb.DuckDBPyConnection) -> None:
        import duckdb

        self._load(connection)
        try:
            connection.execute(f"ATTACH {text(self._url)} AS source (TYPE postgres, READ_ONLY)")
        except duckdb.Error as error:
            raise DataError(
                f"{self.name}: no connection ({_without(self._url, str(error))}); is the server up, and are "
                "host, port, user, password and database right?"
            ) from None  # DuckDB's own message has the password

    def _load(self, connection: duckdb.DuckDBPyConnection) -> None:
        import duckdb

        for extension in ("postgres_scanner", *_packaged(duckdb.__version__)):
            try:
                connection.execute(f"LOAD {text(extension)}")
            except duckdb.Error:
                continue
            return
        raise DataError(
            f"{self.name}: DuckDB {duckdb.__version__} lacks its extension for PostgreSQL; install it with "
            "pip install 'fedkge[postgres]', or export the tables as CSV files and give their folder"
        )


def _packaged(version: str) -> list[str]:
    """The extension as a package brings it, if one for this version is installed."""
    spec = find_spec("duckdb_extension_postgres_scanner")
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = (Path(folder, "extensions", f"v{version}").glob("*.duckdb_extension") for folder in folders)
    return [str(file) for found in files for file in found]


def _without(url: str, message: str) -> str:
    """An error's last words, without the URL, which may hold a password."""
    password = urlsplit(url).password
    line = message.replace(url, "…").split('": ')[-1].strip().splitlines()[0]
    return line.replace(password, "…") if password else line


def _parts(file: Path) -> tuple[str, str]:
    name = file.name.lower().removesuffix(".gz")
    stem, dot, ending = name.rpartition(".")
    return stem, dot + ending


def _header(file: Path, separator: str) -> list[str]:
    """The names of a file's columns."""
    try:
        with _opened(file) as lines:
            line = lines.readline().decode("utf-8-sig")
            while lines.read(_CHUNK) and file.suffix.lower() == ".gz":
                pass  # DuckDB takes a packed file that was cut for a shorter one
    except UnicodeDecodeError as error:
        raise DataError(f"{file}, line 1: not UTF-8 ({error.reason}); convert the file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file}: cannot be read ({error}); unpack it, or copy it again") from error
    names = [name.strip() for row in csv.reader([line], delimiter=separator) for name in row]
    if not any(names):
        raise DataError(f"{file}: an empty file; expected at least a line with the names of its columns")
    twice = {name for name in names if [other.lower() for other in names].count(name.lower()) > 1}
    if twice:
        raise DataError(f"{file}, line 1: two columns are called '{min(twice)}'; rename one")
    return names


def _opened(file: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(file) if file.suffix.lower() == ".gz" else file.open("rb"))


def _sqlite_type(declared: str) -> str:
    """DuckDB's type for a column as SQLite declares it."""
    word = declared.upper()
    pairs = (
        ("INT", "BIGINT"),
        ("CHAR|CLOB|TEXT", "VARCHAR"),
        ("BLOB|BINARY", "BLOB"),
        ("REAL|FLOA|DOUB", "DOUBLE"),
        ("BOOL", "BOOLEAN"),
        ("TIMESTAMP|DATETIME", "TIMESTAMP"),
        ("DATE", "DATE"),
        ("TIME", "TIME"),
        ("DEC|NUMERIC", "DECIMAL(38, 10)" if "(" not in word else word.replace("NUMERIC", "DECIMAL")),
    )
    return next((kind for pattern, kind in pairs if re.search(pattern, word)), "VARCHAR")


def _insert(
    connection: duckdb.DuckDBPyConnection,
    copy: str,
    types: Mapping[str, str],
    rows: list[tuple[object, ...]],
) -> None:
    import pandas as pd

    columns = (list(map(_cell, column)) for column in zip(*rows, strict=True))
    frame = pd.DataFrame(
        {str(number): pd.Series(column, dtype="string") for number, column in enumerate(columns)}
    )
    values = ", ".join(
        f'from_hex("{number}")' if kind == "BLOB" else f'CAST("{number}" AS {kind})'
        for number, kind in enumerate(types.values())
    )
    connection.register("chunk_of_rows", frame)
    connection.execute(f"INSERT INTO {copy} SELECT {values} FROM chunk_of_rows")
    connection.unregister("chunk_of_rows")


def _cell(value: object) -> str | None:
    """A value of SQLite as text that DuckDB casts to the column's type."""
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)
