"""What is wrong with a mapping or its tables is one line that names the place and the remedy."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fedkge.datasets.mapping import Draw, Mapping, mapping_of
from fedkge.errors import DataError, FedkgeError, SettingError, UnknownNameError
from tests.datasets.mapping.tables import PREFIXES, csv_folder, mapped, mapping

PATIENT = """
<#Patient>
    rr:logicalTable [ rr:tableName "patient" ; fedkge:wholeNumber "id" ] ;
    rr:subjectMap [ rr:template "http://example.com/{id}" ] ;
    rr:predicateObjectMap [ rr:predicate ex:p ; rr:objectMap [ rr:template "http://example.com/{ward}" ] ] .
"""
START = len(PREFIXES.splitlines()) + 2  # the line of <#Patient>


def refusal(folder: Path, text: str = PATIENT, **tables: str) -> str:
    with pytest.raises(DataError) as refused:
        mapped(csv_folder(folder, **tables), text, folder / "out.nt")
    message = str(refused.value)
    assert "\n" not in message
    assert not (folder / "out.nt").exists()
    return message


def test_a_missing_table(tmp_path: Path) -> None:
    message = refusal(tmp_path, patients="id,ward\n1,A\n")
    assert message.startswith(f"clinic.ttl, line {START + 1}: ")
    assert "has no table 'patient'; it has patients. Did you mean 'patients'?" in message


def test_a_missing_column(tmp_path: Path) -> None:
    message = refusal(tmp_path, patient="id,wards\n1,A\n")
    assert message.startswith(f"clinic.ttl, line {START + 3}: column 'ward' is not in ")
    assert "patient.csv, which has id, wards. Did you mean 'wards'?" in message


def test_a_date_where_an_id_is_expected(tmp_path: Path) -> None:
    message = refusal(tmp_path, patient="id,ward\n1,A\n2014-01-03,B\n2014-01-04,B\n")
    assert "patient.csv: column 'id' has '2014-01-03'" in message
    assert f"clinic.ttl, line {START + 1} expects a whole number (2 of 3 rows)" in message


def test_a_wrong_encoding(tmp_path: Path) -> None:
    folder = csv_folder(tmp_path)
    (folder / "patient.csv").write_bytes("id,ward\n1,A\n2,Männer\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"patient\.csv, line 3: not UTF-8; convert the file") as refused:
        mapped(folder, PATIENT, tmp_path / "out.nt")
    assert "\n" not in str(refused.value)
    (folder / "patient.csv").write_bytes("id,wärd\n1,A\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"patient\.csv, line 1: not UTF-8"):
        mapped(folder, PATIENT, tmp_path / "out.nt")


def test_a_line_with_too_many_fields(tmp_path: Path) -> None:
    message = refusal(tmp_path, patient="id,ward\n1,A\n2,B,C\n")
    assert "patient.csv, line 3: " in message


def test_an_empty_file_and_a_column_twice(tmp_path: Path) -> None:
    assert "patient.csv: an empty file; expected at least a line with the names" in refusal(
        tmp_path, patient=""
    )
    message = refusal(tmp_path, patient="id,ward,ID\n1,A,1\n")
    assert "patient.csv, line 1: two columns are called" in message


def test_tables_that_are_all_empty_make_no_graph(tmp_path: Path) -> None:
    assert "makes no triple of it: 0 of its tables are absent, 1 are empty" in refusal(
        tmp_path, patient="id,ward\n"
    )


def test_a_file_that_is_cut(tmp_path: Path) -> None:
    folder = csv_folder(tmp_path)
    (folder / "patient.csv.gz").write_bytes(gzip.compress(b"id,ward\n" + b"1,A\n" * 100_000)[:-40])
    with pytest.raises(DataError, match=r"patient\.csv\.gz"):
        mapped(folder, PATIENT, tmp_path / "out.nt")


def test_a_query_that_is_no_sql(tmp_path: Path) -> None:
    text = """<#A> rr:logicalTable [ rr:sqlQuery "SELEKT id FROM patient" ] ;
    rr:subjectMap [ rr:template "http://example.com/{id}" ; rr:class ex:P ] ."""
    assert "syntax error" in refusal(tmp_path, text, patient="id\n1\n")


def test_of_a_database_of_another_kind_nothing_is_mapped(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none of the tables that eicu\.ttl maps .*another database"):
        mapped(csv_folder(tmp_path, sales="id\n1\n"), mapping_of("eicu"), tmp_path / "out.nt")


OBJECT = """<#A> rr:logicalTable [ rr:tableName "t" ] ; rr:subject ex:s ;
rr:predicateObjectMap [ rr:predicate ex:p ; rr:objectMap"""
WRONG = {
    "@prefix": "not valid Turtle",
    "<#A> rr:tabelName 'x' .": "unknown word 'tabelName'.*Did you mean 'tableName'",
    "ex:p fedkge:secret true .": "unknown word 'secret'",
    "ex:p ex:q ex:r .": "no triples map in it",
    '<#A> rr:logicalTable [ rr:tableName "t" ] .': "0 subject maps; expected one",
    "<#A> rr:subject ex:s .": "a triples map without rr:logicalTable",
    '<#A> rr:logicalTable [ rr:tableName "t" ; rr:sqlQuery "SELECT 1" ] ; rr:subject ex:s .': (
        "either rr:tableName or rr:sqlQuery"
    ),
    '<#A> rr:logicalTable [ rr:tableName "t" ] ; rr:subject "word" .': "a subject cannot be a Literal",
    OBJECT + ' [ rr:column "a" ; rr:template "{b}" ] ] .': "a object map has column and template; give one",
    OBJECT + ' [ rr:column "a" ; rr:language "en" ; rr:datatype xsd:date ] ] .': "not both",
    OBJECT + ' [ rr:column "a" ; rr:language "e n" ] ] .': "no language tag",
    OBJECT + ' [ rr:column "a" ; rr:termType rr:Iri ] ] .': "unknown term type 'Iri'",
    '<#A> rr:logicalTable [ rr:tableName "t" ] ; rr:subjectMap [ rr:template "x{a" ] .': r"write \{column\}",
    OBJECT + " [ rr:parentTriplesMap <#B> ] ] .": "is no triples map",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mapping_that_says_nothing_clear(text: str) -> None:
    with pytest.raises(DataError, match=WRONG[text]) as refused:
        mapping(text)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("clinic.ttl")


def test_names_and_samples() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'eicu'"):
        mapping_of("eicuu")
    with pytest.raises(DataError, match="no such file"):
        mapping_of("mine.ttl")
    with pytest.raises(SettingError, match="nothing was published"):
        mapping_of("mine.ttl", as_published=True)
    for text in ("0", "1.5", "half", "2150-13", "nan"):
        with pytest.raises(SettingError, match=r"a share of the patients .* or a month"):
            Draw.parse(text)


def test_a_sample_needs_a_mapping_that_says_of_what(tmp_path: Path) -> None:
    tables = csv_folder(tmp_path, patient="id,ward\n1,A\n")
    with pytest.raises(SettingError, match="add fedkge:sample"):
        mapped(tables, PATIENT, tmp_path / "out.nt", Draw(share=0.5))
    sampled = '<> fedkge:sample [ fedkge:table "patient" ; fedkge:key "id" ] .' + PATIENT
    with pytest.raises(SettingError, match="no column of dates"):
        mapped(tables, sampled, tmp_path / "out.nt", Draw(month="2150-01"))


def test_ntriples_cannot_hold_iris_with_free_text(tmp_path: Path) -> None:
    chosen = mapping_of("eicu", as_published=True)
    with pytest.raises(SettingError, match=r"write a \.tsv"):
        mapped(csv_folder(tmp_path, patient="x\n"), chosen, tmp_path / "out.nt")
    with pytest.raises(FedkgeError, match=r"ending in \.tsv or \.nt"):
        mapped(csv_folder(tmp_path), Mapping("x", ()), tmp_path / "out.ttl")
