"""Counts of triples from how far rows move: planted counts are found, random motion tells nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from fedkge.attacks import ATTACKS
from fedkge.attacks.holdings.rank_correlation import correlation, random_reach
from fedkge.attacks.holdings.row_motion import Motion, mean_motion
from fedkge.attacks.holdings.triple_counts import Holdings, less_own
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import UNKNOWN, Handover, Movement, Rows, Snapshot, View
from fedkge.datasets import KnowledgeGraph
from fedkge.experiment import ModelSettings

ENTITIES = tuple(f"e{number}" for number in range(40))
RELATIONS = tuple(f"r{number}" for number in range(20))
WIDTH = 6


def graph_with(name, counts, rng):
    """A client with so many triples of each relation."""
    kinds = np.repeat(np.arange(len(RELATIONS)), counts)
    triples = np.stack([rng.integers(0, 40, len(kinds)), kinds, rng.integers(0, 40, len(kinds))], axis=1)
    return KnowledgeGraph.from_ids(name, ENTITIES, RELATIONS, {"train": triples})


def truth_with(counts, seed=0):
    rng = np.random.default_rng(seed)
    return Truth(tuple(graph_with(f"client-{c}", row, rng) for c, row in enumerate(counts)))


def skewed(seed=0):
    """Three clients, each with counts of its own."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(np.arange(1, 21)) for _ in range(3)])


def handed(truth, client=0):
    triples = truth.clients[client].train.astype(np.int64)
    blank = Rows(np.arange(20), np.zeros((20, WIDTH), np.float32))
    return Handover(client, Rows(np.arange(40), np.zeros((40, WIDTH), np.float32)), blank, triples)


def steps_of(lengths, rng):
    directions = rng.normal(size=(len(lengths), WIDTH))
    return lengths[:, None] * directions / np.abs(directions).max(axis=1, keepdims=True)


def open_view(truth, lengths, seed=0, colludes=True):
    """FedR in the open: clients 1 and 2 upload relation rows that moved so far in each of two rounds."""
    rng = np.random.default_rng(seed)
    names, shots = np.arange(20), []
    whole = rng.normal(size=(20, WIDTH))
    for round in (1, 2, 3):
        local = {c: Rows(names, (whole + steps_of(lengths[c], rng)).astype(np.float32)) for c in (1, 2)}
        whole = whole + 0.1
        shots.append(Snapshot(round, gre=Rows(names, whole.astype(np.float32)), lre=local))
    return View(
        "uploads", "server + client 0" if colludes else "server", "FedR", ModelSettings(dim=WIDTH), 3,
        ENTITIES, RELATIONS, tuple(shots), (handed(truth),) if colludes else (),
    )  # fmt: skip


def sum_view(truth, lengths, seed=0):
    """FedR under secure aggregation: means over three holders, and a colluder who can name them."""
    rng = np.random.default_rng(seed)
    rows, shots = rng.normal(size=(20, WIDTH)), []
    for round in (1, 2, 3):
        shots.append(Snapshot(round, gre=Rows(np.arange(20), rows.astype(np.float32))))
        rows = rows + steps_of(lengths, rng) / 3
    return View(
        "aggregate", "server + client 0", "FedR", ModelSettings(dim=WIDTH), 3, ENTITIES, RELATIONS,
        tuple(shots), (handed(truth),), holders={"relation": np.full(20, 3)}, sums_only=True,
    )  # fmt: skip


def assess(view, truth, seed=0):
    return Holdings().assess(view, truth, "rigorous", np.random.default_rng(seed))


def rho(findings, target, source):
    (finding,) = [
        f
        for f in findings
        if (f.metric, f.target, f.regime) == ("count Spearman", target, f"relation rows, {source}")
    ]
    return finding


# Figures.


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=5, max_size=40))
def test_the_correlation_is_scipys_and_lies_in_its_interval(pairs):
    guess, true = np.array(pairs, dtype=np.float64).T
    value, (low, high) = correlation(guess, true)
    assert -1 <= low <= value <= high <= 1
    if len(set(guess)) > 1 and len(set(true)) > 1:
        assert value == pytest.approx(spearmanr(guess, true).statistic)
    else:
        assert value == 0


