"""Bad files get one clear line that names the file, the place and the remedy."""

from __future__ import annotations

import os
import pickle
import shutil
import tarfile
import zipfile
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from fedkge.datasets import KnowledgeGraph, load, load_graph, mark, partition
from fedkge.errors import DataError, DownloadError, InputError, SettingError, UnknownNameError

TSV = "a\tr\tb\n" * 50


def refuses(source: Path | str, *words: str, kind: type[InputError] = DataError) -> None:
    with pytest.raises(kind) as caught:
        load(source)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_missing_file(tmp_path: Path) -> None:
    refuses(tmp_path / "nothing.tsv", "nothing.tsv", "no such file")


def test_wrong_column_count_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tr\tb\n\na\tr\n")
    refuses(tmp_path / "a.tsv", "a.tsv, line 3", "expected 3", "found 2")
    (tmp_path / "b.csv").write_text("a,r,b\na,r\n")
    refuses(tmp_path / "b.csv", "line 2", "expected 3", "found 2")
    (tmp_path / "c.tsv").write_text("a\tr\tb\t0.5\n")
    refuses(tmp_path / "c.tsv", "line 1", "expected 3 columns", "header")


def test_bad_mark_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("head\trelation\ttail\tconfidential\na\tr\tb\t1\na\tr\tb\tmaybe\n")
    refuses(tmp_path / "a.tsv", "line 3", "maybe", "0 or 1")


