"""The audit on a small graph: it finds what there is to find, and nothing where noise covers it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedkge.attacks.canaries import privacy_audit
from fedkge.attacks.canaries.privacy_audit import audit, plant
from fedkge.datasets.confidential import mark
from fedkge.datasets.synthetic import Synthetic
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings

MODEL = ModelSettings(name="TransE", dim=8, margin=0.0)
TRAINING = TrainingSettings(
    local_epochs=1, batch_size=32, negatives=1, learning_rate=0.01, optimizer="SGD", loss="logistic"
)
ALL_AT_ONCE = TRAINING.model_copy(update={"batch_size": 10**6})


@pytest.fixture(scope="module")
def graph():
    return mark(Synthetic(entities=60, relations=4, triples=200, held_out=0).build(), "random:0.5")


def audited(graph, training=TRAINING, seed=0, **dp):
    settings = DPSettings(mode="sound", clip=1.0, delta=1e-5, **dp)
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
    honest = privacy_audit.train_privately

    def broken(model, graph, rng, settings, dp, secret):
        result = honest(model, graph, rng, settings, dp.model_copy(update={"sigma": 1e-9}), secret)
        events = tuple(replace(event, sigma=dp.sigma) for event in result.events)
        return replace(result, events=events)

    monkeypatch.setattr(privacy_audit, "train_privately", broken)
    found = audited(graph, ALL_AT_ONCE, mode="sound", sigma=4.0)["along the gradient"]
    assert found.refuted


def test_the_same_seed_gives_the_same_audit(graph):
    first, second = (audited(graph, mode="sound", sigma=1.0, seed=3) for _ in range(2))
    assert first == second
