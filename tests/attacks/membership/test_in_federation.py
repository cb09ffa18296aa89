"""Membership inference from views: planted members are found, random rows tell nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedkge.attacks import ATTACKS
from fedkge.attacks.membership.federated.games import game_about
from fedkge.attacks.membership.federated.in_federation import Membership, play
from fedkge.attacks.membership.federated.relation_fit import fitted_relations
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import UNKNOWN, Handover, Rows, Snapshot, View
from fedkge.client import MODELS
from fedkge.client.models.initial import seed_key
from fedkge.datasets import KnowledgeGraph, LabelledTriples
from fedkge.experiment import ModelSettings

ENTITIES = tuple(f"e{number}" for number in range(160))
RELATIONS = ("r0", "r1", "r2")
DIM = 8


def labelled(name, train, test):
    def split(triples):
        heads, kinds, tails = zip(*triples, strict=True) if triples else ((), (), ())
        return LabelledTriples(heads, kinds, tails)

    return KnowledgeGraph.from_labels(name, {"train": split(train), "test": split(test)})


@pytest.fixture(scope="module")
def truth():
    """Two clients with 120 train and 60 test triples each, over the same entities."""
    rng = np.random.default_rng(0)
    drawn = {
        (f"e{h}", f"r{r}", f"e{t}")
        for h, r, t in zip(*(rng.integers(0, n, 700) for n in (160, 3, 160)), strict=True)
    }
    triples = [triple for triple in sorted(drawn) if triple[0] != triple[2]]
    triples = [triples[place] for place in rng.permutation(len(triples))]
    clients = [
        labelled(f"client-{c}", triples[180 * c :][:120], triples[180 * c :][120:180]) for c in range(2)
    ]
    return Truth(tuple(clients))


def view_with(truth, entity, relation, **changes):
    """A server that sees client 1's entity rows by name, with client 0 beside it."""
    names = np.arange(len(ENTITIES))
    rows = Rows(names, entity.astype(np.float32))
    handed = Handover(0, rows, Rows(np.arange(3), relation.astype(np.float32)), np.empty((0, 3), np.int64))
    view = View(
        "uploads", "server + client 0", "FedE", ModelSettings(name="TransE", dim=DIM), 2, ENTITIES, RELATIONS,
        (Snapshot(1, lee={1: rows}),), (handed,),
    )  # fmt: skip
    return replace(view, **changes)


def planted(truth, seed=0):
    """Rows under which client 1's train triples hold better than others: least squares of h + r = t."""
    rng = np.random.default_rng(seed)
    relation = rng.normal(size=(3, DIM))
    entity = rng.normal(size=(160, DIM))
    heads, kinds, tails = (np.array([int(x[1:]) for x in column]) for column in columns(truth.clients[1]))
    for _ in range(300):
        error = entity[heads] + relation[kinds] - entity[tails]
        np.add.at(entity, heads, -0.05 * error)
        np.add.at(entity, tails, 0.05 * error)
    return entity, relation


def columns(graph):
    split = graph.labelled("train")
    return split.heads, split.relations, split.tails


def auc(findings, regime, target=1):
    (found,) = [f for f in findings if (f.regime, f.metric, f.target) == (regime, "auc", target)]
    return found


# The questions.


def test_questions_are_the_targets_own_triples_and_no_others(truth):
    game = game_about(truth, [1], [0])
    entities, relations = list(truth.entity_ids), list(truth.relation_ids)
    asked = [(entities[h], relations[r], entities[t]) for h, r, t in game.triples.tolist()]
    train, held = (
        set(zip(*parts, strict=True)) for parts in (columns(truth.clients[1]), test_columns(truth, 1))
    )
    own = set(zip(*columns(truth.clients[0]), strict=True))
    assert {a for a, m in zip(asked, game.answers.member, strict=True) if m} == train - own
    assert {a for a, m in zip(asked, game.answers.member, strict=True) if not m} == held - train - own
    assert len(asked) == len(set(asked))


def test_columns(truth, client):
    split = truth.clients[client].labelled("test")
    return split.heads, split.relations, split.tails


test_columns.__test__ = False  # type: ignore[attr-defined]


def test_what_any_target_trains_on_is_no_non_member():
    first = labelled("a", [("x", "r", "y"), ("y", "r", "z")], [("z", "r", "x")])
    second = labelled("b", [("z", "r", "x"), ("x", "r", "z")], [("y", "r", "x")])
    third = labelled("c", [("y", "r", "x")], [])
    game = game_about(Truth((first, second, third)), [0, 1], [2])
    assert game.answers.member.all()  # z–x is trained by the second, and y–x is the adversary's own
    assert len(game) == 4


# Views.


def test_membership_is_registered():
    assert ATTACKS["membership"] is Membership


def test_planted_members_are_found(truth):
    findings = Membership().assess(
        view_with(truth, *planted(truth)), truth, "rigorous", np.random.default_rng(0)
    )
    assert auc(findings, "score, all").value > 0.95
    assert auc(findings, "score (fitted relations), all").value > 0.8
    assert auc(findings, "score, entity-seen without it").low > 0.5
    assert auc(findings, "control: degrees, all").at_chance


def test_curves_are_those_of_the_findings(truth):
    view = view_with(truth, *planted(truth))
    played = play(view, truth, 1, np.random.default_rng(0))
    findings = Membership().assess(view, truth, "rigorous", np.random.default_rng(0))
    for name, curve in played.curves().items():
        assert curve.auc == pytest.approx(auc(findings, f"{name}, entity-seen without it").value)


