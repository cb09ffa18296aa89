"""The partition `given-by`: hospitals as clients, told from what the graph says of its patients."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.datasets import SPLITS, KnowledgeGraph, LabelledTriples, partition
from fedkge.errors import DataError, SettingError, UnknownNameError

HOSPITAL = [
    ("ann", "staysAt", "north"),
    ("bob", "staysAt", "north"),
    ("cat", "staysAt", "south"),
    ("ann", "caredBy", "nurse-1"),
    ("bob", "caredBy", "nurse-2"),
    ("cat", "caredBy", "nurse-3"),
    ("nurse-1", "notes", "pulse"),
    ("nurse-2", "notes", "pulse"),
    ("nurse-3", "notes", "pulse"),
    ("pulse", "isA", "sign"),
    ("ann", "has", "flu"),
    ("cat", "has", "gout"),
    ("flu", "code", "J11"),
    ("gout", "code", "M10"),
    ("drA", "treats", "bob"),
    ("drA", "isA", "doctor"),
    ("bob", "transferredFrom", "cat"),
    ("north", "isIn", "east"),
    ("south", "isIn", "east"),
    ("dan", "has", "flu"),  # of no hospital
]


def graph_of(rows: list[tuple[str, str, str]]) -> KnowledgeGraph:
    heads, relations, tails = zip(*rows, strict=True)
    return KnowledgeGraph.from_labels("hospital", {"train": LabelledTriples(heads, relations, tails)})


def held(graph: KnowledgeGraph) -> set[tuple[str, str, str]]:
    parts = [graph.labelled(split) for split in SPLITS]
    return {row for part in parts for row in zip(part.heads, part.relations, part.tails, strict=True)}


def test_a_hospital_holds_its_patients_statements_and_the_vocabulary_that_they_lead_to() -> None:
    north, south = map(held, partition(graph_of(HOSPITAL), "given-by:staysAt", clients=2).clients)
    assert north == {
        ("ann", "staysAt", "north"),
        ("bob", "staysAt", "north"),
        ("ann", "caredBy", "nurse-1"),
        ("bob", "caredBy", "nurse-2"),
        ("nurse-1", "notes", "pulse"),
        ("nurse-2", "notes", "pulse"),
        ("pulse", "isA", "sign"),
        ("ann", "has", "flu"),
        ("flu", "code", "J11"),
        ("drA", "treats", "bob"),
        ("drA", "isA", "doctor"),
        ("bob", "transferredFrom", "cat"),
        ("north", "isIn", "east"),
    }
    assert south == {
        ("cat", "staysAt", "south"),
        ("cat", "caredBy", "nurse-3"),
        ("nurse-3", "notes", "pulse"),
        ("pulse", "isA", "sign"),
        ("cat", "has", "gout"),
        ("gout", "code", "M10"),
        ("south", "isIn", "east"),
    }


def test_what_no_hospital_holds_is_counted() -> None:
    assert partition(graph_of(HOSPITAL), "given-by:staysAt", clients=2).unassigned == 1  # dan's
    assert partition(graph_of(HOSPITAL), "given-by:staysAt", clients=1).unassigned == len(HOSPITAL) - 13


def test_the_largest_by_statements_come_first() -> None:
    rows = [
        *[(f"p{n}", "staysAt", "many") for n in range(5)],
        ("q", "staysAt", "much"),
        *[("q", "has", f"d{n}") for n in range(9)],
    ]
    (first,) = partition(graph_of(rows), "given-by:staysAt", clients=1).clients
    assert "much" in first.entity_labels


def test_the_predicate_is_the_last_part_of_an_iri_or_the_whole() -> None:
    rows = [(h, f"https://clinic.example/v#{r}", t) for h, r, t in HOSPITAL]
    short = partition(graph_of(rows), "given-by:staysAt", clients=2)
    whole = partition(graph_of(rows), "given-by:https://clinic.example/v#staysAt", clients=2)
    assert short.content_hash == whole.content_hash


def test_the_predicate_itself_is_never_held_out() -> None:
    """Its answer is the client: whoever asks it there would measure nothing."""
    rows = [(f"p{n}", "staysAt", f"h{n % 3}") for n in range(60)]
    rows += [(f"p{n}", "has", f"d{n % 7}") for n in range(60)] + [
        (f"p{n}", "takes", f"d{n % 5}") for n in range(60)
    ]
    split = partition(graph_of(rows), "given-by:staysAt", clients=3, seed=1)
    for client in split.clients:
        asked = Counter(
            relation for part in ("valid", "test") for relation in client.labelled(part).relations
        )
        assert asked.total() > 0
        assert asked["staysAt"] == 0
        assert client.unseen("test") == 0


def test_mistakes_name_the_remedy() -> None:
    graph = graph_of(HOSPITAL)
    with pytest.raises(SettingError, match="given-by:staysAt"):
        partition(graph, "given-by", clients=2)
    with pytest.raises(UnknownNameError, match="Did you mean 'staysAt'"):
        partition(graph, "given-by:staysIn", clients=2)
    with pytest.raises(DataError, match="2 objects for 3 clients"):
        partition(graph, "given-by:staysAt", clients=3)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 9)), max_size=40), st.data())
def test_held_statements_are_those_that_a_search_finds(
    rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """The oracle walks from the hospital's patients, statement by statement."""
    stays = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(20, 22)), min_size=1, max_size=8))
    triples = [(str(h), f"r{r}", str(t)) for h, r, t in rows] + [(str(p), "at", str(h)) for p, h in stays]
    triples = list(dict.fromkeys(triples))
    hospitals = {h for _, r, h in triples if r == "at"}
    patients = {p for p, r, _ in triples if r == "at"}
    split = partition(graph_of(triples), "given-by:at", clients=len(hospitals))
    expected = []
    for hospital in hospitals:
        own = {p for p, r, h in triples if r == "at" and h == hospital}
        known = {row for row in triples if row[0] in own or (row[2] in own and row[0] not in patients)}
        while True:
            ends = {end for h, _, t in known for end in (h, t)} - patients
            more = known | {row for row in triples if row[0] in ends}
            if more == known:
                break
            known = more
        expected.append(sorted(known))
    assert sorted(sorted(held(client)) for client in split.clients) == sorted(expected)


def test_numbers_do_not_depend_on_the_order_of_equals() -> None:
    rows = HOSPITAL.copy()
    np.random.default_rng(0).shuffle(rows)
    shuffled = partition(graph_of([tuple(row) for row in rows]), "given-by:staysAt", clients=2)
    plain = partition(graph_of(HOSPITAL), "given-by:staysAt", clients=2)
    assert [held(client) for client in shuffled.clients] == [held(client) for client in plain.clients]
