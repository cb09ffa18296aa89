"""The rules of R2RML (W3C, 2012) in the manner of its test suite: a database, a mapping, its triples."""

from __future__ import annotations

from pathlib import Path

import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.datasets.mapping.expression import MACROS
from fedkge.errors import DataError
from tests.datasets.mapping.tables import csv_folder, database, mapped, ntriples

STUDENT = """CREATE TABLE student (id INTEGER, name VARCHAR);
INSERT INTO student VALUES (10, 'Venus Williams');"""
SPORT = """CREATE TABLE sport (id INTEGER, name VARCHAR);
INSERT INTO sport VALUES (100, 'Tennis'), (110, 'Golf');
CREATE TABLE student (id INTEGER, name VARCHAR, sport INTEGER);
INSERT INTO student VALUES (10, 'Venus', 100), (20, 'Demi', NULL), (30, 'Fernando', 999);"""

CASES = {
    "a table without rows makes no triple, and another's triples stay": (
        STUDENT + "CREATE TABLE none (id INTEGER);",
        """<#A> rr:logicalTable [ rr:tableName "none" ] ;
        rr:subjectMap [ rr:template "http://example.com/{id}" ; rr:class ex:None ] .
        <#B> rr:logicalTable [ rr:tableName "student" ] ;
        rr:subjectMap [ rr:template "http://example.com/{id}" ; rr:class ex:Student ] .""",
        [
            "<http://example.com/10> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> "
            "<http://example.com/Student> ."
        ],
    ),
    "a template's values are percent-encoded, the template is not": (
        "CREATE TABLE t (a VARCHAR); INSERT INTO t VALUES ('a b/c%d'), ('é成~._-'), ('\"<>{}'), ('1+1=2');",
        """<#A> rr:logicalTable [ rr:tableName "t" ] ;
        rr:subjectMap [ rr:template "http://example.com/x/{a}/y" ] ;
        rr:predicateObjectMap [ rr:predicate ex:p ; rr:object ex:o ] .""",
        [
            f"<http://example.com/x/{value}/y> <http://example.com/p> <http://example.com/o> ."
            for value in ("%22%3C%3E%7B%7D", "1%2B1%3D2", "a%20b%2Fc%25d", "é成~._-")
        ],
    ),
    "a template of a literal is not percent-encoded": (
        STUDENT,
        """<#A> rr:logicalTable [ rr:tableName "student" ] ; rr:subject ex:s ;
        rr:predicateObjectMap [ rr:predicate ex:p ;
            rr:objectMap [ rr:template "{name} ({id})" ; rr:termType rr:Literal ] ] .""",
        ['<http://example.com/s> <http://example.com/p> "Venus Williams (10)" .'],
    ),
    "a backslash keeps a brace": (
        STUDENT,
        r"""<#A> rr:logicalTable [ rr:tableName "student" ] ; rr:subject ex:s ;
        rr:predicateObjectMap [ rr:predicate ex:p ;
            rr:objectMap [ rr:template "\\{\\{ {id} \\}\\\\" ; rr:termType rr:Literal ] ] .""",
        [r'<http://example.com/s> <http://example.com/p> "{{ 10 }\\" .'],
    ),
    "NULL makes no triple, whichever term needs it": (
        "CREATE TABLE t (a INTEGER, b INTEGER, c VARCHAR);"
        "INSERT INTO t VALUES (1, NULL, 'x'), (NULL, 2, 'y');",
        """<#A> rr:logicalTable [ rr:tableName "t" ] ;
        rr:subjectMap [ rr:template "http://example.com/{a}" ] ;
        rr:predicateObjectMap [ rr:predicate ex:b ; rr:objectMap [ rr:column "b" ] ] ;
        rr:predicateObjectMap [ rr:predicate ex:c ; rr:objectMap [ rr:column "c" ] ] .""",
        ['<http://example.com/1> <http://example.com/c> "x" .'],
    ),
    "literals of SQL types have their XSD type and its canonical form": (
        """CREATE TABLE t (i BIGINT, d DOUBLE, f DOUBLE, n DECIMAL(10,3), b BOOLEAN, day DATE,
        moment TIMESTAMP, clock TIME, raw BLOB, word VARCHAR);
        INSERT INTO t VALUES (7, 80.25, -0.00012, 12.500, true, '2013-02-03', '2013-02-03 12:00:01',
        '12:00:01', '\\xAB\\x01'::BLOB, 'plain');""",
        """<#A> rr:logicalTable [ rr:tableName "t" ] ; rr:subject ex:s ;
        rr:predicateObjectMap [ rr:predicate ex:p ; rr:objectMap [ rr:column "i" ], [ rr:column "d" ],
        [ rr:column "f" ], [ rr:column "n" ], [ rr:column "b" ], [ rr:column "day" ], [ rr:column "moment" ],
        [ rr:column "clock" ], [ rr:column "raw" ], [ rr:column "word" ] ] .""",
        [
            f"<http://example.com/s> <http://example.com/p> {literal} ."
            for literal in (
                '"-1.2E-4"^^<http://www.w3.org/2001/XMLSchema#double>',
                '"12.5"^^<http://www.w3.org/2001/XMLSchema#decimal>',
                '"12:00:01"^^<http://www.w3.org/2001/XMLSchema#time>',
                '"2013-02-03"^^<http://www.w3.org/2001/XMLSchema#date>',
                '"2013-02-03T12:00:01"^^<http://www.w3.org/2001/XMLSchema#dateTime>',
                '"7"^^<http://www.w3.org/2001/XMLSchema#integer>',
                '"8.025E1"^^<http://www.w3.org/2001/XMLSchema#double>',
                '"AB01"^^<http://www.w3.org/2001/XMLSchema#hexBinary>',
                '"plain"',
                '"true"^^<http://www.w3.org/2001/XMLSchema#boolean>',
            )
        ],
    ),
    "a datatype and a language are those that the mapping says": (
        "CREATE TABLE t (a VARCHAR); INSERT INTO t VALUES ('42');",
        """<#A> rr:logicalTable [ rr:tableName "t" ] ; rr:subject ex:s ;
        rr:predicateObjectMap [ rr:predicate ex:p ; rr:objectMap
            [ rr:column "a" ; rr:datatype xsd:integer ], [ rr:column "a" ; rr:language "EN-gb" ],
            [ rr:template "{a} mg" ; rr:datatype ex:dose ] ] .""",
        [
            '<http://example.com/s> <http://example.com/p> "42 mg"^^<http://example.com/dose> .',
            '<http://example.com/s> <http://example.com/p> "42"@en-gb .',
            '<http://example.com/s> <http://example.com/p> "42"^^<http://www.w3.org/2001/XMLSchema#integer>'
            " .",
        ],
    ),
    "quotes, backslashes and line breaks of literals are escaped": (
        "CREATE TABLE t (a VARCHAR); INSERT INTO t VALUES ('say \"no\"' || chr(10) || 'C:\\x' || chr(13));",
        """<#A> rr:logicalTable [ rr:tableName "t" ] ; rr:subject ex:s ;
        rr:predicateObjectMap [ rr:predicate ex:p ; rr:objectMap [ rr:column "a" ] ] .""",
        [r'<http://example.com/s> <http://example.com/p> "say \"no\"\nC:\\x\r" .'],
    ),
    "a column of IRIs is taken as it is, after the base where it is relative": (
        "CREATE TABLE t (a VARCHAR); INSERT INTO t VALUES ('http://other.example/x'), ('danny');",
        """<#A> rr:logicalTable [ rr:tableName "t" ] ; rr:subjectMap [ rr:column "a" ] ;
        rr:predicateObjectMap [ rr:predicate ex:p ; rr:object ex:o ] .""",
        [
            "<http://example.com/base/danny> <http://example.com/p> <http://example.com/o> .",
            "<http://other.example/x> <http://example.com/p> <http://example.com/o> .",
        ],
    ),
    "a relative template stands after the base": (
        STUDENT,
        """<#A> rr:logicalTable [ rr:tableName "student" ] ; rr:subjectMap [ rr:template "student/{id}" ] ;
        rr:predicateObjectMap [ rr:predicate ex:p ; rr:object ex:o ] .""",
        ["<http://example.com/base/student/10> <http://example.com/p> <http://example.com/o> ."],
    ),
    "equal values make one blank node, unequal ones two": (
        "CREATE TABLE t (a VARCHAR); INSERT INTO t VALUES ('x'), ('x'), ('x_'), ('x y');",
        """<#A> rr:logicalTable [ rr:tableName "t" ] ;
        rr:subjectMap [ rr:template "n{a}" ; rr:termType rr:BlankNode ] ;
        rr:predicateObjectMap [ rr:predicate ex:p ; rr:object ex:o ] .""",
        [f"_:{name} <http://example.com/p> <http://example.com/o> ." for name in ("nx", "nx_20_y", "nx_5F_")],
    ),
    "duplicate triples collapse, within a table and between maps": (
        STUDENT + "INSERT INTO student VALUES (10, 'Venus Williams'), (10, 'Venus');",
        """<#A> rr:logicalTable [ rr:tableName "student" ] ;
        rr:subjectMap [ rr:template "http://example.com/{id}" ; rr:class ex:Student ] .
        <#B> rr:logicalTable [ rr:sqlQuery "SELECT id AS number FROM student WHERE id > 5" ] ;
        rr:subjectMap [ rr:template "http://example.com/{number}" ; rr:class ex:Student ] .""",
        [
            "<http://example.com/10> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> "
            "<http://example.com/Student> ."
        ],
    ),
    "an object may be another map's subject, joined on columns; what has no partner says nothing": (
        SPORT,
        """<#Student> rr:logicalTable [ rr:tableName "student" ] ;
        rr:subjectMap [ rr:template "http://example.com/student/{id}" ] ;
        rr:predicateObjectMap [ rr:predicate ex:practises ; rr:objectMap [ rr:parentTriplesMap <#Sport> ;
            rr:joinCondition [ rr:child "sport" ; rr:parent "id" ] ] ] .
        <#Sport> rr:logicalTable [ rr:tableName "sport" ] ;
        rr:subjectMap [ rr:template "http://example.com/sport/{id}" ] .""",
        ["<http://example.com/student/10> <http://example.com/practises> <http://example.com/sport/100> ."],
    ),
    "without a join condition the parent's subject is of the same row": (
        STUDENT,
        """<#A> rr:logicalTable [ rr:tableName "student" ] ;
        rr:subjectMap [ rr:template "http://example.com/{id}" ] ;
        rr:predicateObjectMap [ rr:predicate ex:p ; rr:objectMap [ rr:parentTriplesMap <#B> ] ] .
        <#B> rr:logicalTable [ rr:tableName "student" ] ;
        rr:subjectMap [ rr:template "http://example.com/named/{name}" ] .""",
        ["<http://example.com/10> <http://example.com/p> <http://example.com/named/Venus%20Williams> ."],
    ),
    "constants, several predicates and several objects multiply": (
        STUDENT,
        """<#A> rr:logicalTable [ rr:tableName "student" ] ; rr:subjectMap [ rr:constant ex:s ] ;
        rr:predicateObjectMap [ rr:predicate ex:p, ex:q ; rr:object ex:o, "word" ] .""",
        [
            f"<http://example.com/s> <http://example.com/{p}> {o} ."
            for p in "pq"
            for o in ('"word"', "<http://example.com/o>")
        ],
    ),
    "a predicate may come from a column": (
        "CREATE TABLE t (a VARCHAR, b VARCHAR); INSERT INTO t VALUES ('likes', 'tea'), ('owns', 'cat');",
        """<#A> rr:logicalTable [ rr:tableName "t" ] ; rr:subject ex:s ;
        rr:predicateObjectMap [ rr:predicateMap [ rr:template "http://example.com/{a}" ] ;
            rr:objectMap [ rr:template "http://example.com/{b}" ] ] .""",
        [
            "<http://example.com/s> <http://example.com/likes> <http://example.com/tea> .",
            "<http://example.com/s> <http://example.com/owns> <http://example.com/cat> .",
        ],
    ),
    "columns are named as SQL names them, in quotes too": (
        """CREATE TABLE "Country Info" ("Country Code" INTEGER, "Name" VARCHAR);
        INSERT INTO "Country Info" VALUES (1, 'Bolivia');""",
        r"""<#A> rr:logicalTable [ rr:tableName "\"Country Info\"" ] ;
        rr:subjectMap [ rr:template "http://example.com/{\"Country Code\"}" ] ;
        rr:predicateObjectMap [ rr:predicate ex:name ; rr:objectMap [ rr:column "NAME" ] ] .""",
        ['<http://example.com/1> <http://example.com/name> "Bolivia" .'],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rule(case: str, tmp_path: Path) -> None:
    script, text, expected = CASES[case]
    lines = ntriples(tmp_path, script, text)
    assert lines == sorted(expected)
    parsed = list(pyoxigraph.parse(input="\n".join(lines).encode(), format=pyoxigraph.RdfFormat.N_TRIPLES))
    assert len(parsed) == len(expected)


REFUSED = {
    "an IRI of a column that none can be": (
        "CREATE TABLE t (a VARCHAR); INSERT INTO t VALUES ('two words');",
        'rr:subjectMap [ rr:column "a" ] ; rr:predicateObjectMap [ rr:predicate ex:p ; rr:object ex:o ]',
        "'two words' is no IRI",
    ),
    "a value that its datatype does not have": (
        "CREATE TABLE t (a VARCHAR); INSERT INTO t VALUES ('2014-01-03');",
        """rr:subject ex:s ; rr:predicateObjectMap [ rr:predicate ex:p ;
        rr:objectMap [ rr:column "a" ; rr:datatype xsd:integer ] ]""",
        "'2014-01-03' is no xsd:integer",
    ),
    "a type without a form in RDF": (
        "CREATE TABLE t (a INTEGER[]); INSERT INTO t VALUES ([1]);",
        'rr:subject ex:s ; rr:predicateObjectMap [ rr:predicate ex:p ; rr:objectMap [ rr:column "a" ] ]',
        "has no form in RDF",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_data_that_cannot_be_a_term(case: str, tmp_path: Path) -> None:
    script, text, message = REFUSED[case]
    with pytest.raises(DataError, match=message):
        ntriples(tmp_path, script, f'<#A> rr:logicalTable [ rr:tableName "t" ] ; {text} .')
    assert not (tmp_path / "out.nt").exists()


def test_named_graphs_are_ignored_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = """<#A> rr:logicalTable [ rr:tableName "student" ] ;
    rr:subjectMap [ rr:template "http://example.com/{id}" ; rr:class ex:S ; rr:graph ex:g ] ."""
    assert len(ntriples(tmp_path, STUDENT, text)) == 1
    assert "named graphs are ignored" in caplog.text


def test_of_an_empty_field_in_a_csv_file_nothing_is_said(tmp_path: Path) -> None:
    """Also where it stands in quotes, and where a text has commas, quotes, line breaks."""
    tables = csv_folder(tmp_path, t='id,a\n1,""\n2,\n3,"x, ""y""\nz"\n')
    text = """<#A> rr:logicalTable [ rr:tableName "T" ] ;
    rr:subjectMap [ rr:template "http://example.com/{ID}" ] ;
    rr:predicateObjectMap [ rr:predicate ex:p ; rr:objectMap [ rr:column "a" ] ] ."""
    lines, report = mapped(tables, text, tmp_path / "out.nt")
    assert lines == [r'<http://example.com/3> <http://example.com/p> "x, \"y\"\nz" .']
    assert report.skipped == 2


def test_tsv_has_the_links_and_their_marks(tmp_path: Path) -> None:
    text = """ex:has fedkge:confidential true . ex:free fedkge:confidential false .
    <#A> rr:logicalTable [ rr:tableName "student" ] ;
    rr:subjectMap [ rr:template "http://example.com/{id}" ] ;
    rr:predicateObjectMap [ rr:predicate ex:has, ex:free ; rr:object ex:o ] ;
    rr:predicateObjectMap [ rr:predicate ex:name ; rr:objectMap [ rr:column "name" ] ] ."""
    lines, report = mapped(database(tmp_path, STUDENT), text, tmp_path / "out.tsv")
    assert lines == [
        "head\trelation\ttail\tconfidential",
        "http://example.com/10\thttp://example.com/has\thttp://example.com/o\t1",
        "http://example.com/10\thttp://example.com/free\thttp://example.com/o\t0",
    ]
    assert (report.triples, report.literals, report.links, report.confidential) == (3, 1, 2, 1)


@pytest.fixture(scope="module")
def macros() -> object:
    import duckdb

    connection = duckdb.connect()
    for macro in MACROS:
        connection.execute(macro)
    return connection


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=8))
def test_an_iri_from_a_template_is_valid_and_tells_values_apart(macros, value: str) -> None:  # type: ignore[no-untyped-def]
    """The oracle is RFC 3987 as pyoxigraph knows it, and urllib, which undoes the encoding."""
    from urllib.parse import unquote

    (safe,) = macros.execute("SELECT iri_safe(?)", [value]).fetchone()
    pyoxigraph.NamedNode(f"http://example.com/{safe}")
    assert unquote(safe) == value
    assert not set(safe) & set(" <>\"{}|\\^`/?#[]@!$&'()*+,;=:")


@given(
    st.text(max_size=6).filter(lambda text: "\0" not in text),
    st.text(max_size=6).filter(lambda t: "\0" not in t),
)
def test_blank_nodes_are_told_apart_and_valid(macros, one: str, other: str) -> None:  # type: ignore[no-untyped-def]
    first, second = (macros.execute("SELECT blank_safe(?)", [text]).fetchone()[0] for text in (one, other))
    assert (first == second) == (one == other)
    pyoxigraph.BlankNode(f"n{first}")


@given(st.floats())
def test_a_double_is_canonical(macros, value: float) -> None:  # type: ignore[no-untyped-def]
    (text,) = macros.execute("SELECT canonical_double(?::DOUBLE)", [value]).fetchone()
    if text in ("NaN", "INF", "-INF"):
        assert float(text) == value or value != value
        return
    mantissa, exponent = text.split("E")
    whole, part = mantissa.removeprefix("-").split(".")
    assert float(text) == value
    assert len(whole) == 1
    assert whole != "0" or value == 0
    assert part == "0" or not part.endswith("0")
    assert str(int(exponent)) == exponent
