"""Labels are spelt one way from the moment they are loaded, and local ones stay apart."""

from __future__ import annotations

import tempfile
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.crypto.union.pseudonyms import normalize
from fedkge.datasets import KnowledgeGraph, LabelledTriples, Split, audit, load, load_graph, mark, write_graph
from fedkge.datasets.labels import common_rows, normalised, owned_labels
from fedkge.errors import UnknownNameError

NFC, NFD = "Café", "Cafe\u0301"
text = st.text(
    alphabet=st.sampled_from(["e", "\u0301", "é", "Å", "\u212b", "가", "\u1100", "\u1161", "a"]), max_size=4
)


def nfc(label: str) -> str:
    return unicodedata.normalize("NFC", label)


@given(st.lists(st.tuples(text, text, text), min_size=1, max_size=8))
def test_loaded_labels_are_what_the_union_makes_of_them(rows: list[tuple[str, str, str]]) -> None:
    graph = KnowledgeGraph.from_labels("g", {"train": LabelledTriples(*zip(*rows, strict=True))})
    with tempfile.TemporaryDirectory() as folder:
        write_graph(Path(folder) / "g", graph)
        loaded = load_graph(Path(folder) / "g")
    labels = (*loaded.entity_labels, *loaded.relation_labels)
    assert all(normalize(label) == label.encode() for label in labels)
    assert set(loaded.entity_labels) == {nfc(label) for h, _, t in rows for label in (h, t)}
    assert len(set(loaded.entity_labels)) == loaded.num_entities
    triples = loaded.labelled("train")
    found = set(zip(triples.heads, triples.relations, triples.tails, strict=True))
    assert found == {tuple(map(nfc, row)) for row in rows}
    assert normalised(loaded) is loaded


def test_two_spellings_become_one_entity_and_their_triples_one(tmp_path: Path) -> None:
    lines = [f"{NFC}\tin\tRome\t0", f"{NFD}\tin\tRome\t1", f"{NFD}\tin\tOslo\t0", f"{NFD}\tin\tOslo\t0"]
    (tmp_path / "train.tsv").write_text("head\trelation\ttail\tconfidential\n" + "\n".join(lines) + "\n")
    graph = load_graph(tmp_path)
    assert graph.entity_labels == (NFC, "Rome", "Oslo")
    assert graph.train.tolist() == [[0, 0, 1], [0, 0, 2], [0, 0, 2]]  # a copy in the file is the audit's
    assert graph.marks("train").tolist() == [True, False, False]  # marked under either spelling
    assert audit(Split.single(graph)).merged_labels == 1


def test_every_format_is_normalised(tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text(f"<http://h/{NFD}> <http://h/in> <http://h/Rome> .\n")
    (tmp_path / "b.csv").write_text(f"{NFD},in,Rome\n")
    ids = tmp_path / "ids"
    ids.mkdir()
    (ids / "entity2id.txt").write_text(f"3\n{NFD}\t0\n{NFC}\t1\nRome\t2\n")
    (ids / "relation2id.txt").write_text("1\nin\t0\n")
    (ids / "train2id.txt").write_text("2\n0 2 0\n1 2 0\n")
    for source in ("a.nt", "b.csv", "ids"):
        graph = load_graph(tmp_path / source)
        assert [label.rpartition("/")[2] for label in graph.entity_labels] == [NFC, "Rome"]
        assert graph.train.tolist() == [[0, 0, 1]]


def test_a_given_split_is_normalised_client_by_client(tmp_path: Path) -> None:
    for number, label in enumerate((NFC, NFD)):
        (tmp_path / f"client-{number}").mkdir()
        (tmp_path / f"client-{number}" / "train.tsv").write_text(f"{label}\tin\tRome\n", encoding="utf-8")
    split = load(tmp_path)
    assert isinstance(split, Split)
    assert split.entity_labels == (NFC, "Rome")
    assert split.merged_labels == 0  # no client has both
    assert split.entity_ids[0].tolist() == split.entity_ids[1].tolist() == [0, 1]


def test_predicates_are_found_in_any_spelling(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(f"a\t{NFC}\tb\n", encoding="utf-8")
    assert mark(load_graph(tmp_path), f"predicates:{NFD}").marks("train").all()


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("/people/*", {"/people/born", "/people/died"}),
        ("/people/*,/medicine/drug", {"/people/born", "/people/died", "/medicine/drug"}),
        ("*d|a,b", {"/people/died", "a,b"}),
        ("/people/born", {"/people/born"}),
        ("*", {"/people/born", "/people/died", "/medicine/drug", "a,b", "x.y"}),
        ("x*y", {"x.y"}),
    ],
)
def test_predicates_are_chosen_by_pattern(rule: str, expected: set[str], tmp_path: Path) -> None:
    labels = ("/people/born", "/people/died", "/medicine/drug", "a,b", "x.y")
    (tmp_path / "train.tsv").write_text("".join(f"a\t{label}\tb\n" for label in labels), encoding="utf-8")
    graph = mark(load_graph(tmp_path), f"predicates:{rule}")
    relations = np.array(graph.labelled("train").relations)
    assert set(relations[graph.marks("train")]) == expected


@pytest.mark.parametrize("rule", ["/people", "/person/*", "x.?", "/people/*,/person/*"])
def test_a_pattern_that_fits_nothing_is_refused(rule: str, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("a\t/people/born\tb\na\tx.y\tb\n", encoding="utf-8")
    with pytest.raises(UnknownNameError, match="predicate"):
        mark(load_graph(tmp_path), f"predicates:{rule}")


def test_common_labels_come_in_alphabetical_order() -> None:
    np.testing.assert_array_equal(common_rows(("b", "_:x", "a", "c")), [2, 0, 3])


def test_local_labels_are_marked_once_and_never_two_alike() -> None:
    labels = ("_:a", "Rome", "_:client-1.a")
    once = owned_labels(labels, 1)
    assert once == ("_:client-1.a", "Rome", "_:client-1.client-1.a")
    assert owned_labels(once, 1) == once
    assert not set(owned_labels(once, 0)) & set(once) - {"Rome"}
    np.testing.assert_array_equal(common_rows(once), [1])


@pytest.mark.parametrize("term", ["_:b", "<http://h/b>"])
def test_a_statement_about_a_blank_node_is_local_too(term: str, tmp_path: Path) -> None:
    (tmp_path / "a.ttl").write_text(
        f"<http://h/x> <http://h/says> <<( {term} <http://h/is> <http://h/c> )>> .\n"
    )
    (quoted,) = (label for label in load_graph(tmp_path / "a.ttl").entity_labels if "<<" in label)
    assert quoted.startswith("_:") == term.startswith("_:")
