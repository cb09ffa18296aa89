"""The pieces of a malicious client."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.attacks.behaviours.tampering import Tampering, apart, numbered, push_apart
from fedkge.client import MODELS, build_model
from fedkge.datasets import Synthetic
from fedkge.errors import DataError, SettingError
from fedkge.experiment import ModelSettings


@pytest.fixture(scope="module")
def graph():
    return Synthetic(entities=60, relations=5, triples=200, seed=3).build()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.integers(2, 30), st.integers(0, 99))
def test_no_entity_is_pushed_twice(count, entities, seed):
    rng = np.random.default_rng(seed)
    triples = rng.integers(0, entities, (count, 3))
    chosen = triples[apart(triples, entities, rng)]
    loops = (triples[:, 0] == triples[:, 2]).sum()
    assert len(chosen) >= 1 or loops > 0
    assert (chosen[:, 0] != chosen[:, 2]).all()
    ends = [set(pair) for pair in chosen[:, [0, 2]].tolist()]
    assert sum(map(len, ends)) == len(set().union(*ends))


@pytest.mark.parametrize("name", [name for name, kind in MODELS.items() if not kind.has_encoder])
def test_pushing_lowers_every_score(graph, name):
    model = build_model(ModelSettings(name=name, dim=8), graph, 0)
    triples = graph.train[apart(graph.train.astype(np.int64), graph.num_entities, np.random.default_rng(0))]
    untouched = np.setdiff1d(np.arange(graph.num_entities), triples[:, [0, 2]])
    before, rows = model.scores_of(*triples.T), model.entity.clone()
    push_apart(model, triples, 0.01)
    assert (model.scores_of(*triples.T) < before).all()
    assert (model.entity[untouched] == rows[untouched]).all()


def test_a_plan_is_kept_and_read(tmp_path):
    plan = Tampering(3, 0.5, (("a", "r", "b"), ("c", "r", "d")))
    plan.save(tmp_path / "plan.json")
    read = Tampering.load(tmp_path / "plan.json")
    assert (read.round, read.strength, read.triples) == (3, 0.5, plan.triples)


@pytest.mark.parametrize("plan", [(0, 1.0, (("a", "r", "b"),)), (1, -1.0, (("a", "r", "b"),)), (1, 1.0, ())])
def test_a_senseless_plan_is_refused(tmp_path, plan):
    with pytest.raises(SettingError, match="expected a round from 1 on"):
        Tampering(*plan).save(tmp_path / "plan.json")


def test_a_triple_of_unknown_labels_is_refused(graph):
    with pytest.raises(DataError, match="does not hold 'nobody'"):
        numbered(graph, (("nobody", "r0", "e1"),))