def test_intervals_cover_the_true_correlation():
    """Of a bivariate normal with Spearman's ρ 0.6, in about 95 of 100 samples of 25."""
    pearson = 2 * np.sin(np.pi * 0.6 / 6)
    rng, covered = np.random.default_rng(0), 0
    for _ in range(400):
        first, noise = rng.normal(size=(2, 25))
        _, (low, high) = correlation(first, pearson * first + np.sqrt(1 - pearson**2) * noise)
        covered += low <= 0.6 <= high
    assert 0.91 <= covered / 400 <= 0.99


def test_one_random_order_in_forty_reaches_the_band():
    rng = np.random.default_rng(1)
    true = np.arange(20.0)
    reach = random_reach(true, rng)
    beyond = [spearmanr(rng.permutation(20), true).statistic > reach for _ in range(2000)]
    assert 0.01 < np.mean(beyond) < 0.045


# Views.


def test_holdings_is_registered_and_compares_rounds():
    assert ATTACKS["holdings"] is Holdings
    assert Holdings.every_round


def test_planted_counts_are_read_off_open_uploads():
    truth = truth_with(counts := skewed())
    findings = assess(open_view(truth, np.sqrt(counts)), truth)
    for target in (1, 2):
        finding = rho(findings, target, "upload")
        assert finding.value == pytest.approx(1.0)
        assert finding.low > finding.baseline
        assert not finding.is_at_chance
        assert "random orders" in finding.note
        assert "colluders' own counts" in finding.note


def test_motion_that_says_nothing_is_at_chance():
    at_chance = 0
    for seed in range(10):
        truth = truth_with(skewed(seed), seed)
        lengths = np.random.default_rng(100 + seed).uniform(1, 2, size=(3, 20))
        findings = assess(open_view(truth, lengths, seed), truth)
        at_chance += sum(rho(findings, target, "upload").is_at_chance for target in (1, 2))
    assert at_chance >= 18


def test_where_all_hold_the_same_the_colluders_counts_do_as_well():
    """An even split: the motion tells the counts, and so does a look into one's own graph."""
    counts = np.tile(np.arange(1, 21), (3, 1))
    truth = truth_with(counts)
    noisy = counts * np.random.default_rng(2).uniform(0.7, 1.3, size=counts.shape)
    findings = assess(open_view(truth, noisy), truth)
    finding, guess = (rho(findings, 1, source) for source in ("upload", "guess: the colluders' own counts"))
    assert finding.value > 0.8
    assert finding.is_at_chance
    assert guess.value == pytest.approx(1.0)
    assert guess.is_at_chance  # a guess is no leak


def test_a_server_without_colluders_is_compared_with_random_orders_and_with_other_clients():
    truth = truth_with(counts := skewed())
    findings = assess(open_view(truth, np.sqrt(counts), colludes=False), truth)
    finding = rho(findings, 1, "upload")
    assert 0.3 < finding.baseline < 0.6
    assert finding.low > finding.baseline
    guesses = {f.regime for f in findings if "guess" in f.regime}
    assert guesses == {"relation rows, guess: the other clients' mean motion"}
    assert {f.target for f in findings} == {0, 1, 2}
    assert [f.value for f in findings if f.target == 0] == [None]  # it uploaded nothing here


def test_where_all_hold_the_same_the_other_clients_tell_as_much_of_one_as_its_own_upload():
    """An even split: a server that averages the others' uploads knows as much, and the finding says so."""
    counts = np.tile(np.arange(1, 21), (3, 1))
    truth = truth_with(counts)
    noisy = counts * np.random.default_rng(2).uniform(0.7, 1.3, size=counts.shape)
    finding = rho(assess(open_view(truth, noisy, colludes=False), truth), 1, "upload")
    assert finding.value > 0.8
    assert finding.is_at_chance
    assert "the other clients' mean motion" in finding.note
    skew = skewed()
    truth = truth_with(skew)
    finding = rho(assess(open_view(truth, np.sqrt(skew), colludes=False), truth), 1, "upload")
    assert not finding.is_at_chance


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=9, unique=True), min_size=1, max_size=5))
def test_a_mean_motion_counts_rows_that_a_client_lacks_as_unmoved(clients):
    motions = [Motion(np.array(names), np.arange(1.0, 1 + len(names)), 1) for names in clients]
    moved = [
        dict(zip(names, motion.largest, strict=True)) for names, motion in zip(clients, motions, strict=True)
    ]
    expected = [np.mean([rows.get(name, 0.0) for rows in moved]) for name in range(12)]
    assert mean_motion(motions, np.arange(12)) == pytest.approx(expected)


