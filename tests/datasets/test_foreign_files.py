"""Files as other projects publish them: pickles without `_ori`, folders 0, 1, 2, tables with times."""

from __future__ import annotations

import pickle
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.datasets import KnowledgeGraph, Split, audit, load, load_graph, partition, write_split
from fedkge.errors import DataError, SettingError
from fedkge.experiment import DataSettings, Experiment
from fedkge.simulations.experiments.starter import Starter
from fedkge.simulations.runs.layout import divide

Arrays = dict[str, np.ndarray]


def split_of(path: Path, columns: str | None = None) -> Split:
    loaded = load(path, columns)
    assert isinstance(loaded, Split)
    return loaded


def rewritten(source: Path, target: Path, change: Callable[[Arrays], Arrays]) -> Path:
    """A published pickle with the arrays of every part changed."""
    clients = pickle.loads(source.read_bytes())  # noqa: S301 - a file that we have verified
    changed = [{name: change(part) for name, part in client.items()} for client in clients]
    target.write_bytes(pickle.dumps(changed))
    return target


def global_ids(part: Arrays) -> Arrays:
    return {"edge_index": part["edge_index_ori"], "edge_type": part["edge_type_ori"]}


def local_ids(part: Arrays) -> Arrays:
    return {"edge_index": part["edge_index"], "edge_type": part["edge_type"]}


def local_relations(part: Arrays) -> Arrays:
    return {"edge_index": part["edge_index_ori"], "edge_type": part["edge_type"]}


@pytest.mark.parametrize("clients", [5, 20])
def test_global_ids_alone_mean_what_they_mean_beside_local_ones(
    clients: int, data_folder: Path, tmp_path: Path
) -> None:
    published = data_folder / "fedr" / f"DDB14-Fed{clients}.pkl"
    alone = split_of(rewritten(published, tmp_path / "alone.pkl", global_ids))
    assert alone.content_hash == split_of(published).content_hash
    assert audit(alone).test == audit(split_of(published)).test


@pytest.mark.parametrize(
    ("change", "key", "file"),
    [(local_ids, "'edge_index'", "a.entities.tsv"), (local_relations, "'edge_type'", "a.relations.tsv")],
)
def test_ids_that_may_be_local_are_refused(
    change: Callable[[Arrays], Arrays], key: str, file: str, data_folder: Path, tmp_path: Path
) -> None:
    path = rewritten(data_folder / "fedr" / "DDB14-Fed5.pkl", tmp_path / "a.pkl", change)
    with pytest.raises(DataError, match="may be local ids") as caught:
        load(path)
    assert all(word in str(caught.value) for word in (str(path), key, "edge_index_ori", file))


def part(heads: list[int], relations: list[int], tails: list[int]) -> Arrays:
    return {
        "edge_index": np.array([heads, tails], dtype=np.int64),
        "edge_type": np.array(relations, np.int64),
    }


def pickled(path: Path, *trains: Arrays) -> Path:
    path.write_bytes(pickle.dumps([{"train": t, "valid": part([], [], []), "test": t} for t in trains]))
    return path


def test_labels_beside_a_pickle_tell_that_its_ids_are_global(tmp_path: Path) -> None:
    path = pickled(tmp_path / "a.pkl", part([0, 1], [0, 0], [1, 2]), part([0, 2], [0, 1], [1, 1]))
    with pytest.raises(DataError, match="may be local"):
        load(path)
    (tmp_path / "a.entities.tsv").write_text("Ada\nBob\nCleo\n")
    with pytest.raises(DataError, match="'edge_type' may be local"):
        load(path)
    (tmp_path / "a.relations.tsv").write_text("knows\nlikes\n")
    split = split_of(path)
    assert [graph.entity_labels for graph in split.clients] == [("Ada", "Bob", "Cleo")] * 2
    assert [graph.relation_labels for graph in split.clients] == [("knows",), ("knows", "likes")]


def test_one_client_alone_has_nobody_to_share_ids_with(tmp_path: Path) -> None:
    split = split_of(pickled(tmp_path / "a.pkl", part([0, 1], [0, 0], [1, 2])))
    assert split.clients[0].train.tolist() == [[0, 0, 1], [1, 0, 2]]


def test_relations_that_every_client_has_follow_the_entities(tmp_path: Path) -> None:
    split = split_of(pickled(tmp_path / "a.pkl", part([0, 1], [0, 1], [1, 7]), part([0, 1], [1, 0], [1, 2])))
    assert split.clients[0].entity_labels == ("0", "1", "7")
    assert split.clients[1].entity_labels == ("0", "1", "2")


def test_global_ids_of_some_parts_only_are_refused(data_folder: Path, tmp_path: Path) -> None:
    def without_relations(arrays: Arrays) -> Arrays:
        return {key: array for key, array in arrays.items() if key != "edge_type_ori"}

    path = rewritten(data_folder / "fedr" / "DDB14-Fed5.pkl", tmp_path / "a.pkl", without_relations)
    with pytest.raises(DataError, match="client 0: 'train' needs 'edge_type_ori'"):
        load(path)


