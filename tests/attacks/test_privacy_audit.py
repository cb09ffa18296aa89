"""The audit on a small graph: it finds what there is to find, and nothing where noise covers it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedkge.attacks.canaries.planting import (
    plant,
    plant_among_alike,
    plant_at_hub,
    plant_at_threshold,
    plant_described,
)
from fedkge.attacks.canaries.privacy_audit import audit
from fedkge.attacks.canaries.servers import Echoing, Passive
from fedkge.client.privacy import MECHANISMS, PrivacyAccount, account, hub_step
from fedkge.client.privacy.grid import GridSum
from fedkge.client.privacy.hubs import Hubs
from fedkge.client.privacy.networks.release import Release
from fedkge.datasets.confidential import mark
from fedkge.datasets.synthetic import Synthetic
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from fedkge.simulations.studies.dkrl import text_audit
from fedkge.simulations.studies.dkrl.text_audit import Attack
from fedkge.simulations.studies.dpkge import dpkge_active_audit as active

MODEL = ModelSettings(name="TransE", dim=8, margin=0.0)
TRAINING = TrainingSettings(
    local_epochs=1, batch_size=32, negatives=1, learning_rate=0.01, optimizer="SGD", loss="logistic"
)
ALL_AT_ONCE = TRAINING.model_copy(update={"batch_size": 10**6})


@pytest.fixture(scope="module")
def graph():
    return mark(Synthetic(entities=60, relations=4, triples=200, held_out=0).build(), "random:0.5")


def audited(graph, training=TRAINING, seed=0, **dp):
    settings = DPSettings(clip=1.0, delta=1e-5, **dp)
    found = audit(graph, MODEL, training, settings, rounds=2, num_canaries=600, seed=seed)
    return {one.attacker: one for one in found}


def test_canaries_are_declared_whether_or_not_they_are_in(graph):
    planted = plant(graph, 50, np.random.default_rng(0))
    assert planted.graph.num_relations == graph.num_relations + 50
    assert planted.graph.num_entities == graph.num_entities + 100
    assert 0 < planted.included.sum() < 50
    inside = {tuple(row) for row in planted.graph.train.tolist()}
    assert [tuple(row) in inside for row in planted.canaries.tolist()] == planted.included.tolist()
    added = planted.graph.marks("train")[len(graph.train) :]
    assert added.all()
    assert len(added) == planted.included.sum()


def test_training_as_printed_is_refuted_whatever_its_noise(graph):
    for sigma in (1.0, 10.0):
        found = audited(graph, mode="paper", sigma=sigma)["touched rows"]
        assert found.bound.epsilon > 3
        assert found.refuted


@pytest.mark.parametrize("training", [TRAINING, ALL_AT_ONCE])
@pytest.mark.parametrize("sigma", [1.0, 4.0])
def test_sound_training_stands(graph, training, sigma):
    for found in audited(graph, training, mode="sound", sigma=sigma).values():
        assert not found.refuted


def test_which_rows_moved_tells_nothing_in_sound_training(graph):
    assert audited(graph, mode="sound", sigma=1.0)["touched rows"].bound.epsilon < 0.2


def test_the_attacker_sees_through_training_without_noise_to_speak_of(graph):
    """Else that sound training stands would say nothing."""
    found = audited(graph, ALL_AT_ONCE, mode="sound", sigma=1e-3)["along the gradient"]
    assert found.bound.epsilon > 3
    assert found.claimed > 1000


def test_sound_training_that_forgets_its_noise_is_caught(graph, monkeypatch):
    """A broken mechanism: everything of `sound`, but the noise forgotten."""
    honest = account.train_privately

    def broken(model, graph, rng, settings, dp, key, **rest):
        result = honest(model, graph, rng, settings, dp.model_copy(update={"sigma": 1e-9}), key, **rest)
        events = tuple(replace(event, sigma=dp.sigma) for event in result.events)
        return replace(result, events=events)

    monkeypatch.setattr(account, "train_privately", broken)
    found = audited(graph, ALL_AT_ONCE, mode="sound", sigma=4.0)["along the gradient"]
    assert found.refuted


def test_the_same_seed_gives_the_same_audit(graph):
    first, second = (audited(graph, mode="sound", sigma=1.0, seed=3) for _ in range(2))
    assert first == second


# A server that chooses rows and asks again.

ACTIVE = [(mode, scenario) for mode, scenarios in active.SCENARIOS.items() for scenario in scenarios]
STANDING = [(mode, scenario) for mode, scenario in ACTIVE if MECHANISMS[mode].guaranteed]


def attacked(graph, mode, server, canaries, epsilon=1.0, num_canaries=300, **options):
    """By attacker, what a server of the study finds."""
    (scenario,) = (s for s in active.SCENARIOS[mode] if (s.server, s.canaries) == (server, canaries))
    scenario = replace(scenario, options={**scenario.options, **options})
    found = active.audited(graph, mode, scenario, epsilon, num_canaries, seed=0)
    return {one.attacker: one for one in found}


def test_every_mechanism_is_audited_by_every_server():
    """A mechanism that is registered has to say how it is attacked."""
    over_texts = {attack.mode for attack in text_audit.SETTINGS}
    of_networks = {mode for mode, kind in MECHANISMS.items() if issubclass(kind, Release)}  # by edge games
    assert set(active.SCENARIOS) | over_texts | of_networks == set(MECHANISMS)
    assert not of_networks & set(active.SCENARIOS)
    for mode, scenarios in active.SCENARIOS.items():
        if MECHANISMS[mode].guaranteed:
            servers = {scenario.server for scenario in scenarios}
            assert servers >= {"passive", "extreme", "colliding", "inconsistent"}


@pytest.mark.parametrize(("mode", "scenario"), STANDING, ids=lambda value: getattr(value, "server", value))
def test_no_server_refutes_a_guarantee(graph, mode, scenario):
    for epsilon in (1.0, 4.0):
        for found in active.audited(graph, mode, scenario, epsilon, 300, seed=0):
            assert found.claimed == pytest.approx(epsilon, rel=0.02)
            assert not found.refuted


@pytest.mark.parametrize(
    ("server", "share"),
    [("colliding", 10), ("inconsistent", 10), ("extreme", 40)],  # extreme rows: canaries hide one another
)
def test_hubs_with_a_small_share_of_the_noise_are_caught(graph, monkeypatch, server, share):
    honest = GridSum.noised
    monkeypatch.setattr(GridSum, "noised", lambda self, deviation, key: honest(self, deviation / share, key))
    assert attacked(graph, "hubs", server, "at a hub", 0.4)["along the gradient"].refuted


def test_a_start_with_a_tenth_of_the_noise_is_caught(graph, monkeypatch):
    honest = GridSum.noised
    monkeypatch.setattr(GridSum, "noised", lambda self, deviation, key: honest(self, deviation / 10, key))
    assert attacked(graph, "hubs", "starting", "at a hub")["along the gradient"].refuted


def test_hubs_chosen_with_a_tenth_of_the_noise_are_caught(graph, monkeypatch):
    """The threshold stays where it is: one triple more decides whether a row is chosen, and so moves."""
    honest = Hubs.sigmas

    def broken(self, unknown):
        choice, *others = honest(self, unknown)
        return choice / 10, *others

    scenario = active.SCENARIOS["hubs"][-1]
    degree = scenario.planting(1.0).keywords["degree"]
    whole = attacked(graph, "hubs", "passive", "at the threshold", least=degree + 0.5, num_canaries=600)
    assert not whole["touched rows"].refuted
    cost = Hubs.cost

    def as_promised(self, plan, stretch, memory):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Hubs, "sigmas", honest)
            return cost(self, plan, stretch, memory)

    monkeypatch.setattr(Hubs, "cost", as_promised)
    monkeypatch.setattr(Hubs, "sigmas", broken)
    found = attacked(graph, "hubs", "passive", "at the threshold", least=degree + 0.5, num_canaries=600)
    assert found["touched rows"].refuted


def test_hubs_that_do_not_make_gradients_as_long_as_1_are_caught(graph, monkeypatch):
    monkeypatch.setattr(hub_step, "unit_share", lambda square: np.full_like(square, 10.0))
    assert attacked(graph, "hubs", "colliding", "at a hub")["along the gradient"].refuted


@pytest.mark.parametrize("canaries", ["own rows", "at a hub"])
@pytest.mark.parametrize("server", ["colliding", "extreme"])
def test_sound_training_with_a_tenth_of_its_noise_is_caught(graph, monkeypatch, server, canaries):
    honest = account.train_privately

    def broken(model, graph, rng, settings, dp, key, **rest):
        less = dp.model_copy(update={"sigma": dp.sigma / 10})
        return honest(model, graph, rng, settings, less, key, **rest)

    monkeypatch.setattr(account, "train_privately", broken)
    assert any(found.refuted for found in attacked(graph, "sound", server, canaries).values())


@pytest.mark.parametrize("mode", ["sound", "hubs"])
def test_noise_that_serves_two_answers_is_caught_by_their_difference(graph, monkeypatch, mode):
    """An account that does not look at the rows gives the second answer for free, with the same noise."""
    monkeypatch.setattr(PrivacyAccount, "_digest", lambda self, *words: f"{words[3]:064x}")
    assert attacked(graph, mode, "inconsistent", "at a hub")["difference of answers"].refuted


def test_a_question_that_is_repeated_costs_nothing_and_tells_nothing_more(graph, monkeypatch):
    answers = []
    honest = active.SERVERS["inconsistent"]
    train = PrivacyAccount.train

    def watched(self, model, *rest, **named):
        result = train(self, model, *rest, **named)
        answers.append(({name: table.copy() for name, table in model.tables.items()}, len(self.charges)))
        return result

    monkeypatch.setattr(PrivacyAccount, "train", watched)
    attacked(graph, "hubs", "inconsistent", "at a hub", num_canaries=20)
    first, other, again = answers[: honest.asks]
    for name, table in first[0].items():
        np.testing.assert_array_equal(table, again[0][name])
    assert any((first[0][name] != other[0][name]).any() for name in first[0])
    assert [count for _, count in (first, other, again)] == [1, 2, 2]


def test_a_crowd_makes_relation_and_hub_common_and_is_always_there(graph):
    planted = plant_at_hub(graph, 10, np.random.default_rng(0), crowd=30)
    confidential = {tuple(row) for row in planted.graph.train[planted.graph.marks("train")].tolist()}
    assert {tuple(row) for row in planted.crowd.tolist()} <= confidential
    assert len(planted.crowd) == 30
    assert len(np.unique(np.concatenate([planted.crowd, planted.canaries])[:, 1:], axis=0)) == 1
    assert (planted.graph.train[~planted.graph.marks("train")][:, 1] == planted.crowd[0, 1]).sum() == 1


def test_ends_of_canaries_at_the_threshold_have_the_degree_that_was_asked_for(graph):
    planted = plant_at_threshold(graph, 40, np.random.default_rng(0), degree=6)
    degrees = np.bincount(planted.crowd[:, [0, 2]].ravel(), minlength=planted.graph.num_entities)
    assert (degrees[planted.canaries[:, [0, 2]]] == 6).all()
    assert len(np.unique(planted.graph.train, axis=0)) == len(planted.graph.train)


# Over texts.


def over_texts(graph, mode, batch, server, sigma, crowd=1500, num_canaries=60, rounds=4):
    everything = mark(graph, "1.0", 0)
    found = text_audit.audited(everything, Attack(mode, batch, server), sigma, num_canaries, crowd, rounds)
    return {one.attacker: one for one in found}


def test_negatives_out_of_the_batch_refute_the_epsilon_that_is_claimed(graph):
    """One canary is a negative of dozens of examples, each of which is clipped by itself."""
    found = over_texts(graph, "sgm", "64", Echoing, 1.2, crowd=3500, num_canaries=100, rounds=8)[
        "pushed by others"
    ]
    assert found.refuted


@pytest.mark.parametrize(("batch", "server"), [("64", Echoing), ("64", Passive), ("all", Passive)])
def test_sound_training_over_texts_stands(graph, batch, server):
    for found in over_texts(graph, "sound", batch, server, 1.0).values():
        assert not found.refuted


def test_sound_training_over_texts_with_a_tenth_of_its_noise_is_caught(graph, monkeypatch):
    honest = account.train_privately

    def broken(model, graph, rng, settings, dp, key, **rest):
        less = dp.model_copy(update={"sigma": dp.sigma / 10})
        return honest(model, graph, rng, settings, less, key, **rest)

    assert not over_texts(graph, "sound", "all", Passive, 4.0, num_canaries=300)["along the gradient"].refuted
    monkeypatch.setattr(account, "train_privately", broken)
    assert over_texts(graph, "sound", "all", Passive, 4.0, num_canaries=300)["along the gradient"].refuted


def test_entities_of_canaries_are_described_by_numbers_of_their_own(graph):
    for planting in (plant_described, partial(plant_among_alike, crowd=50)):
        planted = planting(graph, 20, np.random.default_rng(0))
        features = planted.graph.features["entity"]
        for parameter, rows in (planted.places[0], planted.places[2]):
            assert parameter == "projection"
            assert (features[:, rows] > 0).sum(axis=0).tolist() == [1] * 20  # no other entity has it
        ends = planted.canaries[:, [0, 2]].ravel()
        assert features[ends].sum(axis=1).tolist() == [1] * 40
    alike = features[: graph.num_entities]
    assert (alike == alike[0]).all()
    assert len(planted.crowd) == 50
