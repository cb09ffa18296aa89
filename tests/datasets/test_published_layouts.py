"""Small files in the layouts of published graphs are read as their documentation says."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedkge.datasets import KnowledgeGraph, load_graph
from fedkge.datasets.labels import respelt
from fedkge.errors import DataError
from fedkge.simulations.cli.main import app

PRIMEKG = (
    "relation,display_relation,x_index,x_id,x_type,x_name,x_source,y_index,y_id,y_type,y_name,y_source\n"
    "protein_protein,ppi,0,9796,gene/protein,PHYHIP,NCBI,8889,56992,gene/protein,KIF15,NCBI\n"
    'drug_drug,"synergistic interaction",14012,DB01,drug,"Cetuximab, A",DrugBank,1,DB02,drug,PHYHIP,D\n'
)


def triples(graph: KnowledgeGraph, split: str = "train") -> list[tuple[str, str, str]]:
    rows = graph.labelled(split)
    return list(zip(rows.heads, rows.relations, rows.tails, strict=True))


def test_primekg_by_names_or_by_index(tmp_path: Path) -> None:
    (tmp_path / "kg.csv").write_text(PRIMEKG)
    assert triples(load_graph(tmp_path / "kg.csv", columns="x_name,relation,y_name")) == [
        ("PHYHIP", "protein_protein", "KIF15"),
        ("Cetuximab, A", "drug_drug", "PHYHIP"),
    ]
    by_index = load_graph(tmp_path / "kg.csv", columns="x_index,display_relation,y_index")
    assert triples(by_index)[1] == ("14012", "synergistic interaction", "1")


def test_the_command_takes_words_of_the_header(tmp_path: Path) -> None:
    (tmp_path / "kg.csv").write_text(PRIMEKG)
    command = ["data", "info", str(tmp_path / "kg.csv"), "--columns", "x_name,relation,y_name", "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert '"entities": 3' in done.stdout
    assert '"relations": 2' in done.stdout


def test_hetionet(tmp_path: Path) -> None:
    text = "source\tmetaedge\ttarget\nGene::9021\tGpBP\tBiological Process::GO:0071357\n"
    (tmp_path / "hetionet-v1.0-edges.sif.gz").write_bytes(gzip.compress(text.encode()))
    graph = load_graph(tmp_path / "hetionet-v1.0-edges.sif.gz")
    assert triples(graph) == [("Gene::9021", "GpBP", "Biological Process::GO:0071357")]
    assert graph.name == "hetionet-v1.0-edges"


def test_codex(tmp_path: Path) -> None:
    for name in ("train", "valid", "test", "test_negatives", "valid_negatives"):
        (tmp_path / f"{name}.txt").write_text(f"Q1\tP{len(name)}\tQ2\n")
    graph = load_graph(tmp_path)
    assert [triples(graph, split) for split in ("train", "valid", "test")] == [
        [("Q1", "P5", "Q2")],
        [("Q1", "P5", "Q2")],
        [("Q1", "P4", "Q2")],
    ]


def test_openbiolink(tmp_path: Path) -> None:
    """Files are called .csv and have tabs."""
    folder = tmp_path / "HQ_DIR" / "train_test_data"
    folder.mkdir(parents=True)
    for name in ("train", "val", "test"):
        row = f"NCBIGENE:1\tGENE_{name.upper()}\tGO:2, of it\t900\t1\tSTRING\n"
        (folder / f"{name}_sample.csv").write_text(row)
        (folder / f"negative_{name}_sample.csv").write_text(row)
    (folder / "train_val_nodes.csv").write_text("GO:2\tGO\n")
    graph = load_graph(tmp_path / "HQ_DIR", columns="head,relation,tail,_,_,_")
    assert triples(graph, "valid") == [("NCBIGENE:1", "GENE_VAL", "GO:2, of it")]
    assert (len(graph.train), len(graph.valid), len(graph.test)) == (1, 1, 1)


def write_findkg(folder: Path, train: str = "0\t1\t2\t7\t0\n2\t0\t1\t8\t0\n", **changed: str) -> Path:
    files = {
        "entity2id": "Market Data\t0\tECON\t9\nLegal\t1\tCONCEPT\t8\nAda\t2\tPERSON\t1\n",
        "relation2id": "Relate_To\t0\nControl\t1\n",
        "valid": "1\t1\t1\t9\t0\n",
        "stat": "3\t2\t9\n",
        "train": train,
    } | changed
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


def test_findkg(tmp_path: Path) -> None:
    graph = load_graph(write_findkg(tmp_path))
    assert triples(graph) == [("Market Data", "Control", "Ada"), ("Ada", "Relate_To", "Legal")]
    assert triples(graph, "valid") == [("Legal", "Control", "Legal")]
    assert graph.entity_labels == ("Market Data", "Legal", "Ada")


def test_labels_beside_vocabularies_are_read_as_labels(tmp_path: Path) -> None:
    graph = load_graph(write_findkg(tmp_path, train="Ada\tControl\tLegal\n", valid="Ada\tControl\tAda\n"))
    assert triples(graph) == [("Ada", "Control", "Legal")]


def test_numbers_that_are_labels_are_no_ids(tmp_path: Path) -> None:
    vocabulary = "5\t0\n0\t1\n"
    written = write_findkg(tmp_path, train="5\tr\t0\n", valid="0\tr\t5\n", entity2id=vocabulary)
    assert triples(load_graph(written)) == [("5", "r", "0")]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train": "0\t1\t2\nx\t0\t1\n"}, r"train\.txt, line 2: expected three ids"),
        ({"train": "0\t1\t3\n"}, r"train\.txt, line 1: an id beyond entity2id\.txt \(3 labels\)"),
        ({"relation2id": "Relate_To\t0\nControl\t2\n"}, r"ids are not 0 to 1"),
        ({"entity2id": "a\t0\nb\t0\n"}, r"entity2id\.txt, line 2: id 0 stands above with another"),
        ({"entity2id": "a\t0\na\t1\n"}, r"a label stands twice"),
        ({"entity2id": "a\n"}, r"entity2id\.txt, line 1: expected a label, a tab and its id"),
    ],
)
def test_bad_ids_are_named_with_their_line(changed: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load_graph(write_findkg(tmp_path, **changed))


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        (PRIMEKG, "x_nam,relation,y_name", r"line 1: no column called 'x_nam'; the header has relation, "),
        ("a,b,a,c\n1,2,3,4\n", "a,b,c", "line 1: 2 columns called 'a'"),
        ("a,b,c\n1,2\n", "a,b,c", "line 2: expected 3 columns, as the header has, found 2"),
        ("", "a,b,c", "header has nothing"),
    ],
)
def test_a_header_that_lacks_the_words(text: str, columns: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "kg.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        load_graph(tmp_path / "kg.csv", columns=columns)


def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "kg.csv").write_bytes(b"a,b,c\n1,2,\xff\n")
    with pytest.raises(DataError, match=r"line 2: byte 0xff is not UTF-8"):
        load_graph(tmp_path / "kg.csv", columns="a,b,c")


label = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=6).filter(str.strip)


@given(
    rows=st.lists(st.tuples(label, label, label, label), min_size=1, max_size=8),
    order=st.permutations(range(4)),
)
def test_any_table_gives_its_columns(
    rows: list[tuple[str, ...]], order: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    header = ["x", "kind", "y", "note"]
    path = tmp_path_factory.mktemp("table") / "kg.csv"
    quoted = [
        ",".join('"' + row[place].replace('"', '""') + '"' for place in order) for row in [header, *rows]
    ]
    path.write_text("\n".join(quoted) + "\n", encoding="utf-8", newline="")
    graph = load_graph(path, columns="x,kind,y")
    assert set(triples(graph)) == {tuple(map(respelt, row[:3])) for row in rows}