def test_empty_split(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("")
    (tmp_path / "test.tsv").write_text(TSV)
    refuses(tmp_path, str(tmp_path), "no triples in its train split", "cannot be empty")


def test_empty_folder(tmp_path: Path) -> None:
    refuses(tmp_path, "no triples found", "train.tsv")


def test_two_files_for_one_split(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(TSV)
    (tmp_path / "train.txt").write_text(TSV)
    refuses(tmp_path, "two files for train")


def test_not_utf8_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"a\tr\tb\nM\xfcller\tr\tb\n")
    refuses(tmp_path / "a.tsv", "line 2", "0xfc", "UTF-8")


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tsv.gz"])
def test_truncated_archive(kind: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(4000).hex()
    source = tmp_path / "train.txt"
    source.write_text(f"a\tr\t{noise}\n")
    target = tmp_path / f"g.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(target, "w") as archive:
            archive.write(source, "train.txt")
    elif kind == "tar.gz":
        with tarfile.open(target, "w:gz") as tar:
            tar.add(source, "train.txt")
    else:
        import gzip

        target.write_bytes(gzip.compress(source.read_bytes()))
    truncate(target)
    refuses(target, f"g.{kind}", "again")


@pytest.mark.parametrize("name", ["../evil.txt", "/etc/evil.txt", "a/../../evil.txt", "..\\evil.txt"])
def test_archive_members_outside_the_folder(name: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "g.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(TSV)
        tar.addfile(info, BytesIO(TSV.encode()))
    refuses(tmp_path / "g.tar.gz", "outside")
    with zipfile.ZipFile(tmp_path / "g.zip", "w") as archive:
        archive.writestr(name, TSV)
    refuses(tmp_path / "g.zip", "outside")


def test_archive_link_to_outside(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "g.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("train.txt")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    refuses(tmp_path / "g.tar.gz", "outside")


class Executes:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


def test_a_pickle_that_tries_to_execute_does_not(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps([Executes(marker)]))
    refuses(tmp_path / "evil.pkl", "evil.pkl", "execute code")
    assert not marker.exists()
    # the very same bytes do execute where nothing stops them: the test can fail
    pickle.loads((tmp_path / "evil.pkl").read_bytes())  # noqa: S301 - that is the point
    assert marker.exists()


@pytest.mark.parametrize("payload", [b"cos\nsystem\n(S'true'\ntR.", b"c_codecs\nencode\n(Vx\nVutf8\ntR."])
def test_a_pickle_with_other_globals_is_refused(payload: bytes, tmp_path: Path) -> None:
    (tmp_path / "evil.pkl").write_bytes(payload)
    refuses(tmp_path / "evil.pkl", "evil.pkl")


def test_a_damaged_or_foreign_pickle(tmp_path: Path, data_folder: Path) -> None:
    shutil.copy(data_folder / "fedr" / "DDB14-Fed5.pkl", tmp_path / "cut.pkl")
    (tmp_path / "cut.pkl").chmod(0o644)
    truncate(tmp_path / "cut.pkl")
    refuses(tmp_path / "cut.pkl", "cut.pkl", "truncated")
    for number, data in enumerate(
        [
            {},
            [],
            [1],
            [{"train": {}}],
            [{s: {"edge_index": np.zeros((2, 1))} for s in ("train", "valid", "test")}],
        ]
    ):
        path = tmp_path / f"{number}.pkl"
        path.write_bytes(pickle.dumps(data))
        refuses(path, path.name)


def edges(local: list[int], ori: list[int]) -> dict[str, np.ndarray]:
    zeros = np.zeros(len(local) // 2, dtype=np.int64)
    return {
        "edge_index": np.array(local).reshape(2, -1),
        "edge_type": zeros,
        "edge_index_ori": np.array(ori).reshape(2, -1),
        "edge_type_ori": zeros,
    }


@pytest.mark.parametrize("local", [[0, 2], [0, 0]])
def test_pickle_ids_must_match_one_to_one(local: list[int], tmp_path: Path) -> None:
    empty = edges([], [])
    data = [{"train": edges(local, [4, 5]), "valid": empty, "test": empty}]
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(data))
    refuses(tmp_path / "a.pkl", "client 0", "one to one")


def test_id_form_that_lies_about_its_length(tmp_path: Path) -> None:
    (tmp_path / "entity2id.txt").write_text("2\na\t0\nb\t1\n")
    (tmp_path / "relation2id.txt").write_text("1\nr\t0\n")
    (tmp_path / "train2id.txt").write_text("2\n0 1 0\n")
    refuses(tmp_path, "promises 2 lines", "truncated")
    (tmp_path / "train2id.txt").write_text("2\n0 1 0\n0 x 0\n")
    refuses(tmp_path, "train2id.txt, line 3", "three numbers")
    (tmp_path / "train2id.txt").write_text("1\n0 9 0\n")
    refuses(tmp_path, "entity id 9")


def test_invalid_rdf(tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text("<http://a> <http://p> .\n")
    refuses(tmp_path / "a.nt", "a.nt", "not valid RDF")


def test_client_folders_with_a_gap(tmp_path: Path) -> None:
    for number in (0, 2):
        (tmp_path / f"client-{number}").mkdir()
        (tmp_path / f"client-{number}" / "train.tsv").write_text(TSV)
    refuses(tmp_path, "[0, 2]", "without gaps")


def test_unknown_names_come_with_the_nearest_known_one(umls: KnowledgeGraph) -> None:
    refuses("UMSL", "Did you mean 'UMLS'?", kind=UnknownNameError)
    with pytest.raises(UnknownNameError, match="Did you mean 'random'"):
        partition(umls, "randm")
    with pytest.raises(UnknownNameError, match="Did you mean 'alpha'"):
        partition(umls, "dirichlet:alfa=1")


@pytest.mark.parametrize(
    "spec",
    ["dirichlet:alpha=0", "dirichlet:alpha=x", "overlap:share=2", "random:seed=1", "dirichlet:alpha"],
)
def test_partition_options_out_of_range(spec: str, umls: KnowledgeGraph) -> None:
    with pytest.raises(SettingError):
        partition(umls, spec)


def test_impossible_numbers_of_clients(umls: KnowledgeGraph) -> None:
    with pytest.raises(DataError, match="only 6529 triples"):
        partition(umls, "random", clients=10_000)
    with pytest.raises(SettingError, match="at least 1"):
        partition(umls, "random", clients=0)
    with pytest.raises(DataError, match="46 relations for 50 clients"):
        partition(umls, "relation", clients=50)
    with pytest.raises(DataError, match="without triples"):
        partition(umls, "dirichlet:alpha=0.0001", clients=40)


def test_given_needs_a_split_and_a_split_needs_given(umls: KnowledgeGraph) -> None:
    with pytest.raises(DataError, match="already split"):
        partition(umls, "given")
    split = partition(umls, "random", clients=3)
    assert partition(split, "given", clients=3) is split
    with pytest.raises(DataError, match="use partition 'given'"):
        partition(split, "random", clients=3)
    with pytest.raises(DataError, match="has 3 clients, not 4"):
        partition(split, "given", clients=4)


@pytest.mark.parametrize("rule", ["2", "x", "relation:-1", "colour:0.5", "predicates:@/nowhere", "column"])
def test_confidential_rules_out_of_range(rule: str, umls: KnowledgeGraph) -> None:
    with pytest.raises(InputError):
        mark(umls, rule)


def test_unknown_predicate_names_the_nearest(umls: KnowledgeGraph) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'isa'"):
        mark(umls, "predicates:iss")


@pytest.mark.parametrize("spec", ["synthetic:entities=1", "synthetic:triples=99999999", "synthetic:size=3"])
def test_synthetic_out_of_range(spec: str) -> None:
    with pytest.raises(InputError):
        load_graph(spec)


def test_columns_must_be_an_order(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(TSV)
    with pytest.raises(SettingError, match="'htr'"):
        load_graph(tmp_path / "a.tsv", columns="hrr")


def test_a_header_that_names_a_column_twice(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("from\trelation\tto\tsource\na\tr\tb\tc\n")
    refuses(tmp_path / "a.tsv", "names 'head' twice")
    (tmp_path / "b.tsv").write_text("head\trelation\ttail\tconfidential\tconfidential\na\tr\tb\t1\t0\n")
    refuses(tmp_path / "b.tsv", "names 'confidential' twice")


@pytest.mark.parametrize("row", ["a", "a\tb", "a\tr\tb\tc"])
@pytest.mark.parametrize("options", [{"columns": "htr"}, {"header": True}, {"header": False}, {}])
def test_the_width_is_checked_whatever_the_options(
    row: str, options: dict[str, bool | str], tmp_path: Path
) -> None:
    (tmp_path / "a.tsv").write_text(f"\n{row}\n{row}\n")
    with pytest.raises(DataError, match="line 2: expected 3 columns"):
        load(tmp_path / "a.tsv", **options)


@pytest.mark.parametrize(("row", "name"), [("a r b", "spaces"), ("a;r;b", "semicolons"), ("a,r,b", "commas")])
def test_another_separator_is_named(row: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(row + "\n")
    refuses(tmp_path / "a.tsv", f"separated by {name}", "use tabs")


def test_an_order_cannot_take_the_column_of_marks(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("confidential\thead\trelation\ttail\n1\ta\tr\tb\n")
    with pytest.raises(DataError, match="'confidential'"):
        load(tmp_path / "a.tsv", columns="hrt")


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("\nhead\trelation\ttail\tconfidential\n\na\tr\tb\tmaybe\n")
    refuses(tmp_path / "a.tsv", "line 4", "maybe")
    (tmp_path / "b.csv").write_text('head,relation,tail,confidential\n"a\nb",r,c,1\n\na,r,b,maybe\n')
    refuses(tmp_path / "b.csv", "line 5", "maybe")


def id_form(folder: Path, triples: str, lines: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "entity2id.txt").write_text(
        "6\n" + "".join(f"{name}\t{n}\n" for n, name in enumerate("abcdef"))
    )
    (folder / "relation2id.txt").write_text(
        "6\n" + "".join(f"{name}\t{n}\n" for n, name in enumerate("rstuvw"))
    )
    (folder / "train2id.txt").write_text(f"{lines}\n{triples}")


@pytest.mark.parametrize("triples", ["0 1\n2 3 4 5\n", f"0 1 0\n0 {10**23} 0\n"])
def test_every_id_form_line_has_three_numbers(triples: str, tmp_path: Path) -> None:
    id_form(tmp_path, triples, 2)
    refuses(tmp_path, "train2id.txt, line", "three numbers")


def test_large_ids_do_not_wrap_around(tmp_path: Path) -> None:
    id_form(tmp_path, f"{2**32} 1 0\n", 1)
    refuses(tmp_path, f"entity id {2**32}")
    with pytest.raises(DataError, match=f"entity id {2**32}"):
        KnowledgeGraph.from_ids("g", "ab", "r", {"train": np.array([[2**32, 0, 1]])})
    with pytest.raises(DataError, match="whole numbers"):
        KnowledgeGraph.from_ids("g", "ab", "r", {"train": np.array([[0.5, 0, 1]])})


def test_two_datasets_in_one_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        id_form(tmp_path / name, "0 1 0\n", 1)
    refuses(tmp_path, "two files for entity2id.txt", "one/entity2id.txt", "two/entity2id.txt")


def test_a_flipped_byte_in_an_archive_is_noticed(tmp_path: Path) -> None:
    text = "".join(f"a{number}\tr\tb\n" for number in range(500)).encode()
    with tarfile.open(tmp_path / "g.tar.gz", "w:gz", compresslevel=0) as tar:  # stored: damage stays readable
        info = tarfile.TarInfo("train.txt")
        info.size = len(text)
        tar.addfile(info, BytesIO(text))
    raw = (tmp_path / "g.tar.gz").read_bytes()
    (tmp_path / "g.tar.gz").write_bytes(raw.replace(b"a77\tr", b"a88\tr"))
    refuses(tmp_path / "g.tar.gz", "damaged", "again")


def test_held_out_files_alone_are_not_a_graph(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text(TSV)
    refuses(tmp_path, "no triples found", "train.tsv")


def test_every_client_needs_triples_to_train_on(tmp_path: Path, umls: KnowledgeGraph) -> None:
    with pytest.raises(DataError, match=r"client of 2000 without triples to train on; use fewer"):
        partition(umls, "random", clients=2000)
    empty, one = edges([], []), edges([0, 1], [0, 1])
    data = [{"train": empty, "valid": one, "test": one}]
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(data))
    refuses(tmp_path / "a.pkl", "a, client-0", "train split", "cannot be empty")
    (tmp_path / "b.pkl").write_bytes(pickle.dumps([dict.fromkeys(("train", "valid", "test"), empty)]))
    refuses(tmp_path / "b.pkl", "train split", "cannot be empty")
    assert len(load_graph("synthetic:triples=1").train) == 1


@pytest.mark.parametrize("number", [10**9, 2**62])
def test_huge_ids_in_a_pickle_are_refused_at_once(number: int, tmp_path: Path) -> None:
    data = [{"train": edges([0, 1], [0, number]), "valid": edges([], []), "test": edges([], [])}]
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(data))
    refuses(tmp_path / "a.pkl", f"id {number}", "below 10,000,000")


def test_damaged_pickles_never_raise_anything_else(tmp_path: Path) -> None:
    empty = edges([], [])
    whole = pickle.dumps([{"train": edges([0, 1], [4, 5]), "valid": empty, "test": empty}], protocol=4)
    rng = np.random.default_rng(0)
    damaged = [b"\x80\x04\x8e" + b"\xff" * 8 + b"."]
    for _ in range(300):
        raw = bytearray(whole)
        raw[int(rng.integers(len(raw)))] = int(rng.integers(256))
        damaged.append(bytes(raw))
    for raw in damaged:
        (tmp_path / "a.pkl").write_bytes(raw)
        with suppress(DataError):  # some bytes do not matter
            load(tmp_path / "a.pkl")


def corrupt_xz(path: Path) -> None:
    with tarfile.open(path, "w:xz") as tar:
        info = tarfile.TarInfo("train.txt")
        info.size = len(TSV)
        tar.addfile(info, BytesIO(TSV.encode()))
    raw = bytearray(path.read_bytes())
    raw[40] ^= 0xFF
    path.write_bytes(bytes(raw))


def patched_zip(path: Path, method: int, flags: int = 0, damage: int | None = None) -> None:
    known = method if method in (zipfile.ZIP_STORED, zipfile.ZIP_LZMA) else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", known) as archive:
        archive.writestr("train.txt", TSV)
    raw = bytearray(path.read_bytes())
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = raw.index(signature) + at
        raw[start] |= flags
        raw[start + 2] = method
    if damage is not None:
        raw[damage] ^= 0xFF
    path.write_bytes(bytes(raw))


@pytest.mark.parametrize("kind", ["xz", "lzma", "encrypted", "unknown"])
def test_archives_that_cannot_be_unpacked(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("g.tar.xz" if kind == "xz" else "g.zip")
    if kind == "xz":
        corrupt_xz(path)
    elif kind == "lzma":
        patched_zip(path, zipfile.ZIP_LZMA, damage=48)
    elif kind == "encrypted":
        patched_zip(path, zipfile.ZIP_STORED, flags=1)
    else:
        patched_zip(path, 99)
    refuses(path, path.name, "again")


def test_names_that_cannot_be_paths() -> None:
    refuses("x" * 300, "too long")


@pytest.mark.parametrize(("raw", "words"), [(b"M\xfcller\n", "UTF-8"), (b"\n\n", "no predicates")])
def test_predicate_files_that_cannot_be_used(
    raw: bytes, words: str, tmp_path: Path, umls: KnowledgeGraph
) -> None:
    (tmp_path / "p.txt").write_bytes(raw)
    with pytest.raises(DataError, match=words):
        mark(umls, f"predicates:@{tmp_path / 'p.txt'}")


@pytest.mark.parametrize(
    "spec", ["entities=1000000000000", "jitter=nan", "zipf=inf", "jitter=-1", "seed=-1", "relations=10000000"]
)
def test_synthetic_has_bounds(spec: str) -> None:
    with pytest.raises(SettingError, match=spec.partition("=")[0]):
        load_graph(f"synthetic:{spec}")


def test_negative_seeds(umls: KnowledgeGraph) -> None:
    with pytest.raises(SettingError, match="seed = -1"):
        partition(umls, "random", seed=-1)
    with pytest.raises(SettingError, match="seed = -1"):
        mark(umls, "0.5", seed=-1)


def test_a_dataset_that_cannot_be_read_is_named(
    tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "DDB14/train.txt")

    monkeypatch.setattr("fedkge.datasets.download._verify", closed)
    refuses("DDB14", "DDB14/train.txt", "Permission denied", kind=DownloadError)
