"""A network is what its edge list says, less what is no edge; and what it lacks is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.datasets import KnowledgeGraph, Split, audit, load, load_graph, partition, write_split
from fedkge.datasets.networks.network import as_network, is_network, network_of, symmetric_adjacency
from fedkge.errors import DataError, InputError, SettingError
from fedkge.simulations.runs.layout import pooled

CLASSES = "a\tx\nb\tx\nc\ty\nd\ty\ne\tx\n"


def written(folder: Path, edges: str, classes: str | None = CLASSES, name: str = "edges.tsv") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(edges)
    if classes is not None:
        (folder / "classes.tsv").write_text(classes)
    return folder


@pytest.mark.parametrize(
    ("name", "classes", "loops", "repeated", "isolated"),
    [("Cora", 7, 0, 151, 0), ("Citeseer", 6, 123, 55, 48), ("Wiki", 17, 1996, 4389, 42)],
)
def test_published_networks_are_as_counted(
    name: str, classes: int, loops: int, repeated: int, isolated: int, data_folder: Path
) -> None:
    """Wiki has 17 classes, whatever papers say, and 42 pages that link to themselves alone."""
    graph = load_graph(name)
    facts = audit(Split.single(graph)).network
    assert facts is not None
    assert (facts.classes, facts.self_loops, facts.repeated) == (classes, loops, repeated)
    assert (facts.isolated, facts.edges, facts.unclassified) == (isolated, len(graph.train), 0)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1), st.booleans())
def test_edges_are_a_set(pairs: list[tuple[int, int]], directed: bool) -> None:
    """Against sets of tuples and of frozensets."""
    graph = network_of("drawn", tuple("abcdefg"), np.array(pairs), directed)
    proper = [pair for pair in pairs if pair[0] != pair[1]]
    kind = tuple if directed else frozenset
    edges = [kind(pair) for pair in graph.train[:, [0, 2]].tolist()]
    assert len(edges) == len(set(edges))
    assert set(edges) == {kind(pair) for pair in proper}
    assert graph.edge_list is not None
    assert graph.edge_list.edges == len(edges)
    dense = symmetric_adjacency(graph.train[:, [0, 2]], 7).toarray()
    expected = np.zeros((7, 7))
    for head, tail in proper:
        expected[head, tail] = expected[tail, head] = 1
    np.testing.assert_array_equal(dense, expected)


def test_a_directed_network_keeps_both_arcs(tmp_path: Path) -> None:
    edges = "a b\nb a\na b\nc d\nd e\n"
    assert len(load_graph(written(tmp_path / "arcs", edges, name="arcs.tsv")).train) == 4
    assert len(load_graph(written(tmp_path / "edges", edges)).train) == 3
    graph = load_graph(f"network:edges={tmp_path / 'arcs' / 'arcs.tsv'},directed=1")
    assert len(graph.train) == 4


def test_any_edge_list_and_any_graph_is_a_network(tmp_path: Path, umls: KnowledgeGraph) -> None:
    path = tmp_path / "friends.txt"
    path.write_text("# people\nann bob\nbob cem\n")
    friends = load_graph(f"network:edges={path}")
    assert is_network(friends)
    assert friends.name == "friends"
    seen = load_graph("network:graph=UMLS")
    pairs = {frozenset(pair) for pair in umls.triples[:, [0, 2]].tolist() if pair[0] != pair[1]}
    assert {frozenset(pair) for pair in seen.triples[:, [0, 2]].tolist()} == pairs
    assert seen.num_triples == len(pairs)
    assert is_network(as_network(umls, directed=True))


def test_a_split_of_a_network_comes_back_with_its_classes(tmp_path: Path) -> None:
    edges = "\n".join(f"{'abcde'[i]} {'abcde'[j]}" for i in range(5) for j in range(i))
    graph = load_graph(written(tmp_path / "net", edges))
    split = partition(graph, "edges:valid=0.2,test=0.2", clients=2)
    write_split(tmp_path / "split", split)
    again = load(tmp_path / "split")
    assert isinstance(again, Split)
    for before, after in zip(split.clients, again.clients, strict=True):
        assert dict(zip(before.entity_labels, before.classes, strict=True)) == dict(
            zip(after.entity_labels, after.classes, strict=True)
        )
        assert (len(after.train), len(after.valid), len(after.test)) == (3, 1, 1)
    assert again.content_hash == split.content_hash


@pytest.mark.parametrize("name", ["edges.tsv", "arcs.tsv"])
def test_a_written_split_is_a_network_again(tmp_path: Path, name: str) -> None:
    """With directions or without, with classes, and with the vertices that no client has."""
    edges = "\n".join(f"{'abcde'[i]} {'abcde'[j]}" for i in range(5) for j in range(5)) + "\na b\n"
    classes = CLASSES + "lonely\ty\n"
    split = partition(load_graph(written(tmp_path / "net", edges, classes, name)), "edges", clients=2)
    write_split(tmp_path / "split", split)
    again = load(tmp_path / "split")
    assert isinstance(again, Split)
    assert "lonely" in again.entity_labels
    assert all(map(is_network, again.clients))
    for before, after in zip(split.clients, again.clients, strict=True):
        assert after.edge_list == before.edge_list
        assert after.edge_list is not None
        assert (after.edge_list.directed, after.edge_list.rows) == (name == "arcs.tsv", after.num_triples)
    facts = audit(again).network
    assert facts is not None
    assert facts.directed == (name == "arcs.tsv")
    (tmp_path / "split" / "client-1" / "network.json").write_text("{}")
    with pytest.raises(DataError, match=r"network.json: not what fedkge writes .*write the split again"):
        load(tmp_path / "split")


def test_a_network_in_one_hand_keeps_what_its_edge_list_said(tmp_path: Path) -> None:
    graph = load_graph(written(tmp_path / "net", "a b\nb c\nc d\nd e\na c\n"))
    whole = pooled(partition(graph, "edges:valid=0,test=0", clients=2)).clients[0]
    assert whole.edge_list is not None
    assert (whole.edge_list.directed, whole.edge_list.edges) == (False, 5)


def test_vertices_without_an_edge_are_there_and_told_of(tmp_path: Path) -> None:
    graph = load_graph(written(tmp_path / "net", "a b\nb c\n"))
    assert graph.num_entities == 5
    assert "2 vertices have no edge" in " ".join(audit(Split.single(graph)).cautions)


def test_one_class_is_told_of(tmp_path: Path) -> None:
    graph = load_graph(written(tmp_path / "net", "a b\n", "a x\nb x\n"))
    assert "one class" in " ".join(audit(Split.single(graph)).cautions)


@pytest.mark.parametrize(
    ("edges", "classes", "message"),
    [
        ("a f\nb c\n", CLASSES, r"classes.tsv: no class for 1 of the 6 vertices of .*, such as 'f'; add"),
        ("a b c\n", None, r"edges.tsv, line 1: expected two vertices, .* found 3 columns"),
        ("a b\n", "a x\nb\n", r"classes.tsv, line 2: expected a vertex and its class"),
        ("a b\n", "a x\nb x\na y\n", r"vertex 'a' has classes 'x' and 'y'; keep one"),
        ("", None, r"edges.tsv: no edge in it"),
        ("a a\nb b\n", None, r"edges.tsv: every line joins a vertex with itself"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, edges: str, classes: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(written(tmp_path / "net", edges, classes))


@pytest.mark.parametrize(
    "source",
    ["network:", "network:edges=a,graph=b", "network:edges=a,directed=2", "network:edges=a,directed=yes"],
)
def test_a_source_that_says_nothing_is_refused(source: str) -> None:
    with pytest.raises(SettingError, match=r"network"):
        load(source)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"nowhere.tsv: no such file"):
        load("network:edges=nowhere.tsv")


def test_shares_that_leave_nothing_are_refused(tmp_path: Path) -> None:
    graph = load_graph(written(tmp_path / "net", "a b\nb c\nc d\nd e\n"))
    with pytest.raises(SettingError, match="together below 1"):
        partition(graph, "edges:valid=0.5,test=0.5", clients=1)
