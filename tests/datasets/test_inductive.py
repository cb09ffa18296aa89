"""Splits that hold out whole entities, by the rule of BLP."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from fedkge.datasets import SPLITS, KnowledgeGraph, Split, load_graph, mark, partition, write_graph
from fedkge.datasets.inductive import check_held_out, inductive
from fedkge.errors import DataError, SettingError
from fedkge.experiment import DataSettings, Experiment
from fedkge.simulations.runs.layout import divide


def graph() -> KnowledgeGraph:
    """Sparse enough for neighbours to be stripped, with a relation that has few triples to spare."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 200, (700, 2))
    relations = np.repeat([0, 1, 2], [450, 145, 105])
    rows = np.stack([ends[:, 0], relations, ends[:, 1]], axis=1)
    rows = np.unique(rows, axis=0)
    rng.shuffle(rows)
    labels = (f"e{number}" for number in range(200))
    arrays = dict(zip(SPLITS, np.split(rows, [500, 600]), strict=True))
    return KnowledgeGraph.from_ids("drawn", labels, ("often", "less", "few"), arrays)


def naive(graph: KnowledgeGraph, count: int, seed: int) -> list[int]:
    """The rule as it is told: everything counted anew at every draw."""
    triples = {tuple(triple) for triple in graph.triples.tolist()}
    order = list(dict.fromkeys(int(e) for h, _, t in graph.triples for e in (h, t)))
    rng, dropped = random.Random(seed), []
    while len(dropped) < count:
        entity = rng.choice(order)
        near = {t if h == entity else h for h, _, t in triples if entity in (h, t)}
        near_of = {n: {b if a == n else a for a, _, b in triples if n in (a, b)} for n in near}
        leaving = [triple for triple in triples if entity in (triple[0], triple[2])]
        left = {r: sum(x[1] == r for x in triples) - sum(x[1] == r for x in leaving) for _, r, _ in leaving}
        if all(len(others) > 2 for others in near_of.values()) and all(n >= 99 for n in left.values()):
            triples -= set(leaving)
            order.remove(entity)
            dropped.append(entity)
    return dropped


def test_entities_leave_one_by_one_as_the_rule_says() -> None:
    source = graph()
    held = inductive(source, "0.03,0.02", seed=3)
    expected = naive(source, 10, 3)
    role = dict.fromkeys(expected[:4], "test") | dict.fromkeys(expected[4:], "valid")
    for split in SPLITS:
        for head, _, tail in held[split].tolist():
            roles = {role.get(head, "train"), role.get(tail, "train")}
            assert split == ("test" if "test" in roles else "valid" if "valid" in roles else "train")
    assert held.num_triples == source.num_triples
    assert held.unseen("test") == len(held.test) > 0


def test_the_lists_that_are_kept_come_out_again(data_folder: Path) -> None:
    folder = data_folder / "inductive"
    if not folder.is_dir():
        pytest.skip("needs inductive/ in FEDKGE_DATA")
    source = load_graph("FB15k-237")
    drawn, listed = inductive(source, "0.1,0.1", seed=0), inductive(source, str(folder), seed=0)
    assert [len(drawn[split]) for split in SPLITS] == [209_352, 49_046, 51_718]
    for split in SPLITS:
        np.testing.assert_array_equal(drawn[split], listed[split])


def test_marks_and_texts_go_along_and_clients_keep_the_roles() -> None:
    source = mark(graph(), "0.5", 0)
    texts = {"entity": source.entity_labels}
    arrays = {split: source[split] for split in SPLITS}
    source = KnowledgeGraph.from_ids("s", *source.labels.values(), arrays, source.confidential, texts=texts)
    held = inductive(source, "0.03,0.02", 0)
    assert held.texts == texts
    assert sum(held.marks(split).sum() for split in SPLITS) == sum(
        source.marks(split).sum() for split in SPLITS
    )
    for client in partition(held, "random", 2, 0).clients:
        assert client.unseen("test") == len(client.test)


