"""The audit finds what is wrong with a split, and nothing where nothing is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedkge.datasets import KnowledgeGraph, Split, audit, load_graph, partition
from fedkge.simulations.cli.main import app

triple = st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 4))
part = st.lists(triple, max_size=12)


def graph(
    name: str, train: list[tuple[int, ...]], valid: list[tuple[int, ...]], test: list[tuple[int, ...]]
) -> KnowledgeGraph:
    arrays = {"train": np.array(train), "valid": np.array(valid), "test": np.array(test)}
    return KnowledgeGraph.from_ids(
        name, "abcde", "rst", {split: array.reshape(-1, 3) for split, array in arrays.items()}
    )


@given(st.lists(st.tuples(st.lists(triple, min_size=1, max_size=12), part, part), min_size=1, max_size=3))
def test_counts_agree_with_python_sets(clients: list[tuple[list[tuple[int, ...]], ...]]) -> None:
    found = audit(Split.of("s", [graph(str(n), *parts) for n, parts in enumerate(clients)], "none"))
    every = [row for parts in clients for rows in parts for row in rows]
    assert found.triples == len(every)
    assert found.distinct == len(set(every))
    trains = [set(train) for train, _, _ in clients]
    tests = [(row, number) for number, (_, _, test) in enumerate(clients) for row in test]
    assert found.test.held_out == len(tests)
    assert found.test.in_own_train == sum(row in trains[number] for row, number in tests)
    assert found.test.in_any_train == sum(any(row in train for train in trains) for row, _ in tests)
    owners = [set().union(*map(set, parts)) for parts in clients]
    assert found.shared_triples == sum(sum(row in own for own in owners) > 1 for row in set(every))
    assert [client.distinct for client in found.clients] == [len(own) for own in owners]


def test_overlap_is_the_jaccard_index(umls: KnowledgeGraph) -> None:
    split = partition(umls, "overlap:share=0.4", clients=3, seed=2)
    found = audit(split)
    first, second = (set(split.clients[n].entity_labels) for n in (0, 2))
    assert found.entity_overlap[0][2] == pytest.approx(len(first & second) / len(first | second), abs=1e-6)
    assert found.entity_overlap[1][1] == 1.0


@pytest.mark.parametrize("kind", ["inverse", "duplicate"])
def test_twin_relations_are_found_and_what_they_give_away_is_counted(kind: str) -> None:
    rng = np.random.default_rng(1)
    pairs = np.unique(rng.integers(0, 60, size=(100, 2)), axis=0)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]  # no pair is its own inverse
    said = np.column_stack([pairs[:, 0], np.zeros(len(pairs), dtype=int), pairs[:, 1]])
    twin = said[:, [2, 1, 0]] if kind == "inverse" else said.copy()
    twin[:, 1] = 1
    other = np.column_stack([rng.integers(0, 60, 80), np.full(80, 2), rng.integers(0, 60, 80)])
    split = {"train": np.concatenate([said, other]), "test": twin}
    found = audit(Split.single(KnowledgeGraph.from_ids("g", map(str, range(60)), "abc", split)))
    assert [(pair.kind, pair.first, pair.second) for pair in found.relation_pairs] == [(kind, "a", "b")]
    assert found.test.shortcut == len(twin)
    assert found.test.inverse == (len(twin) if kind == "inverse" else 0)
    assert found.given_away
    assert any("near-inverse" in problem for problem in found.problems)
    assert not found.leaks


def test_umls_whole_and_divided_is_sound(umls: KnowledgeGraph) -> None:
    for split in (Split.single(umls), partition(umls, "fedr", clients=5)):
        found = audit(split)
        assert not found.leaks
        assert found.test.in_any_train == 0


PUBLISHED = {
    5: (4462.20, 1049.60, 12.80, 0.84),
    10: (3182.60, 668.89, 12.60, 0.70),
    20: (2115.95, 385.56, 12.35, 0.75),
}


@pytest.mark.parametrize("clients", [5, 10, 20])
def test_the_published_splits_are_found_out(clients: int, published: dict[int, Split]) -> None:
    found = audit(published[clients])
    assert (found.triples, found.distinct) == (44_561, 22_249)
    assert found.leaks
    assert (*found.spread("entities"), *found.spread("relations")) == pytest.approx(
        PUBLISHED[clients], abs=0.005
    )
    own = {5: 0.397, 10: 0.289, 20: 0.230}
    anyone = {5: 0.726, 10: 0.672, 20: 0.693}
    assert found.test.own_share == pytest.approx(own[clients], abs=0.001)
    assert found.test.any_share == pytest.approx(anyone[clients], abs=0.001)


CLEAN = {  # entities per client of a clean random split, with room for the draw
    "DDB14": {5: (5925, 150), 20: (2579, 150)},
    "WN18RR": {5: (21_299, 330), 20: (7_498, 200)},
    "FB15k-237": {5: (13_372, 100), 20: (9_699, 220)},
}


@pytest.mark.parametrize("name", list(CLEAN))
def test_our_own_splits_do_not_leak_and_match_a_clean_table_5(name: str, data_folder: Path) -> None:
    graph = load_graph(name)
    for clients, (entities, width) in CLEAN[name].items():
        split = partition(graph, "fedr", clients=clients, seed=0)
        found = audit(split)
        assert (found.test.in_any_train, found.valid.in_any_train, split.unseen) == (0, 0, 0)
        assert found.distinct == found.triples == graph.num_triples
        assert found.spread("entities")[0] == pytest.approx(entities, abs=width)


def test_copies_within_a_client_are_found_even_when_clients_share(umls: KnowledgeGraph) -> None:
    thrice = {"train": np.concatenate([umls.train] * 3), "test": umls.test}
    graph = KnowledgeGraph.from_ids("g", umls.entity_labels, umls.relation_labels, thrice)
    problems = audit(Split.of("s", [graph, graph], "none")).problems
    assert any("duplicates" in problem for problem in problems)
    whole = Split.of("s", [umls, umls], "none")
    assert not any("duplicates" in problem for problem in audit(whole).problems)


def test_without_held_out_triples_nothing_is_judged(umls: KnowledgeGraph) -> None:
    bare = KnowledgeGraph.from_ids("g", umls.entity_labels, umls.relation_labels, {"train": umls.train})
    assert not audit(Split.single(bare)).judged
    assert audit(Split.single(umls)).judged


@pytest.mark.parametrize(("name", "share"), [("WN18RR", 0.347), ("Kinships", 0.236), ("UMLS", 0.147)])
def test_symmetric_relations_are_a_caution(name: str, share: float, data_folder: Path) -> None:
    found = audit(Split.single(load_graph(name)))
    assert found.test.symmetric_share == pytest.approx(share, abs=0.001)
    assert any("symmetric" in caution for caution in found.cautions)
    assert not found.leaks


def test_inverse_relations_give_the_test_of_fb15k_away(data_folder: Path) -> None:
    """Counted again with sets of pairs: an inverse is a relation with four fifths of the pairs, reversed."""
    graph = load_graph("FB15k")
    pairs: dict[int, set[tuple[int, int]]] = {}
    said: dict[tuple[int, int], set[int]] = {}
    for head, relation, tail in graph.triples.tolist():
        pairs.setdefault(relation, set()).add((head, tail))
        said.setdefault((head, tail), set()).add(relation)
    train = set(map(tuple, graph.train.tolist()))

    def is_inverse(first: int, second: int) -> bool:
        common = sum((tail, head) in pairs[second] for head, tail in pairs[first])
        sizes = len(pairs[first]), len(pairs[second])
        return min(sizes) >= 5 and common / max(sizes) >= 0.8

    known: dict[tuple[int, int], bool] = {}
    answered = 0
    for head, relation, tail in graph.test.tolist():
        others = said.get((tail, head), set()) - {relation}
        for other in others:
            if (relation, other) not in known:
                known[relation, other] = is_inverse(relation, other)
        answered += any(known[relation, other] and (tail, other, head) in train for other in others)
    found = audit(Split.single(graph))
    assert found.test.inverse == answered
    assert found.test.inverse_share > 0.6
    assert found.given_away
    assert not found.leaks  # no test triple itself stands in train
    assert not audit(Split.single(load_graph("FB15k-237"))).given_away


def test_the_command_says_it_loudly(data_folder: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["data", "audit", "FB15k", "--quiet", "--out", str(tmp_path / "audit")])
    assert done.exit_code == 0, done.output
    assert "DO NOT TRUST RESULTS ON THIS SPLIT" in done.output
    assert "by a near-inverse one" in " ".join(done.output.replace("│", " ").split())
