"""Texts and vectors of labels: read beside triples, carried along by partitions, written and read again."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import os
from pathlib import Path

import numpy as np
import pytest

from fedkge.datasets import (
    KnowledgeGraph,
    Split,
    download,
    load,
    load_graph,
    mark,
    partition,
    unrestricted,
    write_graph,
)
from fedkge.datasets.features import (
    attach,
    coverage_of,
    described_by,
    described_split,
    find,
)
from fedkge.datasets.features.known_texts import KNOWN_TEXTS
from fedkge.datasets.labels import normalised
from fedkge.datasets.registry import RemoteFile
from fedkge.errors import DataError, InputError
from fedkge.experiment import DataSettings, Experiment
from fedkge.simulations.runs.layout import divide, pooled

TRIPLES = "ann\tknows\tbob\nbob\tknows\tcem\ncem\thates\tann\n"


def folder(path: Path, **files: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / "train.tsv").write_text(TRIPLES, encoding="utf-8")
    for name, text in files.items():
        (path / name).write_text(text, encoding="utf-8")
    return path


def described() -> KnowledgeGraph:
    graph = load_graph("UMLS")
    texts = tuple(f"what {label} is" for label in graph.entity_labels)
    rows = np.random.default_rng(0).normal(size=(graph.num_entities, 3)).astype(np.float32)
    relations = tuple(label.replace("_", " ") for label in graph.relation_labels)
    arrays = {split: graph[split] for split in ("train", "valid", "test")}
    labels = graph.entity_labels, graph.relation_labels
    return KnowledgeGraph.from_ids(
        "UMLS", *labels, arrays, None, {"entity": rows}, {"entity": texts, "relation": relations}
    )


def by_label(graph: KnowledgeGraph, kind: str = "entity") -> dict[str, str]:
    return dict(zip(graph.labels[kind], graph.texts[kind], strict=True))


def test_texts_lie_beside_triples_and_the_long_ones_come_first(tmp_path: Path) -> None:
    files = {
        "entity2text.txt": "ann\tshort\nbob\tBob_Jones\nzoe\tnobody\n",
        "entity2textlong.txt": "ann\ta longer text\n",
        "relation2text.txt": "knows\tis acquainted with\n",
    }
    graph = load_graph(folder(tmp_path / "g", **files))
    assert by_label(graph) == {"ann": "a longer text", "bob": "Bob Jones", "cem": ""}
    assert by_label(graph, "relation") == {"knows": "is acquainted with", "hates": ""}
    assert coverage_of(graph, "entity").having == 2


def test_descriptions_of_wikidata_are_read_packed(tmp_path: Path) -> None:
    entries = {"ann": {"label": "Ann", "description": "a sailor"}, "bob": {"label": "Bob"}, "cem": "Cem"}
    path = tmp_path / "people.json.gz"
    path.write_bytes(gzip.compress(json.dumps(entries).encode()))
    graph = attach(load_graph(folder(tmp_path / "g")), [find(str(path))])
    assert by_label(graph) == {"ann": "Ann, a sailor", "bob": "Bob", "cem": "Cem"}


def test_literals_of_rdf_describe_their_subject(tmp_path: Path) -> None:
    path = tmp_path / "people.ttl"
    path.write_text(
        """
        @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix s: <http://schema.org/> .
        @prefix : <http://x/> .
        :ann :knows :bob ; rdfs:label "Anna"@de, "Ann"@en ; s:description "a sailor" ; :age 7 .
        :bob rdfs:comment "a baker"@fr . :knows rdfs:label "knows" . :zoe rdfs:label "nobody" .
        """,
        encoding="utf-8",
    )
    graph = load_graph(path)
    assert by_label(graph) == {"http://x/ann": "Ann, a sailor", "http://x/bob": "a baker"}
    assert by_label(graph, "relation") == {"http://x/knows": "knows"}


def test_vectors_come_by_label(tmp_path: Path) -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.savez(tmp_path / "v.npz", labels=np.array(["cem", "ann", "zoe"]), rows=rows)
    graph = attach(load_graph(folder(tmp_path / "g")), [find(str(tmp_path / "v.npz"))])
    np.testing.assert_array_equal(graph.features["entity"], [[2, 3], [0, 0], [0, 1]])  # ann, bob, cem


def test_a_partition_carries_features_along_and_so_do_files(tmp_path: Path) -> None:
    graph = described()
    split = partition(mark(graph, "0.5", 0), "random", 3, 0)
    for client in (*split.clients, unrestricted(split.clients[0]), normalised(graph)):
        for label, text, row in zip(
            client.entity_labels, client.texts["entity"], client.features["entity"], strict=True
        ):
            assert text == f"what {label} is"
            np.testing.assert_array_equal(row, graph.features["entity"][graph.entity_labels.index(label)])
    write_graph(tmp_path / "client", split.clients[1])
    again = load_graph(tmp_path / "client")
    assert again.texts == split.clients[1].texts
    np.testing.assert_array_equal(again.features["entity"], split.clients[1].features["entity"])
    assert by_label(pooled(split).clients[0]).items() <= by_label(graph).items()


def test_odd_texts_survive_their_file(tmp_path: Path) -> None:
    graph = load_graph(folder(tmp_path / "g"))
    odd = ("two\tcells\nand lines\\n", "# fedkge: escaped", "ö")
    write_graph(
        tmp_path / "again",
        KnowledgeGraph.from_ids("odd", *graph.labels.values(), {"train": graph.train}, texts={"entity": odd}),
    )
    assert load_graph(tmp_path / "again").texts["entity"] == odd


def test_labels_without_features_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "texts.tsv"
    path.write_text("ann\tAnn\nzoe\tZoe\n", encoding="utf-8")
    with caplog.at_level(logging.INFO):
        described_by(load_graph(folder(tmp_path / "g")), [find(str(path))])
    assert "1 of 3 entities have a text or a vector; in place of the others' stands zero" in caplog.text
    assert "1 labels of the files are not in the graph" in caplog.text


def test_a_split_takes_each_clients_own(tmp_path: Path) -> None:
    a, b = load_graph(folder(tmp_path / "g")), load_graph("UMLS")
    (tmp_path / "texts.tsv").write_text("ann\tAnn\n", encoding="utf-8")
    split = described_split(Split.of("two", [a, b], "given"), [find(str(tmp_path / "texts.tsv"))])
    assert by_label(split.clients[0])["ann"] == "Ann"
    assert not any(split.clients[1].texts["entity"])


def test_an_experiment_names_features_below_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDKGE_DATA", str(tmp_path))
    label = load_graph("UMLS").entity_labels[0]
    (tmp_path / "texts.tsv").write_text(f"{label}\tfirst\n", encoding="utf-8")
    data = DataSettings(dataset="UMLS", clients=2, partition="random", features=("texts.tsv",))
    split = divide(Experiment(data=data))
    assert {by_label(graph).get(label, "first") for graph in split.clients} == {"first"}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.tsv", b"ann\tAnn\nbob Bob\n", ["t.tsv, line 2", "a label, a tab and a text"]),
        ("t.tsv", b"ann\tAnn\nann\tAnna\n", ["line 2", "'ann' has another text above"]),
        ("t.tsv", b"ann\t" + b"x" * 10_000_000, ["line 1", "10,000,000 characters", "at most 100,000"]),
        ("t.tsv", b"ann\tAnn\nbob\t\xe9t\xe9\n", ["line 2", "0xe9 is not UTF-8", "convert"]),
        ("t.tsv", b"/m/1\tAnn\n", ["none of its 1 labels, such as '/m/1'", "such as 'ann'"]),
        ("t.tsv", b"", ["t.tsv", "no text and no vector"]),
        ("t.tsv", b"ann\t\nbob\t  \n", ["t.tsv", "no text and no vector"]),
        ("t.tsv", "ann\tAnn\n".encode("utf-16"), ["line 1", "0xff is not UTF-8", "convert"]),
        ("t.tsv", "ann\tAnn\n".encode("utf-16-le"), ["zero bytes", "UTF-16", "convert"]),
        ("t.tsv", bytes(range(256)), ["line 2", "is not UTF-8"]),
        ("t.tsv", b"\x00\x01\tb\x00\n", ["zero bytes", "binary"]),
        (
            "t.tsv.gz",
            gzip.compress(b"ann\tAnn\n" * 99, mtime=0)[:-9],
            ["t.tsv.gz", "cannot be read", "copy it again"],
        ),
        ("t.tsv.gz", b"ann\tAnn\n", ["t.tsv.gz", "cannot be read"]),
        ("t.npz.gz", gzip.compress(b"PK\x03\x04 cut", mtime=0), ["t.npz", "expected an .npz"]),
        (
            "t.tsv",
            b"knows\tis acquainted with\n",
            ["taken for those of entity", "'relation:' before the path"],
        ),
        ("t.json", b'{"ann": "a", "ann": "b"}', ["'ann' stands there twice"]),
        ("t.json", b"[" * 100_000, ["not JSON"]),
        ("t.json", b'{"ann": "' + b"x" * 10_000_000 + b'"}', ["'ann'", "10,000,000 characters"]),
        ("t.json", b'{"ann": ', ["t.json", "not JSON"]),
        ("t.json", b"[1]", ["expected an object"]),
        ("t.json", b'{"ann": 3}', ["'ann'", "expected a text"]),
        ("t.json", b'{"ann": ' + b"1" * 5000 + b"}", ["t.json", "too many digits", "in quotes"]),
        ("t.npz", b"PK", ["t.npz", "expected an .npz with arrays 'labels'"]),
    ],
)
def test_bad_features_get_one_clear_line(tmp_path: Path, name: str, content: bytes, words: list[str]) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        attach(load_graph(folder(tmp_path / "g")), [find(str(tmp_path / name))])
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    for word in words:
        assert word in message, message


def test_vectors_that_are_none_are_refused(tmp_path: Path) -> None:
    graph = load_graph(folder(tmp_path / "g"))
    labels = np.array(["ann", "bob"])
    bad = {
        "rows.*shape": (labels, np.ones(2)),
        "finite": (labels, np.full((2, 2), np.nan)),
        "finite numbers": (labels, np.full((2, 2), np.inf)),
        "other than finite": (labels, np.full((2, 2), 1e300)),
        "something other": (labels, np.full((2, 2), "1")),
        "'ann' has more than one row": (np.array(["ann", "ann"]), np.ones((2, 2))),
        "rows' of shape": (labels, np.ones((3, 2))),
        "labels.*int64": (np.arange(2), np.ones((2, 2))),
        "pickled": (np.array(["ann", "bob"], dtype=object), np.ones((2, 2))),
    }
    for words, (names, rows) in bad.items():
        np.savez(tmp_path / "v.npz", labels=names, rows=rows)
        with pytest.raises(DataError, match=words):
            find(str(tmp_path / "v.npz"))
    for width in (2, 3):
        np.savez(tmp_path / f"{width}.npz", labels=labels, rows=np.ones((2, width)))
    with pytest.raises(DataError, match=r"different widths: 2 in .*2\.npz, 3 in"):
        attach(graph, [find(str(tmp_path / f"{width}.npz")) for width in (2, 3)])


def test_ragged_vectors_are_refused(tmp_path: Path) -> None:
    ragged = np.empty(2, dtype=object)
    ragged[:] = [np.ones(2), np.ones(3)]
    np.savez(tmp_path / "v.npz", labels=np.array(["ann", "bob"]), rows=ragged)
    with pytest.raises(DataError, match="without pickled objects"):
        find(str(tmp_path / "v.npz"))


def test_features_of_relations_are_not_taken_for_those_of_entities(tmp_path: Path) -> None:
    graph = load_graph(folder(tmp_path / "g"))
    (tmp_path / "r.tsv").write_text("knows\tis acquainted with\n", encoding="utf-8")
    assert by_label(attach(graph, [find(f"relation:{tmp_path / 'r.tsv'}")]), "relation")["knows"]
    (tmp_path / "e.tsv").write_text("ann\tAnn\n", encoding="utf-8")
    with pytest.raises(DataError, match="are entity labels of g; write the path without 'relation:'"):
        attach(graph, [find(f"relation:{tmp_path / 'e.tsv'}")])


def test_a_literal_of_ten_megabytes_is_refused(tmp_path: Path) -> None:
    label = "<http://www.w3.org/2000/01/rdf-schema#comment>"
    (tmp_path / "g.nt").write_text(
        f'<http://x/a> <http://x/r> <http://x/b> .\n<http://x/a> {label} "{"x" * 10_000_000}" .\n',
        encoding="utf-8",
    )
    with pytest.raises(DataError, match=r"g\.nt: the literals that describe 'http://x/a' have 10,000,000"):
        load_graph(tmp_path / "g.nt")


def test_of_several_literals_one_is_chosen_whatever_their_order(tmp_path: Path) -> None:
    """English or no language first, then by language and alphabet; a name before what is said of it."""
    literals = [
        'rdfs:label "Kuh"@de',
        'rdfs:label "cow"@en',
        'rdfs:label "cattle"@en-GB',
        'rdfs:comment "vache"@fr',
        'rdfs:comment "an animal"',
        'rdfs:comment "a beast"',
        's:description "gives milk"@en',
        "s:age 7",
        's:note "left out"',
    ]
    head = "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix s: <http://schema.org/> .\n"
    for order in (literals, literals[::-1]):
        path = tmp_path / "g.ttl"
        lines = "".join(f"<http://x/a> {literal} .\n" for literal in order)
        path.write_text(f"{head}{lines}<http://x/a> <http://x/eats> <http://x/b> .\n", encoding="utf-8")
        graph = load_graph(path)
        assert by_label(graph)["http://x/a"] == "cow, a beast, gives milk"
        assert graph.num_triples == 1


def test_a_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDKGE_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"no file none\.tsv or .*/none\.tsv; give a path"):
        find("relation:none.tsv")


def test_texts_of_another_number_of_labels_are_refused() -> None:
    graph = load_graph("UMLS")
    splits = graph.train, graph.valid, graph.test
    with pytest.raises(DataError, match="1 texts of 'entity'; expected one"):
        KnowledgeGraph("x", *graph.labels.values(), *splits, texts={"entity": ("a",)})


def test_a_file_of_texts_is_no_file_of_triples(tmp_path: Path) -> None:
    path = folder(tmp_path / "g", **{"entity2text.txt": "ann\tAnn\n"})
    (path / "train.tsv").rename(path / "people.tsv")
    loaded = load(path)
    assert isinstance(loaded, KnowledgeGraph)
    assert by_label(loaded)["ann"] == "Ann"


def test_a_published_file_is_downloaded_where_it_is_not_at_hand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FEDKGE_DATA", str(tmp_path / "empty"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "cache.txt").write_text("ann\tAnn of the download\n", encoding="utf-8")
    asked = []

    def located(file: RemoteFile) -> Path:
        asked.append(file)
        return tmp_path / "cache.txt"

    monkeypatch.setattr(download, "locate", located)
    assert find("text/UMLS-entity2text.txt").texts == {"ann": "Ann of the download"}
    assert asked == [KNOWN_TEXTS["text/UMLS-entity2text.txt"]]


@pytest.mark.parametrize("path", KNOWN_TEXTS)
def test_known_texts_are_those_of_the_data_folder(path: str) -> None:
    place = Path(os.environ.get("FEDKGE_DATA", "")) / f"{path}.gz"
    if not place.is_file():
        pytest.skip("needs FEDKGE_DATA")
    digest = hashlib.sha256(gzip.decompress(place.read_bytes())).hexdigest()
    assert digest == KNOWN_TEXTS[path].sha256
    assert find(path).texts == find(f"{path}.gz").texts
