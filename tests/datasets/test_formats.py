"""Every format reads what it should, and what is written comes back unchanged."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.datasets import (
    SPLITS,
    KnowledgeGraph,
    LabelledTriples,
    Split,
    load,
    load_graph,
    partition,
    write_graph,
    write_pickle,
    write_split,
)
from fedkge.datasets.formats import FORMATS, TripleFile
from fedkge.datasets.formats.container import read_text
from fedkge.datasets.labels import respelt
from fedkge.errors import DataError
from fedkge.experiment import Experiment
from fedkge.simulations.runs.run import run

TSV = "Ada\tknows\tBob\nBob\tknows\tCleo\n"

labels = st.text(max_size=6) | st.sampled_from(
    [
        "",
        " ",
        "\t",
        "\n",
        "\r\n",
        "a\tb",
        "\\t",
        "\\",
        "#",
        "# fedkge: escaped",
        "\ufeffx",
        "head",
        "relation",
        "tail",
        "ü",
        "\u2028",
    ]
)
labels = labels.map(respelt)  # another spelling would not come back: see test_labels
labelled = st.lists(st.tuples(labels, labels, labels), min_size=1, max_size=8)


def graph_of(rows: list[tuple[str, str, str]], marked: bool = False) -> KnowledgeGraph:
    heads, relations, tails = map(list, zip(*rows, strict=True))
    marks = np.arange(len(rows)) % 2 == 0 if marked else None
    third = LabelledTriples(heads[:1], relations[:1], tails[:1], None if marks is None else marks[:1])
    return KnowledgeGraph.from_labels(
        "g", {"train": LabelledTriples(heads, relations, tails, marks), "valid": third, "test": third}
    )


def assert_same(first: KnowledgeGraph, second: KnowledgeGraph) -> None:
    assert first.entity_labels == second.entity_labels
    assert first.relation_labels == second.relation_labels
    for split in SPLITS:
        np.testing.assert_array_equal(first[split], second[split])
        np.testing.assert_array_equal(first.marks(split), second.marks(split))


@given(labelled, st.booleans())
def test_a_graph_survives_tsv_whatever_its_labels(rows: list[tuple[str, str, str]], marked: bool) -> None:
    graph = graph_of(rows, marked)
    with tempfile.TemporaryDirectory() as folder:
        write_graph(Path(folder), graph)
        assert_same(load_graph(folder), graph)


@given(labelled)
def test_a_split_survives_tsv_and_then_pickle(rows: list[tuple[str, str, str]]) -> None:
    split = Split.of("s", [graph_of(rows), graph_of(rows[::-1])], "none")
    with tempfile.TemporaryDirectory() as folder:
        write_split(Path(folder) / "tsv", split)
        from_tsv = load(Path(folder) / "tsv")
        assert isinstance(from_tsv, Split)
        assert from_tsv.content_hash == split.content_hash
        assert from_tsv.entity_labels == split.entity_labels
        write_pickle(Path(folder) / "a.pkl", from_tsv)
        from_pickle = load(Path(folder) / "a.pkl")
        assert isinstance(from_pickle, Split)
        assert from_pickle.content_hash == split.content_hash
        for ours, theirs in zip(split.clients, from_pickle.clients, strict=True):
            assert_same(ours, theirs)


def test_published_pickles_survive_tsv_and_come_back_array_for_array(
    data_folder: Path, tmp_path: Path, published: dict[int, Split]
) -> None:
    write_split(tmp_path / "tsv", published[5])
    again = load(tmp_path / "tsv")
    assert isinstance(again, Split)
    write_pickle(tmp_path / "again.pkl", again)
    assert_equal_pickles(data_folder / "fedr" / "DDB14-Fed5.pkl", tmp_path / "again.pkl")


def assert_equal_pickles(first: Path, second: Path) -> None:
    with first.open("rb") as a, second.open("rb") as b:
        one, two = pickle.load(a), pickle.load(b)  # noqa: S301 - files this test trusts
    assert len(one) == len(two)
    for left, right in zip(one, two, strict=True):
        assert list(left) == list(right)
        for split in left:
            assert list(left[split]) == list(right[split])
            for key in left[split]:
                assert left[split][key].dtype == right[split][key].dtype
                np.testing.assert_array_equal(left[split][key], right[split][key])


def write_archive(kind: str, path: Path) -> Path:
    (path / "src").mkdir()
    for split in SPLITS:
        (path / "src" / f"{split}.txt").write_text(TSV)
    target = path / f"g.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(target, "w") as archive:
            for split in SPLITS:
                archive.write(path / "src" / f"{split}.txt", f"inner/{split}.txt")
    else:
        with tarfile.open(target, "w:gz") as tar:
            for split in SPLITS:
                tar.add(path / "src" / f"{split}.txt", f"./inner/{split}.txt")
    return target


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_archives_are_read_without_unpacking(kind: str, tmp_path: Path) -> None:
    graph = load_graph(write_archive(kind, tmp_path))
    assert graph.name == "g"
    assert graph.entity_labels == ("Ada", "Bob", "Cleo")
    assert [len(graph[split]) for split in SPLITS] == [2, 2, 2]


def test_one_file_is_all_train_gzipped_or_not(tmp_path: Path) -> None:
    (tmp_path / "plain.tsv").write_text(TSV)
    (tmp_path / "packed.tsv.gz").write_bytes(gzip.compress(TSV.encode()))
    assert_same(load_graph(tmp_path / "plain.tsv"), load_graph(tmp_path / "packed.tsv.gz"))


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.tsv", "Ada\tBob\tknows\nBob\tCleo\tknows\n", "htr"),
        ("a.tsv", "tail\trelation\thead\nBob\tknows\tAda\nCleo\tknows\tBob\n", None),
        ("a.csv", "subject,predicate,object\nAda,knows,Bob\nBob,knows,Cleo\n", None),
        ("a.csv", '"Ada",knows,Bob\n"Bob",knows,Cleo\n', None),
        ("a.txt", "\ufeffAda\tknows\tBob\r\n\r\nBob\tknows\tCleo\r\n", None),
        ("a.tsv", "source\trel\tweight\ttarget\nAda\tknows\t3\tBob\nBob\tknows\t2\tCleo", None),
        ("a.nt", "<Ada> <knows> <Bob> .\n<Bob> <knows> <Cleo> .\n".replace("<", "<http://x/"), None),
        ("a.ttl", "@prefix x: <http://x/> . x:Ada x:knows x:Bob . x:Bob x:knows x:Cleo .", None),
    ],
)
def test_dialects_of_the_same_two_triples(name: str, text: str, columns: str | None, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    graph = load_graph(tmp_path / name, columns=columns)
    assert [label.removeprefix("http://x/") for label in graph.entity_labels] == ["Ada", "Bob", "Cleo"]
    assert graph.train.tolist() == [[0, 0, 1], [1, 0, 2]]


def test_a_header_can_be_denied_or_insisted_on(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("h\tr\tt\nAda\tknows\tBob\n")
    assert len(load_graph(tmp_path / "a.tsv").train) == 1
    assert len(load_graph(tmp_path / "a.tsv", header=False).train) == 2
    (tmp_path / "b.tsv").write_text("von\tist\tnach\nAda\tknows\tBob\n")
    assert len(load_graph(tmp_path / "b.tsv", header=True).train) == 1


def test_a_column_marks_confidential_statements(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("head\trelation\ttail\tconfidential\na\tr\tb\t1\na\tr\tc\t0\n")
    assert load_graph(tmp_path / "a.tsv").marks("train").tolist() == [True, False]


def test_a_backslash_in_a_foreign_file_stays_a_backslash(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("C:\\temp\tin\tC:\\\\temp\n")
    assert load_graph(tmp_path / "a.tsv").entity_labels == ("C:\\temp", "C:\\\\temp")


def test_literals_of_rdf_are_left_out_and_said_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.nt").write_text('<http://a> <http://p> <http://b> .\n<http://a> <http://name> "A" .\n')
    graph = load_graph(tmp_path / "a.nt")
    assert graph.entity_labels == ("http://a", "http://b")
    assert "left out 1 statements" in caplog.text


def test_id_form_has_its_own_column_order(tmp_path: Path) -> None:
    (tmp_path / "entity2id.txt").write_text("3\nBob\t1\nAda Lovelace\t0\nunused\t2\n")
    (tmp_path / "relation2id.txt").write_text("1\nknows\t0\n")
    (tmp_path / "train2id.txt").write_text("1\n0 1 0\n")
    graph = load_graph(tmp_path)
    assert graph.entity_labels == ("Ada Lovelace", "Bob", "unused")
    assert graph.train.tolist() == [[0, 0, 1]]
    assert len(graph.test) == 0


def test_a_folder_of_clients_is_a_split(tmp_path: Path, umls: KnowledgeGraph) -> None:
    write_split(tmp_path / "s", partition(umls, "random", clients=3))
    loaded = load(tmp_path / "s")
    assert isinstance(loaded, Split)
    assert loaded.num_clients == 3
    alone = load_graph(tmp_path / "s" / "client-1")
    assert_same(alone, loaded.clients[1])


def test_the_name_itself_counts_before_its_synonyms(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("head\trelation\ttail\tsource\nAda\tknows\tBob\tdiary\n")
    assert load_graph(tmp_path / "a.tsv").entity_labels == ("Ada", "Bob")


def test_an_order_leaves_the_column_of_marks_alone(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("head\ttail\trelation\tconfidential\na\tb\tr\t1\na\tc\tr\t0\n")
    graph = load_graph(tmp_path / "a.tsv", columns="htr")
    assert graph.marks("train").tolist() == [True, False]
    assert graph.relation_labels == ("r",)


def test_an_unknown_header_is_skipped_whatever_the_order(tmp_path: Path) -> None:
    (tmp_path / "b.tsv").write_text("von\tnach\tist\nAda\tBob\tknows\n")
    graph = load_graph(tmp_path / "b.tsv", columns="htr", header=True)
    assert graph.entity_labels == ("Ada", "Bob")


def test_blank_nodes_have_the_same_names_every_time_and_belong_to_their_file(tmp_path: Path) -> None:
    for split, name in (("train", "x"), ("test", "y")):
        (tmp_path / f"{split}.ttl").write_text(
            f"@prefix h: <http://h/> . _:b h:is h:{name} . h:{name} h:has [ h:is h:z ] ."
        )
    graph, again = load_graph(tmp_path), load_graph(tmp_path)
    assert graph.entity_labels == again.entity_labels
    blank = [label for label in graph.entity_labels if label.startswith("_:")]
    assert blank == ["_:train0", "_:train1", "_:test0", "_:test1"]


def test_a_line_separator_in_a_label_does_not_end_the_line(tmp_path: Path) -> None:
    (tmp_path / "entity2id.txt").write_text("2\na\u2028b\t0\nc\t1\n")
    (tmp_path / "relation2id.txt").write_text("1\r\nr\t0\r\n")
    (tmp_path / "train2id.txt").write_text("1\n0 1 0\n")
    assert load_graph(tmp_path).entity_labels == ("a\u2028b", "c")


class JsonLines(TripleFile):
    """A JSON object a line."""

    suffixes = (".jsonl",)

    def read(self, member, scope, layout):
        rows = [json.loads(line) for line in read_text(member).splitlines()]
        return LabelledTriples(*([row[key] for row in rows] for key in ("head", "relation", "tail")))


def write_json_lines(folder: Path, graph: KnowledgeGraph) -> None:
    folder.mkdir()
    for name in SPLITS:
        rows = graph.labelled(name)
        cells = zip(rows.heads, rows.relations, rows.tails, strict=True)
        lines = [json.dumps(dict(zip(("head", "relation", "tail"), row, strict=True))) for row in cells]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))


def test_a_format_is_one_class_and_one_line(
    tmp_path: Path, umls: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json_lines(tmp_path / "graph", umls)
    with pytest.raises(
        DataError, match=r"no triples found .*one \.tsv, \.csv, \.sif, \.nt, \.ttl or \.pkl file"
    ):
        load(tmp_path / "graph")
    monkeypatch.setitem(FORMATS, "json", JsonLines)
    for source in (
        tmp_path / "graph",
        Path(shutil.make_archive(str(tmp_path / "g"), "zip", tmp_path / "graph")),
    ):
        graph = load_graph(source)
        for name in SPLITS:
            assert graph.labelled(name) == umls.labelled(name)
    assert load_graph(tmp_path / "graph" / "train.jsonl").name == "train"
    with pytest.raises(DataError, match=r"absent\.jsonl: no such file"):
        load("absent.jsonl")
    (tmp_path / "split").mkdir()
    for number in range(2):
        write_json_lines(tmp_path / "split" / f"client-{number}", umls)
    split = load(tmp_path / "split")
    assert isinstance(split, Split)
    assert split.num_clients == 2


def test_a_run_takes_its_data_from_a_format_outside(
    tmp_path: Path, umls: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, "json", JsonLines)
    write_json_lines(tmp_path / "lines", umls)
    write_graph(tmp_path / "tabs", umls)
    hashes = set()
    for source in ("lines", "tabs"):
        experiment = Experiment(
            data={"dataset": str(tmp_path / source), "clients": 2},
            model={"dim": 8},
            training={"local_epochs": 1, "negatives": 4},
            federation={"rounds": 1, "strategy": "Local"},
            engine={"name": "inline"},
        )
        hashes.add(run(experiment, tmp_path / f"run-{source}").summary["result_hash"])
    assert len(hashes) == 1
