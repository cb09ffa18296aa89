"""Attacks find all that was planted, nothing that was not, and exactly what the published formulas count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from fedkge.attacks import ATTACKS, PROTOCOLS, Attack, Finding, View
from fedkge.attacks.reconstruction.algorithm import Claims, pool_of
from fedkge.attacks.reconstruction.as_published import trr_from_err
from fedkge.attacks.reconstruction.scoring import decoys, score
from fedkge.attacks.reconstruction.variants import Procrustes, Reconstruction
from fedkge.attacks.truth import Truth
from fedkge.client.models import MODELS
from tests.attacks import planted
from tests.contracts.model import SHALLOW


def assess(view: View, truth: Truth, protocol: str, attack: type[Attack] = Reconstruction) -> list[Finding]:
    return attack().assess(view, truth, protocol, np.random.default_rng(0))


def value(findings: list[Finding], metric: str, regime: str = "", target: int = 1) -> float:
    (found,) = [f for f in findings if (f.metric, f.target) == (metric, target) and f.regime == regime]
    assert found.value is not None
    return found.value


@pytest.mark.parametrize("name", [name for name in SHALLOW if MODELS[name].relation_width])
def test_planted_triples_are_found_exactly(name: str) -> None:
    view, truth = planted.global_view(planted.planted_tables(name, np.random.default_rng(1)), name)
    paper = assess(view, truth, "paper")
    for target in (1, 2):
        assert value(paper, "ERR", target=target) == 1
        assert value(paper, "TRR", target=target) == 1
    strict = assess(view, truth, "rigorous")
    for regime in ("global rows, true pairs, score", "local rows, true pairs, score"):
        for metric in ("precision", "recall", "F1", "AUPRC", "recall beyond the colluders' triples"):
            assert value(strict, metric, regime) == 1
    assert value(strict, "entity recall", "global rows") == 1


def test_naming_what_everyone_holds_is_no_better_than_guessing() -> None:
    view, truth = planted.global_view(planted.planted_tables("TransE", np.random.default_rng(1)))
    half = np.arange(len(view.entities) // 2)
    for claimed, share in ((np.arange(len(view.entities)), 1.0), (half, 0.5)):
        seen = replace(view, presence={"entity": {1: claimed, 2: claimed}})
        found = [f for f in assess(seen, truth, "rigorous") if f.regime == "global rows" and f.target == 1]
        measured = {f.metric: (f.value, f.baseline) for f in found}
        assert measured["entity recall"] == (share, share)
        assert measured["entity precision"] == (1.0, 1.0)


def test_planted_triples_stand_out_among_decoys_and_all_pairs() -> None:
    view, truth = planted.global_view(planted.planted_tables("TransE", np.random.default_rng(1)))
    found = assess(view, truth, "rigorous")
    assert value(found, "AUPRC", "global rows, true pairs among 9 decoys, score") == 1
    # All planted triples fit alike, whoever holds them, so a third of the claims can be client 1's.
    top = value(found, "recall", "global rows, all pairs from 24 heads, score")
    assert top == 1


@pytest.mark.parametrize("attack", [Reconstruction, Procrustes])
def test_unnamed_rows_are_named_by_their_neighbours(attack: type[Attack]) -> None:
    tables = planted.planted_tables("TransE", np.random.default_rng(2))
    noise = np.random.default_rng(3).normal(scale=0.01, size=tables["entity"].shape)
    view, truth = planted.granted_view(tables, (tables["entity"] + noise).astype(np.float32))
    found = assess(view, truth, "rigorous", attack)
    assert value(found, "entity recall", "local rows") == 1
    assert value(found, "entity precision (mutual)", "local rows") == 1
    assert value(found, "recall", "local rows, true pairs, inverse") == 1
    assert {finding.granted for finding in found} == {"LEE"}


def test_procrustes_finds_what_a_shift_hides_from_the_papers_attack() -> None:
    rng = np.random.default_rng(4)
    tables = planted.planted_tables("TransE", rng)
    shifted = (tables["entity"] + 8 * rng.normal(size=tables["entity"].shape[1])).astype(np.float32)
    view, truth = planted.granted_view(tables, shifted)
    weak = value(assess(view, truth, "paper"), "ERR")
    strong = value(assess(view, truth, "paper", Procrustes), "ERR")
    assert weak < 0.2 < 0.9 < strong


@given(st.integers(0, 2**32))
@settings(max_examples=6, deadline=None, derandomize=True)
def test_random_rows_give_nothing_but_chance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = planted.planted_tables("TransE", rng)
    tables["entity"] = rng.normal(size=tables["entity"].shape).astype(np.float32)
    for view, truth in (
        planted.global_view(tables),
        planted.granted_view(tables, rng.normal(size=tables["entity"].shape).astype(np.float32)),
    ):
        found = Reconstruction().assess(view, truth, "rigorous", rng)
        told = [f for f in found if f.baseline is not None and f.low is not None]
        assert told
        for finding in told:  # five standard deviations wide, since many are looked at
            spare = 2.5 * ((finding.high or 0) - (finding.low or 0))
            assert finding.value == pytest.approx(finding.baseline, abs=max(spare, 0.05)), finding
        assert max(f.value or 0 for f in found if f.metric == "AUPRC" and "decoys" in f.regime) < 0.2


def test_fede_rates_are_those_of_the_published_loop() -> None:
    """The notebook's way: walk the target's triples that have both ends in the pool, compare cosines."""
    rng = np.random.default_rng(5)
    tables = planted.planted_tables("TransE", rng)
    tables["entity"] = tables["entity"] + rng.normal(scale=0.8, size=tables["entity"].shape).astype(
        np.float32
    )
    view, truth = planted.global_view(tables, leak_ratio=0.5)
    pool = set(pool_of(view).names.tolist())
    relations = view.handed[0].relation
    found = assess(view, truth, "paper")
    for target in (1, 2):
        graph = truth.clients[target]
        hits = 0
        for head, relation, tail in graph.train:
            if int(head) in pool and int(tail) in pool:
                wanted = tables["entity"][tail] - tables["entity"][head]
                similar = [wanted @ r / np.linalg.norm(wanted) / np.linalg.norm(r) for r in relations.values]
                hits += relations.names[int(np.argmax(similar))] == relation
        assert 0 < hits < len(graph.train)
        assert value(found, "TRR", target=target) == hits / len(graph.train)
        assert value(found, "ERR", target=target) == len(pool) / graph.num_entities == 0.5


def test_fedr_trr_is_err_times_entities_over_triples() -> None:
    rng = np.random.default_rng(6)
    tables = planted.planted_tables("TransE", rng)
    rows = (tables["entity"] + rng.normal(size=tables["entity"].shape)).astype(np.float32)
    view, truth = planted.granted_view(tables, rows)
    found = assess(view, truth, "paper")
    graph = truth.clients[1]
    matched = sum(
        int(np.argmax([row @ e / np.linalg.norm(e) for e in tables["entity"]])) == place
        for place, row in enumerate(rows)
    )
    assert 0 < matched < graph.num_entities
    assert value(found, "ERR") == matched / graph.num_entities
    assert value(found, "TRR") == pytest.approx(matched / len(graph.train))
    assert value(found, "TRR") == trr_from_err(value(found, "ERR"), graph.num_entities, len(graph.train))


@given(st.floats(0.1, 1.0), st.integers(0, 100))
@settings(max_examples=25, deadline=None)
def test_a_colluder_leaks_the_share_that_was_asked_for(ratio: float, seed: int) -> None:
    tables = planted.planted_tables("TransE", np.random.default_rng(0))
    view, truth = planted.global_view(tables, leak_ratio=ratio, seed=seed)
    (handed,) = view.handed
    assert len(handed.entity) == round(ratio * planted.NUM_ENTITIES)
    leaked = set(handed.entity.names.tolist())
    own = truth.clients[0].train
    touched = {int(r) for h, r, t in own if int(h) in leaked or int(t) in leaked}
    assert set(handed.relation.names.tolist()) == touched
    assert {tuple(row) for row in handed.triples.tolist()} == {
        (h, r, t) for h, r, t in own.tolist() if h in leaked and t in leaked
    }


def test_two_colluders_leak_more_than_one() -> None:
    tables = planted.planted_tables("TransE", np.random.default_rng(0))
    view, truth = planted.global_view(tables, leak_ratio=0.3)
    other, _ = planted.global_view(tables, leak_ratio=0.3, seed=1)
    both = replace(view, handed=(view.handed[0], replace(other.handed[0], client=2)))
    assert both.targets == [1]
    assert value(assess(both, truth, "paper"), "ERR") > value(assess(view, truth, "paper"), "ERR")


def test_of_two_colluders_either_one_may_have_the_right_row() -> None:
    tables = planted.planted_tables("TransE", np.random.default_rng(0))
    view, truth = planted.granted_view(tables, tables["entity"])
    false = replace(view.handed[0], client=2, entity=replace(view.handed[0].entity, values=-tables["entity"]))
    for handed in ((view.handed[0], false), (replace(false, client=0), replace(view.handed[0], client=2))):
        found = assess(replace(view, handed=handed), truth, "rigorous")
        assert value(found, "entity recall", "local rows") == 1


def test_what_a_view_makes_impossible_is_said_and_not_counted_as_zero() -> None:
    view, truth = planted.global_view(planted.planted_tables("TransE", np.random.default_rng(0)))
    alone = replace(view, handed=(), adversary="server")
    for protocol in PROTOCOLS:
        found = assess(alone, truth, protocol)
        assert {f.target for f in found} == {0, 1, 2}
        triples = [f for f in found if f.metric in ("TRR", "recall")]
        assert triples
        for finding in triples:
            assert finding.value is None
            assert "known" in finding.note
    relations_only = replace(view, strategy="FedR", rounds=(replace(view.last, gee=None, lee={}),))
    assert all(not f.possible for f in assess(relations_only, truth, "paper"))


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_scores_are_those_of_sets_and_of_scikit_learn(data: st.DataObject) -> None:
    view, truth = planted.global_view(planted.planted_tables("TransE", np.random.default_rng(0)))
    triple = st.tuples(st.integers(0, 20), st.integers(0, planted.KINDS - 1), st.integers(0, 20))
    claimed = data.draw(st.lists(triple, min_size=1, max_size=40, unique=True))
    true = data.draw(st.lists(st.sampled_from(claimed), min_size=1, max_size=10, unique=True))
    confidence = np.array(data.draw(st.permutations(range(len(claimed)))), dtype=np.float32)
    keys = truth.keys(np.array(true, dtype=np.int64))
    found = score(view, truth, Claims(np.array(claimed, dtype=np.int64), confidence), keys)
    assert (found.hits, found.claims, found.positives) == (len(true), len(claimed), len(true))
    assert found.recall == 1
    assert found.f1 == pytest.approx(2 * len(true) / (len(true) + len(claimed)))
    relevant = [each in set(true) for each in claimed]
    assert found.average_precision == pytest.approx(average_precision_score(relevant, confidence))


def test_decoys_are_never_true_pairs() -> None:
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(12, size=(40, 2)), axis=0)
    false = decoys(pairs, pairs, np.arange(12), 5, rng)
    assert len(false) > 100
    assert not {tuple(p) for p in false.tolist()} & {tuple(p) for p in pairs.tolist()}
    assert (false[:, 0] != false[:, 1]).all()


@pytest.mark.parametrize("name", list(ATTACKS))
def test_every_attack_says_what_it_is(name: str) -> None:
    assert issubclass(ATTACKS[name], Attack)
    assert (ATTACKS[name].__doc__ or "").split("\n")[0].endswith(".")
