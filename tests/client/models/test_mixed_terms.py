"""DKRL's four terms: against the sum written down term by term, and what is left out where a part lacks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from fedkge.client.models.text_encoders import DKRLMixed
from fedkge.client.training.loop import build_step, train
from fedkge.client.training.steps import KernelStep
from fedkge.errors import SettingError
from fedkge.experiment import ModelSettings, TrainingSettings
from tests.client.models.test_text_encoders import build, graph


def terms(model: DKRLMixed, head: int, relation: int, tail: int) -> list[tuple[str, str, float]]:
    """The terms of a triple that exist: which part of head and of tail, and −‖…‖."""
    source = graph()
    seen = set(source.train[:, [0, 2]].ravel().tolist())
    rows = {"s": normalize(model["entity"], dim=1), "d": normalize(model.read(torch.arange(30)), dim=1)}
    parts = {
        entity: [
            part
            for part, there in (("s", entity in seen), ("d", bool(source.texts["entity"][entity])))
            if there
        ]
        for entity in (head, tail)
    }
    r = model["relation"][relation]
    return [
        (p, q, -float((rows[p][head] + r - rows[q][tail]).abs().sum()))
        for p in parts[head]
        for q in parts[tail]
    ]


def test_the_score_is_the_sum_of_the_terms_that_exist_as_if_there_were_four() -> None:
    model = build(DKRLMixed)
    missing = set()
    unseen = int(np.setdiff1d(np.arange(30), graph().train[:, [0, 2]])[0])
    pairs = [(3, 7), (unseen, 3), (3, unseen), (5, 8), (8, 5), (5, unseen), (unseen, 5)]
    for relation, (head, tail) in zip([0, 1, 2, 3, 0, 1, 2], pairs, strict=True):
        single = terms(model, head, relation, tail)
        missing.add(len(single))
        score = model.scores_of(*(np.array([each]) for each in (head, relation, tail)))[0]
        assert score == pytest.approx(4 * np.mean([value for _, _, value in single]), rel=1e-5)
    assert missing == {1, 2, 4}


def test_mixed_terms_have_a_weight() -> None:
    for weight in (0.0, 0.4):
        model = build(DKRLMixed)
        model.options = model.options.model_copy(update={"mixed": weight})
        weights = [1.0 if p == q else weight for p, q, _ in terms(model, 3, 0, 7)]
        values = [value for _, _, value in terms(model, 3, 0, 7)]
        score = model.scores_of(np.array([3]), np.array([0]), np.array([7]))[0]
        assert score == pytest.approx(np.dot(weights, values), rel=1e-5)


def test_rows_of_entities_that_training_never_met_say_nothing() -> None:
    """Whatever stands in the table, as initial values do."""
    model = build(DKRLMixed)
    unseen = np.setdiff1d(np.arange(30), graph().train[:, [0, 2]])
    before = model.entity[unseen].clone()
    model.tables["entity"][unseen] = np.random.default_rng(2).normal(size=(len(unseen), 6))
    torch.testing.assert_close(model.entity[unseen], before, rtol=0, atol=0)
    assert len(unseen) > 0


def test_it_is_trained_by_kernels_and_both_parts_move() -> None:
    model = build(DKRLMixed)
    assert isinstance(build_step(model, TrainingSettings()), KernelStep)
    before = {name: array.copy() for name, array in model.parameters.items()}
    settings = TrainingSettings(batch_size=16, negatives=8, learning_rate=0.01, shared_negatives=True)
    train(model, graph(), np.random.default_rng(0), settings, epochs=1)
    for name, array in model.parameters.items():
        assert not np.array_equal(before[name], array), name


def test_another_norm_is_refused() -> None:
    with pytest.raises(SettingError, match=r"model\.norm: the terms of DKRL-Mixed are L1"):
        DKRLMixed.build(ModelSettings(dim=4, norm=2, options={"text": "hash:8"}), graph(), 0)