def test_what_was_held_out_among_the_others_can_stay_so() -> None:
    source = graph()
    blp, kept = inductive(source, "0.03,0.02", 3), inductive(source, "0.03,0.02,keep", 3)
    held = np.unique(np.concatenate([blp.valid, blp.test])[:, [0, 2]])
    held = held[~blp.seen_entities[held]]
    assert len(held) == 10
    for split in SPLITS:
        inside = ~np.isin(source[split][:, [0, 2]], held).any(axis=1)
        assert set(map(tuple, source[split][inside])) <= set(map(tuple, kept[split]))
    assert kept.num_triples == blp.num_triples == source.num_triples
    assert not kept.seen_entities[held].any()
    outside = {split: np.isin(kept[split][:, [0, 2]], held).any(axis=1) for split in SPLITS}
    for split in ("valid", "test"):
        assert {*map(tuple, kept[split][outside[split]])} == {*map(tuple, blp[split])}
        assert 0 < outside[split].sum() < len(kept[split])
    assert len(kept.train) < len(blp.train)


def test_lists_can_keep_splits_too(tmp_path: Path) -> None:
    source = graph()
    for name, label in (("dev-ents.txt", "e0"), ("test-ents.txt", "e1")):
        (tmp_path / name).write_text(label + "\n", encoding="utf-8")
    kept = inductive(source, f"{tmp_path},keep", 0)
    assert len(kept.train) < len(inductive(source, str(tmp_path), 0).train)


@pytest.mark.parametrize("name", ["fedr", "fedr-legacy"])
def test_a_partition_that_would_train_on_them_is_refused(name: str, tmp_path: Path) -> None:
    write_graph(tmp_path / "drawn", graph())
    data = DataSettings(dataset=str(tmp_path / "drawn"), clients=2, partition=name, inductive="0.03,0.02")
    with pytest.raises(SettingError, match=rf"data\.partition: '{name}' decides anew .* of 10 entities"):
        divide(Experiment(data=data))


@pytest.mark.parametrize("name", ["random", "relation", "cluster", "dirichlet:alpha=1", "overlap:share=0.8"])
def test_other_partitions_combine_with_it(name: str) -> None:
    held = inductive(graph(), "0.03,0.02,keep", 3)
    check_held_out(partition(held, name, 2, 0), held)


def test_an_experiment_holds_entities_out_before_it_divides(tmp_path: Path) -> None:
    write_graph(tmp_path / "drawn", graph())
    data = DataSettings(dataset=str(tmp_path / "drawn"), clients=2, partition="random", inductive="0.03,0.02")
    split = divide(Experiment(data=data))
    assert split.unseen == sum(len(client.valid) + len(client.test) for client in split.clients) > 0


@pytest.mark.parametrize("rule", ["0.5", "0.1,0.1,0.1", "0,0", "0.6,0.6", "-0.1,0.2", "nan,nan", "nothing"])
def test_rules_that_are_none_are_refused(rule: str) -> None:
    with pytest.raises(SettingError, match=r"^data\.inductive: "):
        inductive(graph(), rule, 0)


def test_a_graph_that_is_too_small_says_how_far_it_got() -> None:
    with pytest.raises(DataError, match=r"UMLS: only \d+ of 108 entities can be held out"):
        inductive(load_graph("UMLS"), "0.4,0.4", 0)


def test_lists_are_checked(tmp_path: Path) -> None:
    source = graph()
    first, second = source.entity_labels[:2]
    for dev, test, words in (
        (first, None, "no test-ents"),
        (first, "nobody", r"test-ents\.txt, line 1: 'nobody' is no entity"),
        (first, first, f"'{first}' stands in both lists"),
    ):
        (tmp_path / "dev-ents.txt").write_text(dev + "\n", encoding="utf-8")
        if test is not None:
            (tmp_path / "test-ents.txt").write_text(test + "\n", encoding="utf-8")
        with pytest.raises(DataError, match=words):
            inductive(source, str(tmp_path), 0)
    (tmp_path / "test-ents.txt").write_text(second + "\n", encoding="utf-8")
    held = inductive(source, str(tmp_path), 0)
    assert {1} < set(held.test[:, [0, 2]].ravel().tolist())
    assert not {0, 1} & set(held.train[:, [0, 2]].ravel().tolist())


def test_a_split_is_no_whole_graph() -> None:
    from fedkge.simulations.cli.data_commands import _without

    with pytest.raises(SettingError, match="already split among clients"):
        _without(Split.single(graph()), "0.1,0.1", 0, "parts")
