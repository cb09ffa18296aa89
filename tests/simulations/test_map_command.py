"""`fedkge data map`, run as people run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedkge.datasets import load_graph, mark
from tests.datasets.mapping.tables import PREFIXES, csv_folder
from tests.simulations.test_data_commands import fedkge

MAPPING = """
ex:has fedkge:confidential true .
<> fedkge:sample [ fedkge:table "patient" ; fedkge:key "id" ] .
<#Patient> rr:logicalTable [ rr:tableName "patient" ; fedkge:wholeNumber "id" ] ;
    rr:subjectMap [ rr:template "http://example.com/patient/{id}" ; rr:class ex:Patient ] ;
    rr:predicateObjectMap [ rr:predicate ex:in ;
        rr:objectMap [ rr:template "http://example.com/ward/{ward}" ] ] ;
    rr:predicateObjectMap [ rr:predicate ex:has ;
        rr:objectMap [ rr:template "http://example.com/ill/{ill}" ] ] ;
    rr:predicateObjectMap [ rr:predicate ex:note ; rr:objectMap [ rr:column "note" ] ] .
"""


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    rows = "".join(f"{n},w{n % 3},{'' if n % 4 == 0 else f'flu {n % 5}'},none\n" for n in range(1, 21))
    csv_folder(tmp_path, patient="id,ward,ill,note\n" + rows)
    (tmp_path / "clinic.ttl").write_text(PREFIXES + MAPPING)
    return tmp_path


def test_tables_become_a_file_that_is_trained_on_with_its_marks(clinic: Path) -> None:
    done = fedkge("data", "map", "tables", "--mapping", "clinic.ttl", "--out", "graph.tsv", cwd=clinic)
    assert done.returncode == 0, done.stderr
    for text in (
        "20 rows read, 75 triples made, 5 empty fields skipped",
        "29 entities, 3 relations, 55 links; 15 of them confidential (27.3%)",
        "20 triples with a literal are left out",
        "written to graph.tsv",
    ):
        assert text in done.stdout
    graph = load_graph(clinic / "graph.tsv")
    assert graph.num_triples == 55
    assert {graph.relation_labels[r] for r in graph.train[graph.marks("train"), 1]} == {
        "http://example.com/has"
    }


def test_ntriples_say_all_and_name_what_is_confidential_beside(clinic: Path) -> None:
    done = fedkge(
        "data", "map", "tables", "--mapping", "clinic.ttl", "--out", "graph.nt", "--no-types", cwd=clinic
    )
    assert done.returncode == 0, done.stderr
    assert len((clinic / "graph.nt").read_text().splitlines()) == 55
    graph = mark(load_graph(clinic / "graph.nt"), f"predicates:@{clinic / 'graph.confidential.txt'}")
    assert graph.marks("train").sum() == 15


def test_json_a_sample_and_force(clinic: Path) -> None:
    command = ("data", "map", "tables", "--mapping", "clinic.ttl", "--out", "graph.tsv", "--json")
    done = fedkge(*command, "--sample", "0.25", "--seed", 3, cwd=clinic)
    report = json.loads(done.stdout)
    assert report["rows"] == 5
    assert report["predicates"][1] == {
        "predicate": "http://example.com/in",
        "triples": 5,
        "skipped": 0,
        "confidential": False,
        "literals": 0,
    }
    again = fedkge(*command, cwd=clinic)
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert json.loads(fedkge(*command, "--force", cwd=clinic).stdout)["rows"] == 20


def test_mistakes_are_one_line(clinic: Path) -> None:
    for source, extra, message in (
        ("tables", ("--sample", "paper"), "'clinic.ttl' is no shipped mapping"),
        ("nowhere", (), "nowhere: no such folder or file"),
        ("tables", ("--as-published",), "nothing was published of it"),
    ):
        done = fedkge("data", "map", source, "--mapping", "clinic.ttl", "--out", "x.tsv", *extra, cwd=clinic)
        assert done.returncode == 2
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_the_demo_beside_the_papers_table(tmp_path: Path, data_folder: Path) -> None:
    if not (data_folder / "medical").is_dir():
        pytest.skip("FEDKGE_DATA has no folder 'medical'")
    command = ("data", "map", "medical/eicu-demo", "--mapping", "eicu", "--as-published", "--out", "e.tsv")
    done = fedkge(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in (
        "122,186",
        "353,267",
        "57.27%",
        "135,799",
        "251,729",
        "as published: IRIs are those of MIMIC",
    ):
        assert text in done.stdout
    assert load_graph(tmp_path / "e.tsv").num_triples == 251_729