def test_what_a_client_holds_is_read_off_the_names_of_its_rows():
    counts = skewed()
    counts[1, 12:] = 0
    truth = truth_with(counts)
    first = KnowledgeGraph.from_ids("client-1", ENTITIES, RELATIONS[:12], {"train": truth.clients[1].train})
    truth = Truth((truth.clients[0], first, truth.clients[2]))
    view = open_view(truth, np.sqrt(counts))
    shots = tuple(
        replace(shot, lre={1: shot.lre[1].pick(np.arange(12)), 2: shot.lre[2]}) for shot in view.rounds
    )
    findings = assess(replace(view, rounds=shots), truth)
    held = {f.target: f for f in findings if f.metric == "holding AUC"}
    assert held[1].value == 1.0
    assert held[1].note.startswith("read:")
    assert (held[1].baseline, held[1].low, held[1].high) == (None, None, None)  # nobody guessed
    assert held[2].value is None
    assert "holds every one" in held[2].note


def test_sums_tell_the_counts_of_all_and_less_of_each():
    pooled = {"all": [], "one": []}
    for seed in range(5):
        truth = truth_with(counts := skewed(seed), seed)
        findings = assess(sum_view(truth, np.sqrt(counts.sum(axis=0)), seed), truth)
        assert rho(findings, None, "sum less the colluders' own").count == 20
        pooled["all"].append(rho(findings, None, "sum").value)
        pooled["one"] += [rho(findings, target, "sum").value for target in (1, 2)]
    assert np.mean(pooled["all"]) > np.mean(pooled["one"]) + 0.1


def test_taking_off_ones_own_counts_helps_where_the_total_is_known_well():
    own, others = np.array([9.0, 1, 5, 3, 7]), np.array([1.0, 20, 6, 3, 11])
    rest = less_own(own + others, own, 3)
    assert spearmanr(rest, others).statistic > spearmanr(own + others, others).statistic


def test_masked_uploads_without_names_are_not_possible_but_pseudonyms_have_counts():
    truth = truth_with(counts := skewed())
    rng = np.random.default_rng(3)
    order = rng.permutation(20)  # the pseudonym of relation n is order[n]
    truth = Truth(truth.clients, {"relation": (order,) * 3})
    total = np.sqrt(counts.sum(axis=0))[np.argsort(order)]
    steps = np.stack([steps_of(total, rng) / 3 for _ in range(2)]).astype(np.float32)
    nameless = Rows(np.full(20, UNKNOWN), rng.normal(size=(20, WIDTH)).astype(np.float32), masked=True)
    shots = tuple(Snapshot(round, lre=dict.fromkeys(range(3), nameless)) for round in (1, 2))
    movement = Movement(np.arange(20), np.full(20, UNKNOWN), steps, (1, 2), np.full(20, 3))
    view = View(
        "masked uploads", "server", "FedR", ModelSettings(dim=WIDTH), 3, (), (), shots,
        sums_only=True, movement={"relation": movement},
    )  # fmt: skip
    findings = assess(view, truth)
    assert [f.value for f in findings if f.target is not None] == [None] * 3
    assert all("masked" in f.note for f in findings if f.target is not None)
    finding = rho(findings, None, "sum, by pseudonym")
    assert finding.value == pytest.approx(1.0)
    assert "not told" in finding.note


def test_the_truth_is_used_for_scoring_alone():
    """With the counts turned round, the same guesses are scored: ρ changes its sign."""
    counts = skewed()
    truth, turned = truth_with(counts), truth_with(np.stack([counts[0], 21 - counts[1], 21 - counts[2]]))
    view = open_view(truth, np.sqrt(counts))
    first, second = (rho(assess(view, told), 1, "upload").value for told in (truth, turned))
    assert first == pytest.approx(-second)


def test_findings_follow_from_the_generator():
    truth = truth_with(counts := skewed())
    view = sum_view(truth, np.sqrt(counts.sum(axis=0)))
    assert assess(view, truth, 5) == assess(view, truth, 5)


def test_rounds_that_do_not_follow_each_other_are_not_compared():
    truth = truth_with(counts := skewed())
    view = open_view(truth, np.sqrt(counts))
    view = replace(view, rounds=(view.rounds[0], view.rounds[2]))
    assert all(finding.value is None for finding in assess(view, truth))