def numbered(split: Split, folder: Path) -> Path:
    """A split as FedLU lays it out: 0/train.txt, and files that we do not read beside it."""
    write_split(folder.with_name("ours"), split)
    for number in range(split.num_clients):
        (folder / str(number)).mkdir(parents=True)
        for name in ("train", "valid", "test"):
            text = (folder.with_name("ours") / f"client-{number}" / f"{name}.tsv").read_text()
            (folder / str(number) / f"{name}.txt").write_text(text)
        (folder / str(number) / "unlearn.txt").write_text(text)
        (folder / str(number) / "entities.dict").write_text("0\tsomething\n")
    return folder


def test_folders_0_1_2_are_clients(umls: KnowledgeGraph, tmp_path: Path) -> None:
    split = partition(umls, "random", clients=12)
    folder = numbered(split, tmp_path / "C12FL")
    assert split_of(folder).content_hash == split.content_hash  # 10 and 11 come after 9
    with tarfile.open(tmp_path / "g.tar.gz", "w:gz") as archive:
        archive.add(folder, "Data/C12FL")
    assert split_of(tmp_path / "g.tar.gz").content_hash == split.content_hash
    assert audit(split_of(folder)).partition == "given"


def test_the_fedlu_archive_is_the_same_split_under_either_name(data_folder: Path, tmp_path: Path) -> None:
    source = data_folder / "fedlu" / "C3.tar.gz"
    if not source.exists():
        pytest.skip("needs fedlu/C3.tar.gz in FEDKGE_DATA")
    with tarfile.open(source) as before, tarfile.open(tmp_path / "C3.tar", "w") as after:
        for info in before:
            content = before.extractfile(info)
            info.name = info.name.removeprefix("client-").replace(".tsv", ".txt")
            after.addfile(info, content)
    assert split_of(tmp_path / "C3.tar").content_hash == split_of(source).content_hash


def test_a_folder_called_by_a_year_is_no_client(tmp_path: Path) -> None:
    (tmp_path / "2019").mkdir()
    (tmp_path / "2019" / "train.tsv").write_text("a\tr\tb\n")
    assert len(load_graph(tmp_path).train) == 1
    (tmp_path / "2020").mkdir()
    (tmp_path / "2020" / "train.tsv").write_text("a\tr\tb\n")
    with pytest.raises(DataError, match=r"client folders are \[2019, 2020\]; expected 0 to 1.*rename"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["numbers", "pickle"])
def test_data_that_come_divided_need_no_partition(
    name: str, umls: KnowledgeGraph, data_folder: Path, tmp_path: Path
) -> None:
    split = partition(umls, "random", clients=4)
    path = numbered(split, tmp_path / "parts") if name == "numbers" else data_folder / "fedr/DDB14-Fed5.pkl"
    inferred = divide(Experiment(data=DataSettings(dataset=str(path))))
    stated = divide(Experiment(data=DataSettings(dataset=str(path), partition="given")))
    assert inferred.content_hash == stated.content_hash == split_of(path).content_hash
    with pytest.raises(
        DataError, match=r"already split among . clients; use partition 'given' or leave it out"
    ):
        divide(Experiment(data=DataSettings(dataset=str(path), partition="random")))


def test_folders_of_both_kinds_are_refused(tmp_path: Path) -> None:
    """Read as one client, with a warning for each of the others, they would be another federation."""
    for name in ("0", "1", "2", "client-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.tsv").write_text("a\tr\tb\n")
    with pytest.raises(DataError, match=r"client-N \(0\) and called N \(0, 1, 2, such as 0\); keep one kind"):
        load(tmp_path)


def test_folders_with_numbers_within_a_clients_own_are_no_clients(tmp_path: Path) -> None:
    for client, year in ((0, 2019), (1, 2020)):
        folder = tmp_path / f"client-{client}" / f"{year}"
        folder.mkdir(parents=True)
        (folder / "train.tsv").write_text("a\tr\tb\n")
    assert split_of(tmp_path).num_clients == 2


TIMES = "2014-01-01\t2014-02-01"
EVENTS = (
    f"Ada\tmeets\tBob\t{TIMES}\nBob\tmeets\tCleo\t{TIMES}\nAda\tmeets\tBob\t2015-03-01\t2015-04-01\n"
    f"Cleo\tcalls\tAda\t{TIMES}\n"
)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "train.txt").write_text(EVENTS)
    (folder / "test.txt").write_text(f"Bob\tmeets\tCleo\t{TIMES}\nCleo\tcalls\tBob\t{TIMES}\n")
    return folder


@pytest.mark.parametrize(
    "columns", ["head,relation,tail,_,_", "Head, Relation, Tail, _, _", "0,1,2", "hrt__"]
)
def test_times_are_left_out_and_what_repeats_is_counted(columns: str, events: Path) -> None:
    graph = load_graph(events, columns)
    assert graph.entity_labels == ("Ada", "Bob", "Cleo")
    assert graph.train.tolist() == [[0, 0, 1], [1, 0, 2], [0, 0, 1], [2, 1, 0]]
    found = audit(Split.single(graph))
    assert (found.triples, found.distinct) == (6, 4)
    assert found.test.in_own_train == 1
    assert "33.3% of the triples are duplicates" in " ".join(found.problems)


