"""Partitions: what every one promises, and what each is for."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from fedkge.datasets import (
    PARTITIONERS,
    SPLITS,
    KnowledgeGraph,
    Split,
    load_graph,
    mark,
    mark_split,
    partition,
    write_pickle,
)
from fedkge.datasets.partition import Assigner
from fedkge.datasets.partition.partitioner import frequency_rule
from fedkge.errors import DataError, UnknownNameError
from tests.datasets.test_formats import assert_equal_pickles

DISJOINT = ["random", "relation", "cluster", "dirichlet", "fedr"]
ALL = [{"given-by": "given-by:isa"}.get(name, name) for name in PARTITIONERS if name != "given"]


def triples_of(graph: KnowledgeGraph, *splits: str) -> Counter[tuple[str, str, str]]:
    parts = [graph.labelled(split) for split in splits or SPLITS]
    return Counter(row for part in parts for row in zip(part.heads, part.relations, part.tails, strict=True))


@pytest.mark.parametrize("spec", DISJOINT)
def test_every_triple_goes_to_exactly_one_client(spec: str, umls: KnowledgeGraph) -> None:
    split = partition(umls, spec, clients=4, seed=3)
    total: Counter[tuple[str, str, str]] = Counter()
    for graph in split.clients:
        total += triples_of(graph)
    assert total == triples_of(umls)
    assert split.unassigned == 0


@pytest.mark.parametrize("spec", ALL)
def test_the_seed_decides_the_split_and_its_hash(spec: str, umls: KnowledgeGraph) -> None:
    first, again, other = (partition(umls, spec, clients=3, seed=seed) for seed in (1, 1, 2))
    assert first.content_hash == again.content_hash
    if spec not in ("fedr-legacy", "cluster", "given-by:isa"):  # published once and for all; by the graph
        assert first.content_hash != other.content_hash


@pytest.mark.parametrize("spec", ["random", "relation", "dirichlet", "overlap"])
def test_a_triple_keeps_its_role(spec: str, umls: KnowledgeGraph) -> None:
    for graph in partition(umls, spec, clients=3).clients:
        for split in SPLITS:
            assert not triples_of(graph, split) - triples_of(umls, split)


@pytest.mark.parametrize("spec", ALL)
def test_marks_travel_with_their_triples(spec: str, umls: KnowledgeGraph) -> None:
    marked = mark(umls, "predicates:isa|location_of")
    split = partition(marked, spec, clients=3)
    for graph in split.clients:
        for name in SPLITS:
            relations = graph.labelled(name).relations
            assert graph.marks(name).tolist() == [label in ("isa", "location_of") for label in relations]


@pytest.mark.parametrize("spec", ALL)
def test_a_client_knows_only_labels_of_its_own_triples(spec: str, umls: KnowledgeGraph) -> None:
    for graph in partition(umls, spec, clients=5).clients:
        assert set(graph.triples[:, [0, 2]].ravel().tolist()) == set(range(graph.num_entities))
        assert set(graph.triples[:, 1].tolist()) == set(range(graph.num_relations))


def test_by_relation_no_relation_is_shared(umls: KnowledgeGraph) -> None:
    owners = Counter(
        label for graph in partition(umls, "relation", 5).clients for label in graph.relation_labels
    )
    assert set(owners.values()) == {1}


def test_cluster_recovers_planted_communities() -> None:
    rng = np.random.default_rng(0)
    blocks = []
    for block in range(3):  # relations 4b..4b+3 live on entities 20b..20b+19
        size = 300
        entities = rng.integers(20 * block, 20 * block + 20, size=(size, 2))
        blocks.append(
            np.column_stack([entities[:, 0], rng.integers(4 * block, 4 * block + 4, size), entities[:, 1]])
        )
    graph = KnowledgeGraph.from_ids(
        "g", map(str, range(60)), map(str, range(12)), {"train": np.concatenate(blocks)}
    )
    split = partition(graph, "cluster", clients=3)
    groups = sorted(sorted(map(int, client.relation_labels)) for client in split.clients)
    assert groups == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_a_small_alpha_makes_unlike_clients(umls: KnowledgeGraph) -> None:
    def unevenness(alpha: float) -> float:
        split = partition(umls, f"dirichlet:alpha={alpha}", clients=4, seed=5)
        counts = np.array(
            [[Counter(labelled_relations(g))[r] for g in split.clients] for r in umls.relation_labels]
        )
        return float((counts.max(axis=1) / np.maximum(counts.sum(axis=1), 1)).mean())

    assert unevenness(0.05) > unevenness(100.0) + 0.2


def labelled_relations(graph: KnowledgeGraph) -> list[str]:
    return [graph.relation_labels[number] for number in graph.triples[:, 1]]


def test_overlap_clients_hold_every_triple_between_entities_they_know(umls: KnowledgeGraph) -> None:
    split = partition(umls, "overlap:share=1.0", clients=2)
    assert all(triples_of(graph) == triples_of(umls) for graph in split.clients)
    half = partition(umls, "overlap:share=0.5", clients=2)
    assert all(graph.num_entities <= round(0.5 * umls.num_entities) for graph in half.clients)
    assert half.unassigned > 0


@pytest.mark.parametrize("seed", range(3))
def test_the_fedr_rule_keeps_every_held_out_part_in_train(seed: int, umls: KnowledgeGraph) -> None:
    split = partition(umls, "fedr", clients=5, seed=seed)
    assert split.unseen == 0
    for graph in split.clients:
        held = len(graph.valid) + len(graph.test)
        assert held == int(0.2 * graph.num_triples) + 1
        assert 0 <= len(graph.test) - len(graph.valid) <= 1


def test_the_fedr_rule_holds_out_nothing_it_cannot_spare() -> None:
    triples = np.array([[0, 0, 1], [2, 0, 3], [4, 0, 5]], dtype=np.int32)
    train, valid, test = frequency_rule(triples, lambda order: None)
    assert (train.tolist(), valid.tolist(), test.tolist()) == ([0, 1, 2], [], [])


def test_a_graph_without_held_out_triples_gets_some(umls: KnowledgeGraph) -> None:
    bare = KnowledgeGraph.from_ids("g", umls.entity_labels, umls.relation_labels, {"train": umls.triples})
    split = partition(bare, "random", clients=3)
    assert all(len(graph.test) > 0 for graph in split.clients)
    assert split.unseen == 0


@pytest.mark.parametrize("clients", [5, 10, 20])
def test_fedr_legacy_is_the_published_split_array_for_array(
    clients: int, ddb14: KnowledgeGraph, data_folder: Path, tmp_path: Path
) -> None:
    write_pickle(tmp_path / "ours.pkl", partition(ddb14, "fedr-legacy", clients=clients, seed=123))
    assert_equal_pickles(data_folder / "fedr" / f"DDB14-Fed{clients}.pkl", tmp_path / "ours.pkl")


def test_the_hash_ignores_numbering_and_sees_content(umls: KnowledgeGraph) -> None:
    order = np.random.default_rng(0).permutation(umls.num_entities)
    place = np.argsort(order)
    renumbered = {
        s: np.column_stack([place[umls[s][:, 0]], umls[s][:, 1], place[umls[s][:, 2]]]) for s in SPLITS
    }
    labels = [umls.entity_labels[i] for i in order]
    same = KnowledgeGraph.from_ids("other", labels, umls.relation_labels, renumbered)
    assert Split.single(same).content_hash == Split.single(umls).content_hash
    changed = {**{s: umls[s] for s in SPLITS}, "train": umls.train[::-1]}
    other = KnowledgeGraph.from_ids("g", umls.entity_labels, umls.relation_labels, changed)
    assert Split.single(other).content_hash != Split.single(umls).content_hash
    assert Split.single(mark(umls, "0.5")).content_hash != Split.single(umls).content_hash


@pytest.mark.parametrize(("rule", "share"), [("0.25", 0.25), ("random:0.5", 0.5), ("0", 0.0), ("1", 1.0)])
def test_a_share_is_marked_in_every_split(rule: str, share: float, umls: KnowledgeGraph) -> None:
    marked = mark(umls, rule, seed=1)
    for split in SPLITS:
        assert marked.marks(split).sum() == round(share * len(umls[split]))


def test_by_relation_a_share_of_the_relations_is_marked(umls: KnowledgeGraph) -> None:
    marked = mark(umls, "relation:0.5", seed=1)
    relations = {r for s in SPLITS for r in marked[s][marked.marks(s)][:, 1].tolist()}
    others = {r for s in SPLITS for r in marked[s][~marked.marks(s)][:, 1].tolist()}
    assert len(relations) == round(0.5 * umls.num_relations)
    assert not relations & others


def test_predicates_can_come_from_a_file(tmp_path: Path, umls: KnowledgeGraph) -> None:
    (tmp_path / "p.txt").write_text("isa\nlocation_of\n")
    from_file = mark(umls, f"predicates:@{tmp_path / 'p.txt'}")
    assert (
        from_file.marks("train").tolist() == mark(umls, "predicates:isa|location_of").marks("train").tolist()
    )


def test_synthetic_is_what_was_asked_for() -> None:
    spec = "synthetic:entities=900,relations=5,triples=4000,seed=4"
    graph, again = load_graph(spec), load_graph(spec)
    assert (graph.num_entities, graph.num_relations, graph.num_triples) == (900, 5, 4000)
    assert len({tuple(row) for row in graph.triples.tolist()}) == 4000
    np.testing.assert_array_equal(graph.triples, again.triples)
    side = 30
    degrees = np.sort(np.bincount(graph.triples[:, 0], minlength=900))[::-1]
    assert degrees[:90].sum() > 2 * degrees[450:540].sum()  # a heavy head, as Zipf has it
    for relation in range(5):  # the planted step is the commonest one, and most tails lie next to it
        head, _, tail = graph.triples[graph.triples[:, 1] == relation].T
        steps = Counter(
            zip((tail // side - head // side).tolist(), (tail % side - head % side).tolist(), strict=True)
        )
        (row, column), _ = steps.most_common(1)[0]
        near = sum(n for (r, c), n in steps.items() if abs(r - row) <= 1 and abs(c - column) <= 1)
        assert near > 0.9 * len(head)


def test_predicates_of_a_split_may_be_absent_from_a_client(umls: KnowledgeGraph) -> None:
    split = partition(umls, "relation", clients=5)
    marked = mark_split(split, "predicates:isa")
    held = [sum(int(graph.marks(name).sum()) for name in SPLITS) for graph in marked.clients]
    assert sorted(held)[:4] == [0, 0, 0, 0]
    assert max(held) == sum(label == "isa" for label in labelled_relations(umls))


def test_clients_of_neighbouring_seeds_draw_apart(umls: KnowledgeGraph) -> None:
    twins = Split.of("s", [umls, umls], "none")
    first, second = (mark_split(twins, "0.5", seed=seed).clients for seed in (0, 1))
    assert not np.array_equal(first[1].marks("train"), second[0].marks("train"))


def test_predicate_files_may_begin_with_a_byte_order_mark(tmp_path: Path, umls: KnowledgeGraph) -> None:
    (tmp_path / "p.txt").write_bytes(b"\xef\xbb\xbfisa\r\nlocation_of\r\n")
    marked = mark(umls, f"predicates:@{tmp_path / 'p.txt'}")
    expected = mark(umls, "predicates:isa|location_of")
    assert marked.marks("train").tolist() == expected.marks("train").tolist()


def test_duplicates_that_would_be_held_out_are_announced(
    umls: KnowledgeGraph, caplog: pytest.LogCaptureFixture
) -> None:
    partition(umls, "fedr", clients=2)
    assert not caplog.text
    twice = {"train": np.concatenate([umls.train, umls.train])}
    partition(KnowledgeGraph.from_ids("g", umls.entity_labels, umls.relation_labels, twice), "fedr", 2)
    assert "5216 triples repeat another" in caplog.text


def test_as_many_clusters_as_relations_is_one_relation_each(umls: KnowledgeGraph) -> None:
    split = partition(umls, "cluster", clients=umls.num_relations)
    assert [graph.num_relations for graph in split.clients] == [1] * umls.num_relations


@dataclass(frozen=True)
class ByDegree(Assigner):
    """Triples of the busiest heads first; a client gets `share` of what is left."""

    share: float = 0.5

    def assign(self, graph, clients, rng):
        degree = np.bincount(graph.triples[:, 0], minlength=graph.num_entities)
        rows = np.argsort(-degree[graph.triples[:, 0]], kind="stable")
        cuts = [round(len(rows) * (1 - self.share**number)) for number in range(1, clients)]
        return np.split(rows, cuts)


def test_a_partitioner_is_one_class_and_one_line(
    monkeypatch: pytest.MonkeyPatch, umls: KnowledgeGraph
) -> None:
    monkeypatch.setitem(PARTITIONERS, "degree", ByDegree)
    split = partition(umls, "degree:share=0.25", clients=3)
    first = umls.num_triples * 3 // 4
    assert split.clients[0].num_triples == pytest.approx(first, abs=1)
    assert sum((triples_of(graph) for graph in split.clients), Counter()) == triples_of(umls)
    with pytest.raises(UnknownNameError, match=r"unknown option of partition 'degree' 'shar'.*'share'"):
        partition(umls, "degree:shar=1")


@pytest.mark.parametrize(
    "first",
    [
        "fedkge.datasets",
        "fedkge.datasets.partition",
        "fedkge.datasets.partition.fedr",
        "fedkge.datasets.registry",
    ],
)
def test_the_function_is_what_the_package_exports_whatever_is_imported_first(first: str) -> None:
    script = (
        f"import {first}\n"
        "from fedkge.datasets import partition\n"
        "from fedkge.datasets.partition import PARTITIONERS, Partitioner, partition as same\n"
        "import fedkge.datasets, fedkge.datasets.partition.overlap\n"
        "PARTITIONERS['cluster']\n"
        "assert partition is same is fedkge.datasets.partition and callable(partition)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("spec", ["random", "fedr", "overlap"])
def test_features_follow_their_labels(spec: str, umls: KnowledgeGraph) -> None:
    features = {
        "entity": np.arange(2.0 * umls.num_entities, dtype=np.float32).reshape(-1, 2),
        "relation": np.arange(umls.num_relations, dtype=np.float32)[:, None],
    }
    described = replace(umls, features=features)
    entity = dict(zip(umls.entity_labels, features["entity"].tolist(), strict=True))
    relation = dict(zip(umls.relation_labels, features["relation"].tolist(), strict=True))
    for graph in partition(described, spec, clients=3, seed=4).clients:
        assert graph.features["entity"].tolist() == [entity[label] for label in graph.entity_labels]
        assert graph.features["relation"].tolist() == [relation[label] for label in graph.relation_labels]
        assert not graph.features["entity"].flags.writeable
    assert mark(described, "0.5").features.keys() == features.keys()


def test_features_need_a_row_for_every_label(umls: KnowledgeGraph) -> None:
    assert umls.features == {}
    for wrong in ({"entity": np.zeros((3, 2))}, {"entities": np.zeros((umls.num_entities, 2))}):
        with pytest.raises(
            DataError, match=r"features of 'entit.*expected a row for each of 135 entity labels"
        ):
            replace(umls, features=wrong)
