"""KvsAll: what torch makes of the dense target, without the target."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from fedkge.client.models import build_model
from fedkge.client.training.kvsall import KvsAllStep, QuestionSampler
from fedkge.client.training.loop import train
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import ModelSettings, TrainingSettings
from tests.client.conftest import random_graph

RATE = 2.0**14


def settings(**options):
    return TrainingSettings(**{"type": "KvsAll", "optimizer": "SGD", "learning_rate": RATE, **options})


def dense_targets(graph: KnowledgeGraph, corrupt: str) -> dict[tuple[str, int, int], np.ndarray]:
    """Every distinct question of the train triples with its multi-hot answers."""
    targets: dict[tuple[str, int, int], np.ndarray] = {}
    for head, relation, tail in graph.train.tolist():
        for side, anchor, answer in (("tail", head, tail), ("head", tail, head)):
            if corrupt in (side, "both"):
                row = targets.setdefault((side, anchor, relation), np.zeros(graph.num_entities))
                row[answer] = 1
    return targets


def dense_loss(model, graph, options) -> tuple[float, dict[str, np.ndarray]]:
    """The loss over all questions and its gradients: dense targets, the model's own score, float64."""
    targets = dense_targets(graph, options.corrupt)
    leaves = {name: model[name].double().requires_grad_() for name in model.parameters}
    bound = model.bind(leaves)
    entity, relation = bound.encode()
    scores = torch.stack(
        [
            bound.score(entity[a], relation[r], entity)
            if side == "tail"
            else bound.score(entity, relation[r], entity[a])
            for side, a, r in targets
        ]
    )
    y = torch.tensor(np.array(list(targets.values())))
    smoothing = options.label_smoothing
    if smoothing:
        spread = (1 if options.label_spread == "one" else smoothing) / graph.num_entities
        y = (1 - smoothing) * y + spread
    loss = cross_entropy(scores, y)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return loss.item(), {name: g.numpy() for name, g in zip(leaves, gradients, strict=True)}


@pytest.mark.parametrize("name", ["DistMult", "ComplEx", "QuatE"])
@pytest.mark.parametrize("corrupt", ["tail", "head", "both"])
@pytest.mark.parametrize("smoothing", [(0.0, "smoothing"), (0.1, "smoothing"), (0.1, "one")])
def test_a_step_is_that_of_the_dense_target(name, corrupt, smoothing):
    graph = random_graph(0, entities=700)  # more than a block
    options = settings(corrupt=corrupt, label_smoothing=smoothing[0], label_spread=smoothing[1])
    model = build_model(ModelSettings(name=name, dim=6), graph, 0)
    loss, gradients = dense_loss(model, graph, options)
    before = {key: array.copy() for key, array in model.parameters.items()}
    sampler = QuestionSampler(graph, options)
    assert len(sampler) == len(dense_targets(graph, corrupt))
    places = np.random.default_rng(0).permutation(len(sampler))
    assert KvsAllStep(model, options)(sampler.batch(places)) == pytest.approx(loss, rel=1e-5)
    for key, gradient in gradients.items():
        moved = (before[key].astype(np.float64) - model.parameters[key]) / RATE
        assert np.abs(moved - gradient).max() <= 1e-5 * np.abs(gradient).max()


def test_the_mean_of_its_batches_is_the_loss_of_an_epoch(graph):
    options = settings(optimizer="SGD", learning_rate=1e-12, batch_size=7, corrupt="both")
    model = build_model(ModelSettings(name="DistMult", dim=6), graph, 0)
    expected, _ = dense_loss(model, graph, options)
    result = train(model, graph, np.random.default_rng(0), options, epochs=1)
    assert result.losses[0] == pytest.approx(expected, rel=1e-5)
    assert result.steps == -(-len(dense_targets(graph, "both")) // 7)


@pytest.mark.parametrize("kind", ["negatives", "KvsAll"])
def test_the_gradient_of_all_parameters_is_clipped_together(graph, kind):
    lengths = []
    for limit in (None, 1e-3):
        options = settings(type=kind, negatives=4, batch_size=1000, max_gradient_norm=limit)
        model = build_model(ModelSettings(name="DistMult", dim=6), graph, 0)
        before = {key: array.copy() for key, array in model.parameters.items()}
        train(model, graph, np.random.default_rng(0), options, epochs=1)
        moves = [(before[key] - model.parameters[key]).ravel() / RATE for key in before]
        lengths.append(np.linalg.norm(np.concatenate(moves)))
    assert lengths[0] > 1e-3
    assert lengths[1] == pytest.approx(1e-3, rel=2e-3)


def test_training_against_all_entities_learns(graph):
    options = settings(optimizer="Adam", learning_rate=0.05, label_smoothing=0.1, batch_size=16)
    model = build_model(ModelSettings(name="ComplEx", dim=8), graph, 0)
    losses = train(model, graph, np.random.default_rng(0), options, epochs=20).losses
    assert losses[-1] < 0.5 * losses[0]


def test_what_is_no_product_is_refused(graph):
    for name in ("TransE", "RotatE", "TransR"):
        model = build_model(ModelSettings(name=name, dim=6), graph, 0)
        with pytest.raises(SettingError, match=rf'"KvsAll": the score of {name} is no product .* DistMult'):
            train(model, graph, np.random.default_rng(0), settings())
    model = build_model(ModelSettings(name="DistMult", dim=6), graph, 0)
    with pytest.raises(SettingError, match="runs on the processor"):
        train(model, graph, np.random.default_rng(0), settings(device="cuda"))
