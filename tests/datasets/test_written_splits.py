"""What is written is whole, comes back as it was, and is refused once somebody changed it."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from fedkge.datasets import (
    SPLITS,
    KnowledgeGraph,
    Split,
    load,
    load_graph,
    mark,
    partition,
    store,
    write_pickle,
    write_split,
)
from fedkge.errors import DataError, StorageError


@pytest.fixture(scope="module")
def three(umls: KnowledgeGraph) -> Split:
    return partition(umls, "overlap:share=0.5", clients=3, seed=4)


def loaded(path: Path) -> Split:
    split = load(path)
    assert isinstance(split, Split)
    return split


@pytest.mark.parametrize("name", ["parts", "parts.pkl"])
def test_the_origin_of_a_split_comes_back(name: str, three: Split, tmp_path: Path) -> None:
    (write_pickle if name.endswith(".pkl") else write_split)(tmp_path / name, three)
    again = loaded(tmp_path / name)
    assert (again.partition, again.seed, again.unassigned) == ("overlap:share=0.5", 4, three.unassigned)
    assert again.content_hash == three.content_hash
    assert again.entity_labels == three.entity_labels


def test_a_changed_file_is_noticed(three: Split, tmp_path: Path) -> None:
    write_split(tmp_path / "s", three)
    with (tmp_path / "s" / "client-0" / "test.tsv").open("a") as file:
        file.write("a\tr\tb\n")
    with pytest.raises(DataError, match=r"split.json: records content hash .* changed or lost"):
        load(tmp_path / "s")
    (tmp_path / "s" / "split.json").unlink()
    assert loaded(tmp_path / "s").num_clients == 3


def test_a_lost_client_is_noticed(three: Split, tmp_path: Path) -> None:
    write_split(tmp_path / "s", three)
    (tmp_path / "s" / "client-2").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="records clients 3, but the files have 2"):
        load(tmp_path / "s")


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({"partition": 1})])
def test_a_damaged_record_is_refused(text: str, three: Split, tmp_path: Path) -> None:
    write_split(tmp_path / "s", three)
    (tmp_path / "s" / "split.json").write_text(text)
    with pytest.raises(DataError, match=r"split.json: no"):
        load(tmp_path / "s")


def test_a_pickle_with_the_labels_of_another_is_refused(three: Split, tmp_path: Path) -> None:
    write_pickle(tmp_path / "a.pkl", three)
    write_pickle(tmp_path / "b.pkl", Split.of("s", three.clients[::-1], "none"))
    (tmp_path / "b.pkl").replace(tmp_path / "a.pkl")
    with pytest.raises(DataError, match="records content hash"):
        load(tmp_path / "a.pkl")


def test_a_pickle_alone_has_ids_for_labels(three: Split, tmp_path: Path) -> None:
    write_pickle(tmp_path / "a.pkl", three)
    (tmp_path / "a.pkl").rename(tmp_path / "alone.pkl")
    assert loaded(tmp_path / "alone.pkl").entity_labels[:3] == ("0", "1", "2")


def test_an_interrupted_split_leaves_nothing(
    three: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def interrupt(folder: Path, graph: KnowledgeGraph) -> None:
        folder.mkdir(parents=True)
        written.append(folder)
        if len(written) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(store, "write_graph", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_split(tmp_path / "s", three)
    assert written
    assert list(tmp_path.iterdir()) == []


def test_a_failed_rewrite_leaves_the_old_split(
    three: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_split(tmp_path / "s", three)
    write_pickle(tmp_path / "s.pkl", three)
    before = sorted(tmp_path.rglob("*"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "write_graph", full)
    monkeypatch.setattr(pickle, "dump", full)
    other = Split.of("s", three.clients[::-1], "none")
    for write, name in ((write_split, "s"), (write_pickle, "s.pkl")):
        with pytest.raises(StorageError, match="No space left"):
            write(tmp_path / name, other)
        assert loaded(tmp_path / name).content_hash == three.content_hash
    assert sorted(tmp_path.rglob("*")) == before


def test_a_rewrite_with_fewer_clients_leaves_none_behind(
    three: Split, umls: KnowledgeGraph, tmp_path: Path
) -> None:
    write_split(tmp_path / "s", three)
    two = partition(umls, "random", clients=2)
    write_split(tmp_path / "s", two)
    assert loaded(tmp_path / "s").content_hash == two.content_hash


def test_a_link_stays_and_its_target_is_replaced(three: Split, tmp_path: Path) -> None:
    write_split(tmp_path / "real", three)
    (tmp_path / "link").symlink_to("real")
    write_split(tmp_path / "link", Split.of("s", three.clients[::-1], "none"))
    assert (tmp_path / "link").is_symlink()
    assert loaded(tmp_path / "real").content_hash != three.content_hash


def test_a_split_is_as_readable_as_any_other_file(three: Split, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    write_split(tmp_path / "s", three)
    assert (tmp_path / "s").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_with_other_files_is_left_alone(three: Split, tmp_path: Path) -> None:
    write_split(tmp_path / "s", three)
    (tmp_path / "s" / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="something other than a split"):
        write_split(tmp_path / "s", three)
    assert (tmp_path / "s" / "notes.txt").read_text() == "mine"


def test_a_pickle_takes_neither_marks_nor_isolated_entities(umls: KnowledgeGraph, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="confidential marks"):
        write_pickle(tmp_path / "a.pkl", partition(mark(umls, "0.1"), "random", clients=2))
    lonely = KnowledgeGraph.from_ids("g", "abc", "r", {"train": np.array([[0, 0, 1]])})
    with pytest.raises(DataError, match="'c' is in no triple"):
        write_pickle(tmp_path / "a.pkl", Split.single(lonely))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_line_ends_do_not_change_a_split(ending: str, tmp_path: Path) -> None:
    graph = KnowledgeGraph.from_ids("g", ["tab\there", "b"], "r", {"train": np.array([[0, 0, 1]])})
    write_split(tmp_path / "s", Split.single(graph))
    for file in (tmp_path / "s").rglob("*.tsv"):
        file.write_bytes(file.read_bytes().replace(b"\n", ending.encode()))
    assert loaded(tmp_path / "s").content_hash == Split.single(graph).content_hash
    assert load_graph(tmp_path / "s" / "client-0").entity_labels == graph.entity_labels


def test_files_beside_clients_are_left_out_and_said_so(
    three: Split, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_split(tmp_path / "s", three)
    (tmp_path / "s" / "train.tsv").write_text("a\tr\tb\n")
    assert loaded(tmp_path / "s").content_hash == three.content_hash
    assert "left out" in caplog.text


def test_an_old_protocol_with_empty_arrays_is_read(tmp_path: Path) -> None:
    none = np.zeros((2, 0), dtype=np.int64)
    part = {"edge_index": none, "edge_type": none[0], "edge_index_ori": none, "edge_type_ori": none[0]}
    one = {key: np.array([[0], [1]]) if "index" in key else np.array([0]) for key in part}
    for protocol in range(6):
        path = tmp_path / f"{protocol}.pkl"
        path.write_bytes(pickle.dumps([{"train": one, "valid": part, "test": part}], protocol=protocol))
        assert [len(loaded(path).clients[0][split]) for split in SPLITS] == [1, 0, 0]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_closed_folder_is_named(three: Split, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(StorageError, match="cannot write"):
        write_split(tmp_path / "closed" / "s", three)
