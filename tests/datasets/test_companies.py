"""Listed companies are read as written, with codes made whole, and divided by their exchange."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from fedkge.datasets import KnowledgeGraph, load, load_graph
from fedkge.datasets.partition.exchange import exchanges
from fedkge.errors import DataError

FILES = {
    "concept.csv": "concept_id:ID(Concept),name,:LABEL\nc1,芯片,Concept\n",
    "industry.csv": "industry_id:ID(Industry),name,:LABEL\ni1,银行,Industry\n",
    "stock_concept.csv": ":START_ID(Stock),:END_ID(Concept),:TYPE\n8,c1,concept_of\n600007,c1,concept_of\n",
    "stock_industry.csv": ":START_ID,:END_ID,:TYPE\n600007,i1,industry_of\n",
    "executive_stock.csv": ":START_ID(Executive),jobs,:END_ID(Stock),:TYPE\np1,董事长/董事,8,employ_of\n",
}


def write(folder: Path, **changed: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in FILES.items():
        (folder / name).write_text(changed.get(name.removesuffix(".csv"), content), encoding="utf-8")
    return folder


def test_a_clone_of_the_repository_is_read(tmp_path: Path) -> None:
    graph = load_graph(write(tmp_path / "import"))
    rows = graph.labelled("train")
    assert set(zip(rows.heads, rows.relations, rows.tails, strict=True)) == {
        ("person:p1", "董事长", "company:000008"),
        ("person:p1", "董事", "company:000008"),
        ("company:000008", "concept_of", "concept:芯片"),
        ("company:600007", "concept_of", "concept:芯片"),
        ("company:600007", "industry_of", "industry:银行"),
    }


def test_rare_titles_share_a_relation_and_copies_are_left_out(tmp_path: Path) -> None:
    titles = [f"t{number:02d}" for number in range(14)]
    often = "".join(f"p{n},{title},1,employ_of\n" for n, title in enumerate(titles[:11] * 2))
    rare = f"q,{'/'.join(titles[11:])},1,employ_of\n"
    header = ":START_ID(Executive),jobs,:END_ID(Stock),:TYPE\n"
    graph = load_graph(write(tmp_path / "import", executive_stock=header + rare + often))
    assert set(graph.relation_labels) == {*titles[:11], "其他", "concept_of", "industry_of"}
    assert Counter(graph.labelled("train").relations)["其他"] == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"stock_concept": ":START_ID,:END_ID\n8,c9\n"}, r"stock_concept\.csv, line 2: .*no id 'c9'"),
        ({"executive_stock": "a,b\n1,2\n"}, r"executive_stock\.csv, line 1: no column ':START_ID'"),
        ({"concept": ""}, r"concept\.csv, line 1: no column ':ID' \(it has none\)"),
        ({"stock_industry": ":START_ID,:END_ID\n8\n"}, r"stock_industry\.csv, line 2: expected 2"),
    ],
)
def test_bad_files_are_named_with_their_line(changed: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load_graph(write(tmp_path / "import", **changed))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "import")
    (folder / "industry.csv").unlink()
    with pytest.raises(DataError, match=r"industry\.csv not; add it beside"):
        load_graph(folder)


def test_every_statement_is_of_one_exchange(data_folder: Path) -> None:
    """Counted again from the published files, codes as they stand there."""
    graph = load_graph("StockKG")
    shanghai, shenzhen = exchanges(graph)
    assert len(shanghai) + len(shenzhen) == graph.num_triples
    relations = Counter(graph.relation_labels[r] for r in graph.train[shanghai, 1])
    for name, column in (("concept", 0), ("industry", 0)):
        text = gzip.decompress((data_folder / "stock-kg" / f"stock_{name}.csv.gz").read_bytes()).decode()
        codes = [line.split(",")[column] for line in text.split()[1:]]
        assert relations[f"{name}_of"] == sum(len(code) == 6 and code[0] in "69" for code in codes)


def test_the_exchanges_are_two_clients_with_companies_of_their_own(data_folder: Path) -> None:
    split = load("StockKG-Exchanges")
    assert not isinstance(split, KnowledgeGraph)
    first, second = (
        {label for label in client.entity_labels if label.startswith("company:")} for client in split.clients
    )
    assert not first & second
    assert {label[8] for label in first} == {"6", "9"}
    assert {label[8] for label in second} == {"0", "2", "3"}
    assert split.unseen == 0


def test_other_graphs_have_no_exchanges(umls: KnowledgeGraph) -> None:
    with pytest.raises(DataError, match="StockKG"):
        exchanges(umls)
