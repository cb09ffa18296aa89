"""Tables in CSV folders, SQLite, DuckDB, Parquet and PostgreSQL make the same graph."""

from __future__ import annotations

import gzip
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from fedkge.datasets import load_graph
from fedkge.datasets.mapping.source import Postgres, open_source
from fedkge.errors import DataError
from tests.datasets.mapping.tables import PREFIXES, csv_folder, database, mapped

SCRIPT = """CREATE TABLE patient (id INTEGER, name VARCHAR(20), weight DOUBLE PRECISION, born DATE);
INSERT INTO patient VALUES (1, 'Ann B', 70.5, '1990-01-02'), (2, NULL, NULL, '2000-12-31');
CREATE TABLE diagnosis (patient INTEGER, code VARCHAR(9));
INSERT INTO diagnosis VALUES (1, '00041'), (1, '00041'), (2, 'V12')"""
MAPPING = """
ex:has fedkge:confidential true .
<#Patient> rr:logicalTable [ rr:tableName "patient" ] ;
    rr:subjectMap [ rr:template "http://example.com/patient/{id}" ; rr:class ex:Patient ] ;
    rr:predicateObjectMap [ rr:predicate ex:name ; rr:objectMap [ rr:column "name" ] ] ;
    rr:predicateObjectMap [ rr:predicate ex:weight ;
        rr:objectMap [ rr:column "weight" ; rr:datatype xsd:double ] ] ;
    rr:predicateObjectMap [ rr:predicate ex:born ;
        rr:objectMap [ rr:column "born" ; rr:datatype xsd:date ] ] .
<#Diagnosis> rr:logicalTable [ rr:sqlQuery "SELECT patient, code FROM diagnosis WHERE code <> 'none'" ] ;
    rr:subjectMap [ rr:template "http://example.com/patient/{patient}" ] ;
    rr:predicateObjectMap [ rr:predicate ex:has ;
        rr:objectMap [ rr:template "http://example.com/code/{code}" ] ] .
"""
EXPECTED = sorted(
    [
        "<http://example.com/patient/1> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> "
        "<http://example.com/Patient> .",
        "<http://example.com/patient/2> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> "
        "<http://example.com/Patient> .",
        '<http://example.com/patient/1> <http://example.com/name> "Ann B" .',
        "<http://example.com/patient/1> <http://example.com/weight> "
        '"7.05E1"^^<http://www.w3.org/2001/XMLSchema#double> .',
        "<http://example.com/patient/1> <http://example.com/born> "
        '"1990-01-02"^^<http://www.w3.org/2001/XMLSchema#date> .',
        "<http://example.com/patient/2> <http://example.com/born> "
        '"2000-12-31"^^<http://www.w3.org/2001/XMLSchema#date> .',
        "<http://example.com/patient/1> <http://example.com/has> <http://example.com/code/00041> .",
        "<http://example.com/patient/2> <http://example.com/has> <http://example.com/code/V12> .",
    ]
)
PATIENTS = "id,name,weight,born\n1,Ann B,7.05E1,1990-01-02\n2,,,2000-12-31\n"
DIAGNOSES = "PATIENT,CODE\n1,00041\n1,00041\n2,V12\n"


def lines_of(source: Path | str, folder: Path) -> list[str]:
    return sorted(mapped(source, MAPPING, folder / "out.nt")[0])


def test_a_duckdb_file(tmp_path: Path) -> None:
    assert lines_of(database(tmp_path, SCRIPT), tmp_path) == EXPECTED


def test_an_sqlite_file(tmp_path: Path) -> None:
    path = tmp_path / "tables.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(SCRIPT)
    connection.close()
    assert lines_of(path, tmp_path) == EXPECTED


def test_a_folder_of_csv_files_of_which_one_is_packed(tmp_path: Path) -> None:
    folder = csv_folder(tmp_path, patient="\ufeff" + PATIENTS)
    (folder / "DIAGNOSIS.csv.gz").write_bytes(gzip.compress(DIAGNOSES.encode()))
    (folder / "LICENSE.txt").write_text("not a table")
    assert lines_of(folder, tmp_path) == EXPECTED


def test_parquet_files(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(SCRIPT)
        for table in ("patient", "diagnosis"):
            connection.execute(f"COPY {table} TO '{tmp_path}/{table}.parquet'")
    assert lines_of(tmp_path, tmp_path) == EXPECTED


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL server of this test's own."""
    pytest.importorskip("duckdb_extension_postgres_scanner")
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("no PostgreSQL on this machine")
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))  # pytest's folders are closed to others
    user = {"user": "nobody"} if os.getuid() == 0 else {}
    if user:
        shutil.chown(folder, "nobody")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = folder / "data"

    def call(*command: object) -> None:
        words = list(map(str, command))
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=folder, timeout=120, **user)  # type: ignore[call-overload]

    call("initdb", "-D", data, "-U", "clinic", "--auth", "trust")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
    call("pg_ctl", "-D", data, "-o", options, "-l", folder / "log", "-w", "start")
    try:
        yield f"postgresql://clinic:secret@127.0.0.1:{port}/postgres"
    finally:
        call("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)


def _run(url: str, script: str) -> None:
    with duckdb.connect() as connection:
        Postgres(url)._load(connection)
        connection.execute(f"ATTACH '{url}' AS place (TYPE postgres)")
        connection.execute("CALL postgres_execute('place', ?)", [script])


def test_a_postgresql_server(server: str, tmp_path: Path) -> None:
    _run(server, f"CREATE SCHEMA clinic; SET search_path TO clinic; {SCRIPT}")
    assert lines_of(server, tmp_path) == EXPECTED
    graph = tmp_path / "clinic.ttl"
    graph.write_text(PREFIXES + MAPPING)
    loaded = load_graph(f"mapped:source={server},mapping={graph},types=0")
    assert loaded.num_triples == 2
    assert loaded.marks("train").all()
    _run(server, "CREATE SCHEMA other; CREATE TABLE other.patient (id INTEGER)")
    with pytest.raises(DataError, match=r"several schemas \(clinic, other\)"):
        lines_of(server, tmp_path)


def test_a_server_that_is_down_is_one_line_without_the_password(tmp_path: Path) -> None:
    pytest.importorskip("duckdb_extension_postgres_scanner")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DataError) as refusal:
        lines_of(f"postgresql://clinic:s3cret@127.0.0.1:{port}/ward", tmp_path)
    message = str(refusal.value)
    assert f"127.0.0.1:{port}/ward: no connection" in message
    assert "Connection refused" in message
    assert "s3cret" not in message
    assert "\n" not in message


def test_without_the_extension_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedkge.datasets.mapping.source._packaged", lambda version: [])
    monkeypatch.setenv("HOME", str(tmp_path))  # where DuckDB keeps what it downloaded
    with pytest.raises(DataError, match=r"pip install 'fedkge\[postgres\]'"):
        lines_of("postgresql://clinic@127.0.0.1/ward", tmp_path)


def test_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("dear diary")
    with pytest.raises(DataError, match="neither an SQLite nor a DuckDB file"):
        open_source(str(tmp_path / "note.txt"))
    with pytest.raises(DataError, match="no such folder or file"):
        open_source(str(tmp_path / "nothing"))