def test_random_rows_tell_nothing(truth):
    at_chance = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        view = view_with(truth, rng.normal(size=(160, DIM)), rng.normal(size=(3, DIM)))
        found = Membership().assess(view, truth, "rigorous", rng)
        at_chance += auc(found, "score, all").at_chance
    assert at_chance >= 6


def test_paper_protocol_gives_the_published_metrics(truth):
    findings = Membership().assess(
        view_with(truth, *planted(truth)), truth, "paper", np.random.default_rng(0)
    )
    assert {finding.metric for finding in findings} == {"accuracy", "f1", "precision", "recall"}
    assert all(finding.protocol == "paper" for finding in findings)


def test_training_between_two_rounds_shows(truth):
    after, relation = planted(truth)
    before = after + np.random.default_rng(1).normal(0, 1.0, size=after.shape)
    names = np.arange(160)
    rows = [Rows(names, values.astype(np.float32)) for values in (before, after)]
    shots = (Snapshot(1, gee=rows[0], lee={1: rows[0]}), Snapshot(2, gee=rows[0], lee={1: rows[1]}))
    view = view_with(truth, after, relation, rounds=shots)
    findings = Membership().assess(view, truth, "rigorous", np.random.default_rng(0))
    assert auc(findings, "gain, all").low > 0.5
    assert auc(findings, "score above the mean's, all").low > 0.5


def test_rows_of_rounds_that_do_not_follow_each_other_are_not_compared(truth):
    after, relation = planted(truth)
    rows = Rows(np.arange(160), after.astype(np.float32))
    shots = (Snapshot(1, gee=rows, lee={1: rows}), Snapshot(5, gee=rows, lee={1: rows}))
    findings = Membership().assess(
        view_with(truth, after, relation, rounds=shots), truth, "rigorous", np.random.default_rng(0)
    )
    assert not any(finding.regime.startswith("gain") for finding in findings)


def test_no_entity_rows_is_not_possible_rather_than_zero(truth):
    entity, relation = planted(truth)
    shots = (Snapshot(1, lre={1: Rows(np.arange(3), relation.astype(np.float32))}),)
    view = view_with(truth, entity, relation, strategy="FedR", rounds=shots)
    (finding,) = Membership().assess(view, truth, "rigorous", np.random.default_rng(0))
    assert finding.value is None
    assert "FedR brings none" in finding.note


def test_rows_without_names_are_not_possible(truth):
    entity, relation = planted(truth)
    nameless = Rows(np.full(160, UNKNOWN), entity.astype(np.float32), masked=True)
    view = view_with(truth, entity, relation, rounds=(Snapshot(1, lee={1: nameless}),))
    (finding,) = Membership().assess(view, truth, "paper", np.random.default_rng(0))
    assert finding.value is None
    assert "masked, and without names" in finding.note


def test_labels_that_the_adversary_does_not_know_are_not_asked_about(truth):
    entity, relation = planted(truth)
    view = view_with(truth, entity, relation, entities=ENTITIES[:80])
    rows = Rows(np.arange(80), entity[:80].astype(np.float32))
    view = replace(view, rounds=(Snapshot(1, lee={1: rows}),))
    findings = Membership().assess(view, truth, "rigorous", np.random.default_rng(0))
    known = sum(
        (np.isin(game_labels, ENTITIES[:80])).all()
        for game_labels in (
            [list(truth.entity_ids)[h], list(truth.entity_ids)[t]]
            for h, _, t in game_about(truth, [1], [0]).triples.tolist()
        )
    )
    assert auc(findings, "score, all").count == known


def test_the_truth_is_used_for_scoring_alone(truth):
    """With members and non-members exchanged, the area is mirrored: the same guesses were scored."""
    swapped = Truth(
        (
            truth.clients[0],
            labelled(
                "client-1",
                list(zip(*test_columns(truth, 1), strict=True)),
                list(zip(*columns(truth.clients[1]), strict=True)),
            ),
        )
    )
    entity, relation = planted(truth)
    first = Membership().assess(
        view_with(truth, entity, relation), truth, "rigorous", np.random.default_rng(0)
    )
    second = Membership().assess(
        view_with(swapped, entity, relation), swapped, "rigorous", np.random.default_rng(0)
    )
    assert auc(first, "score, all").value == pytest.approx(1 - auc(second, "score, all").value)


@pytest.mark.parametrize("name", ["TransE", "DistMult", "ComplEx", "TransH", "RotatE"])
def test_fitted_relations_tell_true_from_false(name):
    """Relation rows that made the pairs are found again, up to what tells true pairs from others."""
    rng = np.random.default_rng(0)
    settings = ModelSettings(name=name, dim=DIM)
    kind = MODELS[name]
    entity = kind.initial_table("entity", ENTITIES, settings, seed_key(1, "entity"))
    relation = kind.initial_table("relation", RELATIONS, settings, seed_key(1, "relation"))
    model = kind.of_rows(settings, entity, relation)
    head, kinds = np.repeat(np.arange(160), 3), np.tile(np.arange(3), 160)
    each = np.stack([model.scores_of(head, kinds, np.full(480, tail)) for tail in range(160)])
    triples = np.stack([head, kinds, each.argmax(axis=0)], axis=1).astype(np.int32)
    fitted = kind.of_rows(settings, entity, fitted_relations(settings, entity, triples, 3, rng))
    false = rng.integers(0, 160, 480)
    right = fitted.scores_of(*triples.T) > fitted.scores_of(head, kinds, false)
    assert right.mean() > 0.75
