"""Named datasets: the registry tells the truth, and nothing unverified is ever used."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedkge.datasets import DATASETS, EMBEDDED, SPLITS, KnowledgeGraph, load, load_graph
from fedkge.datasets.download import locate, obtain
from fedkge.datasets.registry import RemoteFile
from fedkge.errors import DownloadError

CONTENT = b"a\tr\tb\n" * 1000
ABSENT = ("YAGO3-10", "Hetionet")  # published, and not at hand where tests run


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in ABSENT])
def test_the_registry_tells_the_truth(name: str, data_folder: Path) -> None:
    known, loaded = DATASETS[name], load(name)
    graphs = [loaded] if isinstance(loaded, KnowledgeGraph) else loaded.clients
    assert len(graphs) == known.clients
    assert (len(loaded.entity_labels), len(loaded.relation_labels)) == (known.entities, known.relations)
    assert [sum(len(g[s]) for g in graphs) for s in SPLITS] == [known.train, known.valid, known.test]
    assert all(len(file.sha256) == 64 for file in known.files)


def test_every_file_has_an_address_and_a_checksum() -> None:
    for name, dataset in DATASETS.items():
        for file in dataset.files:
            assert (len(file.sha256), len(file.git_blob)) in ((64, 0), (0, 40)), file
            assert file.url.startswith("https://") or name.startswith("StockKG"), file


def test_what_is_here_of_yago_fits_its_entry(data_folder: Path) -> None:
    def lines(name: str) -> list[list[str]]:
        text = gzip.decompress((data_folder / "yago3-10" / name).read_bytes()).decode()
        return [line.split("\t") for line in text.splitlines()]

    known = DATASETS["YAGO3-10"]
    entities = {label for _, label in lines("entities.dict.gz")}
    relations = {label for _, label in lines("relations.dict.gz")}
    assert (len(entities), len(relations)) == (known.entities, known.relations)
    for name, count in (("valid.txt.gz", known.valid), ("test.txt.gz", known.test)):
        held = lines(name)
        assert len(held) == count
        assert {label for h, _, t in held for label in (h, t)} <= entities
        assert {r for _, r, _ in held} <= relations


@pytest.mark.parametrize(("name", "triples"), [("UMLS", 6529), ("Kinships", 10_686), ("nations", 1992)])
def test_embedded_datasets_need_no_download(name: str, triples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDKGE_DATA", raising=False)
    graph = load(name)
    assert isinstance(graph, KnowledgeGraph)
    assert graph.num_triples == triples
    assert graph.name in EMBEDDED


@pytest.mark.parametrize("spelling", ["FB15k-237", "fb15k237", "FB15K_237"])
def test_names_forgive_case_and_punctuation(spelling: str, data_folder: Path) -> None:
    assert load(spelling).name == "FB15k-237"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server on loopback with one file, an empty cache, and no FEDKGE_DATA."""
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "a.tsv").write_bytes(CONTENT)
    monkeypatch.delenv("FEDKGE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path / "www")))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def remote_file(url: str, content: bytes = CONTENT) -> RemoteFile:
    return RemoteFile("x/a.tsv", url, hashlib.sha256(content).hexdigest())


def test_a_download_is_verified_and_cached(remote: str, tmp_path: Path) -> None:
    path = locate(remote_file(f"{remote}/a.tsv"))
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(tmp_path / "cache")
    (tmp_path / "www" / "a.tsv").unlink()
    assert locate(remote_file(f"{remote}/a.tsv")) == path
    assert [file.name for file in path.parent.iterdir()] == ["a.tsv"]


def test_a_bad_download_is_kept_aside_and_not_used(remote: str, tmp_path: Path) -> None:
    wrong = remote_file(f"{remote}/a.tsv", b"what was published")
    with pytest.raises(DownloadError, match=r"kept aside as .*a\.tsv\.bad"):
        locate(wrong)
    assert [file.name for file in (tmp_path / "cache" / "fedkge" / "x").iterdir()] == ["a.tsv.bad"]


def test_a_cached_file_that_changed_is_refused(remote: str) -> None:
    path = locate(remote_file(f"{remote}/a.tsv"))
    path.write_bytes(b"changed")
    with pytest.raises(DownloadError, match="remove it to have it downloaded again"):
        locate(remote_file(f"{remote}/a.tsv"))


def test_a_git_blob_id_verifies_as_git_hash_object_does(remote: str, tmp_path: Path) -> None:
    told = subprocess.run(
        ["git", "hash-object", "--stdin"], input=CONTENT, capture_output=True, check=True
    ).stdout.decode()
    assert locate(RemoteFile("x/a.tsv", f"{remote}/a.tsv", git_blob=told.strip())).read_bytes() == CONTENT
    (tmp_path / "cache" / "fedkge" / "x" / "a.tsv").unlink()
    with pytest.raises(DownloadError, match="its checksum differs"):
        locate(RemoteFile("x/a.tsv", f"{remote}/a.tsv", git_blob="0" * 40))


@pytest.mark.parametrize("packing", ["gz", "tar"])
def test_the_data_folder_may_have_it_packed(
    packing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv("FEDKGE_DATA", str(folder))

    def write(content: bytes) -> None:
        if packing == "gz":
            (folder / "x").mkdir(exist_ok=True)
            (folder / "x" / "a.tsv.gz").write_bytes(gzip.compress(content))
            return
        (tmp_path / "a.tsv").write_bytes(content)
        with tarfile.open(folder / "all.tar.gz", "w:gz") as archive:
            archive.add(tmp_path / "a.tsv", "inner/a.tsv")

    file = replace(remote_file("http://127.0.0.1:9/unreachable"), packed="all.tar.gz")
    write(CONTENT)
    (member,) = obtain(file)
    assert (member.read(), member.name) == (CONTENT, "x/a.tsv")
    write(b"something else")
    with pytest.raises(DownloadError, match="SHA-256 is"):
        obtain(file)


def test_an_archive_without_the_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDKGE_DATA", str(tmp_path))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("b.tsv", CONTENT)
    with pytest.raises(DownloadError, match=r"has no a\.tsv"):
        obtain(replace(remote_file("http://127.0.0.1:9/unreachable"), packed="all.zip"))


def test_a_file_without_a_public_address_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDKGE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DownloadError, match="no public address"):
        obtain(remote_file(""))


def test_the_data_folder_comes_first_and_is_verified_too(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own" / "x").mkdir(parents=True)
    own = tmp_path / "own" / "x" / "a.tsv"
    own.write_bytes(CONTENT)
    monkeypatch.setenv("FEDKGE_DATA", str(tmp_path / "own"))
    assert locate(remote_file("http://127.0.0.1:9/unreachable")) == own
    own.write_bytes(b"something else")
    with pytest.raises(DownloadError, match="SHA-256"):
        locate(remote_file("http://127.0.0.1:9/unreachable"))
    monkeypatch.setenv("FEDKGE_DATA", str(tmp_path / "missing"))
    with pytest.raises(DownloadError, match="not a folder"):
        locate(remote_file(f"{remote}/a.tsv"))


def test_what_cannot_be_reached_names_the_way_out(remote: str) -> None:
    with pytest.raises(DownloadError, match="FEDKGE_DATA"):
        locate(remote_file(f"{remote}/nothing-here.tsv"))


def test_a_named_dataset_is_its_verified_files_and_no_others(
    tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data" / "DDB14").mkdir(parents=True)
    shutil.copy(data_folder / "DDB14" / "train.txt", tmp_path / "data" / "DDB14")
    (tmp_path / "cache" / "DDB14").mkdir(parents=True)
    for split in ("valid", "test"):
        shutil.copy(data_folder / "DDB14" / f"{split}.txt", tmp_path / "cache" / "DDB14")
    (tmp_path / "data" / "DDB14" / "train2id.txt").write_text("not part of it")
    monkeypatch.setenv("FEDKGE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("fedkge.datasets.download.cache_folder", lambda: tmp_path / "cache")
    graph = load_graph("DDB14")
    assert (len(graph.train), len(graph.valid), len(graph.test)) == (36_561, 4_000, 4_000)
