"""Attacks on scores and on small models: they find what is there, and nothing where nothing is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedkge.attacks.membership.central import signals
from fedkge.attacks.membership.central.halves import answers_about, halve, questions
from fedkge.attacks.membership.central.lira import lira, lira_offline
from fedkge.attacks.membership.central.rmia import likelihood_ratios, rmia
from fedkge.attacks.membership.central.shadows import Shadows, calibrate, drawn_halves, rehearse
from fedkge.attacks.membership.central.target import (
    TrainingRecipe,
    ask,
    published_attacks,
    shadow_attacks,
    train_shadows,
)
from fedkge.attacks.membership.central.transfer import TransferAttack
from fedkge.attacks.membership.curve import Curve
from fedkge.attacks.membership.guesses import Guess, best_threshold, correctness_attack, loss_attack
from fedkge.attacks.membership.scores import measures_of
from fedkge.client import build_model
from fedkge.datasets import KnowledgeGraph, Synthetic
from fedkge.errors import DataError, SettingError
from fedkge.experiment import ModelSettings, TrainingSettings


@pytest.fixture(scope="module")
def graph():
    return Synthetic(entities=60, relations=5, triples=280, jitter=2.0, seed=3).build()


@pytest.fixture(scope="module")
def recipe():
    training = TrainingSettings(
        negatives=4, batch_size=32, learning_rate=0.05, loss="logistic", corrupt="both"
    )
    return TrainingRecipe(ModelSettings(name="DistMult", dim=8), training, epochs=60, seed=1)


# The division.


def test_quarters_are_disjoint_and_lose_nothing(graph):
    target, shadow = halve(graph, np.random.default_rng(0))
    parts = [
        set(map(tuple, half[split].tolist())) for half in (target, shadow) for split in ("train", "test")
    ]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(np.unique(graph.triples, axis=0))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_triple_given_twice_is_on_one_side_only():
    twice = np.array([[0, 0, 1], [0, 0, 1], [1, 0, 2], [2, 0, 3], [3, 0, 0]])
    graph = KnowledgeGraph.from_ids("twice", "abcd", "r", {"train": twice})
    target, shadow = halve(graph, np.random.default_rng(0))
    assert sum(len(half.train) + len(half.test) for half in (target, shadow)) == 4


def test_too_few_triples_are_refused():
    graph = KnowledgeGraph.from_ids("tiny", "ab", "r", {"train": np.array([[0, 0, 1]])})
    with pytest.raises(DataError, match="4 or more"):
        halve(graph, np.random.default_rng(0))


def test_seen_and_matched_are_those_of_looking_up_every_part(graph):
    half, _ = halve(graph, np.random.default_rng(0))
    loop = np.array([[7, 0, 7]], dtype=np.int32)
    half = KnowledgeGraph.from_ids(
        "half", graph.entity_labels, graph.relation_labels,
        {"train": np.concatenate([half.train, loop]), "test": half.test},
    )  # fmt: skip
    asked = questions(half, np.random.default_rng(1))
    train = list(map(tuple, half.train.tolist()))
    for i, (h, r, t) in enumerate(asked.triples.tolist()):
        others = [triple for triple in train if triple != (h, r, t)]
        for among, found in ((train, asked.answers.seen[i]), (others, asked.answers.matched[i])):
            entities = {e for a, _, b in among for e in (a, b)}
            assert found == (h in entities and t in entities and r in {x for _, x, _ in among})
        assert asked.answers.member[i] == ((h, r, t) in train)


def test_order_of_questions_says_nothing(graph):
    half, _ = halve(graph, np.random.default_rng(0))
    member = questions(half, np.random.default_rng(5)).answers.member
    first = member[: len(member) // 2].mean()
    assert 0.3 < first < 0.7


# Signals.


def test_scores_in_blocks_are_the_models_own(graph, monkeypatch):
    model = build_model(ModelSettings(name="TransE", dim=8), graph, 0)
    whole = model.scores_of(*graph.train.T)
    monkeypatch.setattr(signals, "_BLOCK", 80)
    np.testing.assert_allclose(signals.scores(model, graph.train), whole, rtol=1e-6)


def test_losses_are_the_written_ones():
    score = np.array([-3.0, 0.0, 2.5])
    np.testing.assert_allclose(signals.logistic_loss(score), np.log1p(np.exp(-score)))


def test_margin_loss_is_the_mean_over_corruptions(graph):
    model = build_model(ModelSettings(name="TransE", dim=8, margin=3.0), graph, 0)
    found = signals.margin_loss(model, graph.train, 2, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    false = [signals.corrupted(graph.train, graph.num_entities, rng) for _ in range(2)]
    for i, (h, r, t) in enumerate(graph.train[:20].tolist()):
        score = model.scores_of([h], [r], [t])[0]
        losses = [max(3.0 - score + model.scores_of(*(part[i][:, None]))[0], 0) for part in false]
        assert found[i] == pytest.approx(np.mean(losses), rel=1e-4)


def test_corruption_changes_one_end(graph):
    false = signals.corrupted(graph.train, graph.num_entities, np.random.default_rng(0))
    changed = false != graph.train
    assert (changed.sum(axis=1) == 1).all()
    assert not changed[:, 1].any()
    assert false.max() < graph.num_entities


def test_reciprocal_ranks_are_those_of_counting(graph):
    model = build_model(ModelSettings(name="DistMult", dim=8), graph, 0)
    asked = graph.train[:40]
    known = set(map(tuple, asked.tolist()))
    found = signals.reciprocal_ranks(model, graph, asked)
    for (h, r, t), value in zip(asked.tolist(), found, strict=True):
        each = np.arange(graph.num_entities)
        tails = model.scores_of(np.full_like(each, h), np.full_like(each, r), each)
        heads = model.scores_of(each, np.full_like(each, r), np.full_like(each, t))
        rivals = (
            [e for e in each if e != t and (h, r, e) not in known],
            [e for e in each if e != h and (e, r, t) not in known],
        )
        ranks = 1 + sum(tails[rivals[0]] > tails[t]), 1 + sum(heads[rivals[1]] > heads[h])
        assert value == pytest.approx(np.mean([1 / rank for rank in ranks]), abs=0.02)


# The published attacks.


def test_loss_attack_calls_members_below_the_mean():
    guess = loss_attack(np.array([0.0, 1.0, 5.0]))
    assert guess.member.tolist() == [True, True, False]
    assert guess.certainty.argmax() == 0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=12),
    st.lists(st.integers(-5, 5), min_size=1, max_size=12),
)
def test_threshold_is_the_best_of_all_that_could_be_tried(true, false):
    true, false = np.array(true, float), np.array(false, float)

    def right(bar):
        return (true >= bar).sum() + (false < bar).sum()

    assert right(best_threshold(true, false)) >= max(right(bar) for bar in np.concatenate([true, false]))


def test_correctness_sees_labels_only():
    guess = correctness_attack(np.array([0.1, 5.0, 7.0]), 5.0)
    assert guess.member.tolist() == [False, True, True]
    assert set(guess.certainty.tolist()) == {0.0, 1.0}


def test_transfer_finds_a_band_that_no_single_bar_can():
    rng = np.random.default_rng(0)
    member = np.arange(4000) % 2 == 0
    scores = np.where(member, rng.normal(0, 0.5, 4000), rng.choice([-4, 4], 4000) + rng.normal(0, 0.5, 4000))
    attack = TransferAttack.fit(scores[:2000], member[:2000], seed=0)
    assert (attack.guess(scores[2000:]).member == member[2000:]).mean() > 0.97


def test_transfer_is_the_same_again_and_leaves_torch_alone():
    rng = np.random.default_rng(0)
    scores, member = rng.normal(size=300), rng.random(300) < 0.5
    state = torch.random.get_rng_state()
    first, second = (TransferAttack.fit(scores, member, seed=4).guess(scores).certainty for _ in range(2))
    assert (first == second).all()
    assert (torch.random.get_rng_state() == state).all()


# Shadow models.


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 10), st.integers(1, 40), st.integers(0, 99))
def test_every_triple_is_in_half_of_the_models(half, size, seed):
    included = drawn_halves(2 * half, size, np.random.default_rng(seed))
    assert (included.sum(axis=0) == half).all()


@pytest.mark.parametrize("count", [0, 2, 5])
def test_too_few_or_odd_shadows_are_refused(count):
    with pytest.raises(SettingError, match="even number of at least 4"):
        drawn_halves(count, 10, np.random.default_rng(0))


def test_lira_is_the_ratio_of_fitted_normals():
    rng = np.random.default_rng(0)
    included = drawn_halves(64, 6, rng)
    signal = rng.normal(size=(64, 6)) + included
    target = rng.normal(size=6)
    found, above = lira(target, Shadows(signal, included)), lira_offline(target, Shadows(signal, included))
    for i in range(6):
        own, out = signal[included[:, i], i], signal[~included[:, i], i]
        expected = norm.logpdf(target[i], own.mean(), own.std(ddof=1)) - norm.logpdf(
            target[i], out.mean(), out.std(ddof=1)
        )
        assert found[i] == pytest.approx(expected)
        assert above[i] == pytest.approx((target[i] - out.mean()) / out.std(ddof=1))


def test_few_shadows_share_their_variance():
    rng = np.random.default_rng(0)
    included = drawn_halves(4, 50, rng)
    signal = rng.normal(size=(4, 50))
    spread = np.mean([signal[included[:, i], i].var(ddof=1) for i in range(50)])
    out_spread = np.mean([signal[~included[:, i], i].var(ddof=1) for i in range(50)])
    found = lira(np.zeros(50), Shadows(signal, included))
    own = np.array([signal[included[:, i], i].mean() for i in range(50)])
    out = np.array([signal[~included[:, i], i].mean() for i in range(50)])
    expected = norm.logpdf(0, own, spread**0.5) - norm.logpdf(0, out, out_spread**0.5)
    np.testing.assert_allclose(found, expected)


def test_rmia_counts_pairs():
    rng = np.random.default_rng(0)
    included = drawn_halves(8, 20, rng)
    signal = np.log(rng.random((8, 20)))
    target = np.log(rng.random(20))
    shadows = Shadows(signal, included)
    chance = np.array(
        [
            (np.exp(signal[included[:, i], i]).mean() + np.exp(signal[~included[:, i], i]).mean()) / 2
            for i in range(20)
        ]
    )
    ratio = np.exp(target) / chance
    np.testing.assert_allclose(np.exp(likelihood_ratios(target, shadows)), ratio)
    other = rng.random(30) * 3
    expected = [(ratio[i] / other >= 1.5).mean() for i in range(20)]
    np.testing.assert_allclose(rmia(target, shadows, np.log(other), gamma=1.5), expected)


def test_bars_come_from_the_rehearsal_alone():
    certainty = np.concatenate([np.arange(1000.0), np.arange(500.0, 1500.0)])
    bars = calibrate(certainty, np.arange(2000) >= 1000)
    assert bars.at_rate == {0.01: 990.0, 0.001: 999.0}
    assert bars.guess(np.array([bars.best - 1, bars.best])).member.tolist() == [False, True]


def test_rehearsed_bars_keep_their_promise_on_a_new_target():
    rng = np.random.default_rng(0)
    size = 4000
    difficulty = rng.normal(0, 3, size)
    included = drawn_halves(8, size, rng)
    member = rng.random(size) < 0.5
    signal = difficulty + rng.normal(size=(8, size)) + 2 * included
    target = difficulty + rng.normal(size=size) + 2 * member
    shadows = Shadows(signal, included)
    certainty = lira(target, shadows)
    bars = rehearse(lira, shadows)
    assert 0.004 < (certainty[~member] >= bars.at_rate[0.01]).mean() < 0.02
    assert Curve.of(certainty, member).auc > Curve.of(target, member).auc + 0.1  # difficulty is taken out


# Small models, from end to end.


@pytest.fixture(scope="module")
def attacked(graph, recipe):
    half, other = halve(graph, np.random.default_rng(0))
    target, shadow = ask(half, recipe, 0), ask(other, recipe, 1)
    return half, target, shadow, train_shadows(half, target.questions.triples, recipe, 8, number=2)


def test_every_attack_beats_chance_on_an_overfitted_model(attacked):
    _, target, shadow, shadowed = attacked
    member = target.questions.answers.member
    guesses = published_attacks(target, shadow)
    guesses |= {name: guess for name, (guess, _) in shadow_attacks(target, shadowed).items()}
    for name, guess in guesses.items():
        curve = Curve.of(guess.certainty, member)
        low, _ = curve.figures(np.random.default_rng(0))["auc"][1]
        assert low > 0.5, name
    assert Curve.of(guesses["LiRA"].certainty, member).auc > 0.8


def test_no_attack_beats_chance_on_a_model_that_never_saw_the_members(attacked, recipe):
    """Shadows tell in from out, but the target was trained on neither half of the questions."""
    half, target, _, shadowed = attacked
    rng = np.random.default_rng(7)
    elsewhere = Synthetic(entities=60, relations=5, triples=70, jitter=2.0, seed=9).build()
    model = recipe.fit(
        KnowledgeGraph.from_ids(
            "other", half.entity_labels, half.relation_labels, {"train": elsewhere.triples}
        ),
        99,
    )
    triples = target.questions.triples
    scores = signals.scores(model, triples)
    stranger = type(target)(target.questions, scores, scores, 0.0, signals.log_likelihood(model, scores))
    member = target.questions.answers.member
    for name, (guess, _) in shadow_attacks(stranger, shadowed).items():
        low, high = Curve.of(guess.certainty, member).figures(rng)["auc"][1]
        assert low <= 0.5 <= high, name


def guesses(target, shadow, shadowed):
    """What every attack says."""
    by_shadows = (guess for guess, _ in shadow_attacks(target, shadowed).values())
    return [*published_attacks(target, shadow).values(), *by_shadows]


def test_answers_are_not_read_by_attacks(attacked):
    """The same guesses come out when every answer about the target is turned round."""
    _, target, shadow, shadowed = attacked
    answers = target.questions.answers
    lied = type(answers)(~answers.member, ~answers.seen, ~answers.matched, -answers.degree)
    other = type(target)(
        type(target.questions)(target.questions.triples, lied),
        target.scores, target.margin_loss, target.threshold, target.likelihood,
    )  # fmt: skip
    for first, second in zip(
        guesses(target, shadow, shadowed), guesses(other, shadow, shadowed), strict=True
    ):
        assert (first.certainty == second.certainty).all()
        assert (first.member == second.member).all()


def test_figures_cover_the_three_subsets(attacked):
    _, target, _, shadowed = attacked
    guess, bars = shadow_attacks(target, shadowed)["LiRA"]
    figures = measures_of(guess, target.questions.answers, np.random.default_rng(0), bars)
    assert {figure.subset for figure in figures} == {"all", "seen", "matched"}
    assert {"accuracy", "auc", "tpr@1.0%", "tpr@0.1%", "calibrated fpr@1.0%"} <= {f.metric for f in figures}
    for figure in figures:
        assert figure.interval[0] - 1e-9 <= figure.value <= figure.interval[1] + 1e-9


def test_cold_starts_do_not_count_among_the_seen():
    """An attack that only tells whether an entity was trained is at chance on the seen subset."""
    triples = np.array([[i, 0, i + 1] for i in range(40)])
    graph = KnowledgeGraph.from_ids("chain", map(str, range(60)), "r", {"train": triples})
    asked = np.concatenate([triples, [[i, 0, i + 2] for i in range(39)], [[50, 0, 51]] * 40])
    member = np.arange(len(asked)) < 40
    answers = answers_about(graph, asked, member)
    warm = answers.seen.astype(float)
    figures = measures_of(Guess(warm, answers.seen), answers, np.random.default_rng(0))
    auc = {figure.subset: figure.value for figure in figures if figure.metric == "auc"}
    assert auc["all"] > 0.7
    assert auc["seen"] == 0.5