def test_five_columns_without_the_option_name_it(events: Path) -> None:
    with pytest.raises(
        DataError, match=r"train.txt, line 1.*found 5.*--columns head,relation,tail,_,_ .*data.col"
    ):
        load(events)
    (events / "train.txt").write_text("Ada\tBob\tmeets\t2014\n")
    with pytest.raises(DataError, match="--columns head,tail,relation,_ "):
        load(events, "htr")


@pytest.mark.parametrize("columns", ["head,relation,tail,_", "hrt_", "0,1,5", "head,relation,tail,_,_,_"])
def test_columns_that_do_not_fit_the_file(columns: str, events: Path) -> None:
    with pytest.raises(DataError, match=r"line 1: expected . columns.*found 5"):
        load(events, columns)


@pytest.mark.parametrize(
    "columns",
    [
        "head,relation",
        "0,1",
        "0,1,1",
        "0,1,2,3",
        "head,head,relation,tail",
        "a,b,b",
        "a,,c",
        ",",
        "hr",
        "hrtx",
        "",
    ],
)
def test_columns_that_say_nothing_are_refused(columns: str, events: Path) -> None:
    with pytest.raises(SettingError, match="'head,relation,tail,_,_'"):
        load(events, columns)


@pytest.mark.parametrize("kind", ["embedded", "synthetic", "pickle", "idform", "rdf", "divided rdf"])
def test_columns_are_refused_where_there_are_none(kind: str, data_folder: Path, tmp_path: Path) -> None:
    """They would be ignored in silence: the same content hash, whatever was said."""
    sources = {
        "embedded": "UMLS",
        "synthetic": "synthetic:entities=20,relations=2,triples=40",
        "pickle": str(data_folder / "fedr/DDB14-Fed5.pkl"),
    }
    source = sources.get(kind, str(tmp_path))
    if kind == "idform":
        for file, lines in (
            ("train2id", "1\n0 1 0\n"),
            ("entity2id", "2\na 0\nb 1\n"),
            ("relation2id", "1\np 0\n"),
        ):
            (tmp_path / f"{file}.txt").write_text(lines)
    for folder in ("rdf",) * (kind == "rdf") + ("client-0", "client-1") * (kind == "divided rdf"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.nt").write_text("<http://a> <http://p> <http://b> .\n")
    load(source)
    for columns, header in (("htr", None), (None, True)):
        with pytest.raises(SettingError, match=r"has no columns .*data\.columns.*\.tsv, \.txt and \.csv"):
            load(source, columns, header)


def test_columns_of_a_clients_own_file_need_none_of_the_named_dataset(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text("Ada\tBob\tmeets\n")
    changes = ["data.columns=htr", "data.partition=random", "data.clients=3"]
    with pytest.raises(SettingError, match="'UMLS', a dataset by name, has no columns"):
        divide(Experiment().override(changes))
    own = Experiment(clients=({"client": 1, "data": str(tmp_path / "own.tsv")},))
    split = divide(own.override(changes))
    assert split.clients[1].relation_labels == ("meets",)


def test_a_column_of_marks_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("2014,Ada,meets,Bob,1\n2015,Ada,meets,Cleo,0\n")
    graph = load_graph(tmp_path / "a.csv", "_,head,relation,tail,confidential")
    assert graph.marks("train").tolist() == [True, False]
    assert graph.entity_labels == ("Ada", "Bob", "Cleo")


@settings(max_examples=40, deadline=None)
@given(
    order=st.permutations(["head", "relation", "tail", "_", "_"]),
    seed=st.integers(0, 1000),
    wide=st.booleans(),
)
def test_any_order_of_columns_gives_the_same_triples(order: list[str], seed: int, wide: bool) -> None:
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = [
        {"head": f"e{rng.randrange(4)}", "relation": f"r{rng.randrange(2)}", "tail": f"e{rng.randrange(4)}"}
        for _ in range(8)
    ]
    places = ",".join(str(order.index(name)) for name in ("head", "relation", "tail"))
    with TemporaryDirectory() as folder:
        path, plain = Path(folder, "a.tsv"), Path(folder, "b.tsv")
        path.write_text("".join("\t".join(row.get(name, "2014") for name in order) + "\n" for row in rows))
        plain.write_text("".join("\t".join(row.values()) + "\n" for row in rows))
        graph, expected = load_graph(path, places if wide else ",".join(order)), load_graph(plain)
    assert graph.entity_labels == expected.entity_labels
    assert graph.train.tolist() == expected.train.tolist()


def test_an_experiment_names_the_columns(events: Path) -> None:
    columns = "head,relation,tail,_,_"
    data = DataSettings(dataset=str(events), columns=columns, clients=1, partition="random")
    assert divide(Experiment(data=data)).clients[0].num_triples == 6
    starter = Starter.of(events, columns)
    assert Experiment.from_toml(starter.to_toml()).data.columns == columns
    (events / "test.txt").unlink()
    (events / "train.txt").write_text("Ada\tmeets\tBob\n")
    assert "columns" not in Starter.of(events).to_toml()
