"""NoGE: its adjacency by a naive count and in closed form, its gradients by torch, its mode and its state."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from fedkge.client.models import MODELS, build_model
from fedkge.client.models.cooccurrence import NoGE, cooccurrence
from fedkge.client.training.kvsall import KvsAllStep, QuestionSampler
from fedkge.client.training.loop import train
from fedkge.client.training.ranks import rank
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, SettingError
from fedkge.experiment import ModelSettings, TrainingSettings
from tests.client.conftest import random_graph
from tests.contracts.model import ExtensionContract

RATE = 2.0**12
KVSALL = {"type": "KvsAll", "label_smoothing": 0.1, "label_spread": "one"}


class Narrow(NoGE):
    """Any `dim` of the contract's, made one that quaternions divide."""

    @classmethod
    def build(cls, settings, graph, seed):
        wider = settings.model_copy(update={"dim": 4 * settings.dim})
        return super().build(wider, graph, seed)


class TestNoGE(ExtensionContract):
    name = "NoGE"
    kind = Narrow


def counted(graph: KnowledgeGraph) -> np.ndarray:
    """The adjacency as it is told: sentences of three words, a window of two, words counted one by one."""
    size = graph.num_entities + graph.num_relations
    together: Counter[tuple[int, int]] = Counter()
    for head, relation, tail in graph.train.tolist():
        sentence = [head, graph.num_entities + relation, tail]
        for i in range(3):
            for j in range(3):
                if i != j:
                    together[sentence[i], sentence[j]] += 1
    everything = sum(together.values())
    weights = np.eye(size)
    for (v, u), count in together.items():
        if v < graph.num_entities and u < graph.num_entities:
            weights[v, u] += count / sum(other for (w, _), other in together.items() if w == v)
        else:
            weights[v, u] += count / everything
    return weights / weights.sum(axis=1, keepdims=True)


@examples(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**16), entities=st.integers(5, 12), triples=st.integers(8, 24))
def test_the_adjacency_is_the_one_counted_word_by_word(seed, entities, triples):
    graph = random_graph(seed, entities, 3, triples)  # with a loop, and mostly with an entity of no triple
    matrix = cooccurrence(graph).tensor().to_dense()
    np.testing.assert_allclose(matrix.numpy(), counted(graph), rtol=1e-6)


def test_an_entity_keeps_two_thirds_of_itself_and_one_without_triples_all():
    """Half of an entity's neighbours are entities, so that its row is 1 and ½ and what relations add."""
    graph = random_graph(0, entities=100, triples=200)
    matrix = cooccurrence(graph).tensor().to_dense().double().numpy()
    head, _, tail = graph.train.T
    places = np.bincount(np.concatenate([head, tail]), minlength=graph.num_entities)
    places -= 2 * np.bincount(head[head == tail], minlength=graph.num_entities)  # loops are their own
    loops = np.isin(np.arange(graph.num_entities), head[head == tail])
    expected = 1 / (1 + 0.5 + places / (6 * len(head)))
    diagonal = matrix.diagonal()[: graph.num_entities]
    touched = (places > 0) & ~loops
    np.testing.assert_allclose(diagonal[touched], expected[touched], rtol=1e-6)
    assert (~loops & (places == 0)).any()
    np.testing.assert_array_equal(diagonal[~loops & (places == 0)], 1)


def naive_loss(model: NoGE, graph: KnowledgeGraph, masks: torch.Tensor, order: np.ndarray):
    """A training step's loss and its gradients: dense matrices in float64, torch's own modules."""
    leaves = {name: model[name].double().requires_grad_() for name in model.parameters}
    norm = torch.nn.BatchNorm1d(model.settings.dim).double()
    adjacency = torch.from_numpy(counted(graph))
    nodes = adjacency @ (torch.cat([leaves["entity"], leaves["relation"]]) @ leaves["layer"])
    rows = torch.tanh(norm(nodes) * leaves["norm_scale"] + leaves["norm_shift"])
    entity, relation = rows[: graph.num_entities], rows[graph.num_entities :]
    answers: dict[tuple[int, int], set[int]] = {}
    for head, r, tail in graph.train.tolist():
        answers.setdefault((head, r), set()).add(tail)
    questions = sorted(answers)
    questions = [questions[place] for place in order]
    target = torch.full((len(questions), graph.num_entities), 1 / graph.num_entities, dtype=torch.float64)
    for row, question in enumerate(questions):
        target[row, list(answers[question])] += 0.9
    h = torch.stack([entity[head] for head, _ in questions])
    r = torch.stack([relation[r] for _, r in questions])
    a, b, c, d = h.chunk(4, dim=1)
    p, q, u, v = (part / r.reshape(len(r), 4, -1).norm(dim=1) for part in r.chunk(4, dim=1))
    product = torch.cat(
        [
            a * p - b * q - c * u - d * v,
            a * q + b * p + c * v - d * u,
            a * u - b * v + c * p + d * q,
            a * v + b * u - c * q + d * p,
        ],
        dim=1,
    )
    loss = cross_entropy((product * masks * 2) @ entity.T, target)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return loss.item(), dict(zip(leaves, gradients, strict=True)), norm


def test_a_training_step_is_that_of_plain_torch():
    """BatchNorm of all nodes, dropout, smoothing as published: parameters, and the running statistics."""
    graph = random_graph(0)
    options = TrainingSettings(**KVSALL, optimizer="SGD", learning_rate=RATE)
    model = build_model(ModelSettings(name="NoGE", dim=8, options={"deviation": 0.3}), graph, 0)
    before = {name: array.copy() for name, array in model.parameters.items()}
    sampler = QuestionSampler(graph, options)
    order = np.random.default_rng(1).permutation(len(sampler))
    kept = np.random.default_rng(7).random((len(order), 8), dtype=np.float32) >= 0.5
    loss, gradients, norm = naive_loss(model, graph, torch.from_numpy(kept), order)
    step = KvsAllStep(model, options, rng=np.random.default_rng(7))
    assert step(sampler.batch(order)) == pytest.approx(loss, rel=1e-5)
    for name, gradient in gradients.items():
        moved = (before[name].astype(np.float64) - model.parameters[name]) / RATE
        assert np.abs(moved - gradient.numpy()).max() <= 1e-5 * gradient.abs().max(), name
    np.testing.assert_allclose(model.state_buffers["node_mean"], norm.running_mean, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(model.state_buffers["node_variance"], norm.running_var, rtol=1e-4)


def trained(graph, seed=0, epochs=2, **options):
    model = build_model(ModelSettings(name="NoGE", dim=8, options=options), graph, 0)
    settings = TrainingSettings(**KVSALL, learning_rate=0.01, batch_size=16, max_gradient_norm=0.5)
    result = train(model, graph, np.random.default_rng(seed), settings, epochs=epochs)
    return model, result


@pytest.mark.parametrize("options", [{}, {"product_norm": True}, {"dropout": 0.0}], ids=str)
def test_the_same_generator_gives_the_same_dropout_and_statistics(graph, options):
    (a, first), (b, second) = (trained(graph, **options) for _ in range(2))
    for name, array in {**a.parameters, **a.state_buffers}.items():
        np.testing.assert_array_equal(array, {**b.parameters, **b.state_buffers}[name])
    assert first.losses == second.losses
    assert not np.array_equal(trained(graph, seed=1, **options)[0].entity, a.entity)


def test_ranking_uses_what_training_kept_and_changes_nothing(graph):
    model, _ = trained(graph, product_norm=True)
    before = {name: array.copy() for name, array in model.state_buffers.items()}
    assert set(before) == {"node_mean", "node_variance", "product_mean", "product_variance"}
    assert all(np.abs(array - (1 if "variance" in name else 0)).max() > 0 for name, array in before.items())
    first = rank(model, graph)
    np.testing.assert_array_equal(first.better, rank(model, graph).better)
    for name, array in before.items():
        np.testing.assert_array_equal(model.state_buffers[name], array)
    saved = {**model.parameters, **model.state_buffers}
    restored = NoGE.restore(model.settings, graph, saved)
    np.testing.assert_array_equal(restored.scores_of(*graph.test.T), model.scores_of(*graph.test.T))
    forgetful = NoGE.restore(model.settings, graph, model.parameters)
    assert not np.array_equal(forgetful.scores_of(*graph.test.T), model.scores_of(*graph.test.T))


def test_it_learns_what_it_is_asked(graph):
    untrained = build_model(ModelSettings(name="NoGE", dim=32), graph, 0)
    settings = TrainingSettings(**KVSALL, learning_rate=0.01, batch_size=64)
    losses = train(untrained, graph, np.random.default_rng(0), settings, epochs=60).losses
    assert losses[-1] < 0.4 * losses[0]


def test_initial_rows_are_normal_and_alike_wherever_a_label_stands():
    model = build_model(ModelSettings(name="NoGE", dim=128), random_graph(0, entities=400), 0)
    rows = model.tables["entity"] / 0.02
    assert abs(rows.mean()) < 0.02
    assert rows.std() == pytest.approx(1, abs=0.01)
    assert np.abs(rows).max() > 3.5
    assert np.abs(model.weights["layer"]).max() <= 1 / np.sqrt(128)
    turned = random_graph(0, entities=37)
    np.testing.assert_array_equal(
        build_model(model.settings, turned, 0).tables["entity"], model.tables["entity"][:37]
    )


def test_what_does_not_fit_is_refused(graph):
    with pytest.raises(SettingError, match=r"model.dim: 6 for NoGE, .* set it to 8"):
        build_model(ModelSettings(name="NoGE", dim=6), graph, 0)
    model, _ = trained(graph)
    saved = {**model.parameters, "node_mean": np.zeros(3, np.float32)}
    with pytest.raises(DataError, match=r"node_mean has shape \(3,\), where the model's buffer has \(8,\)"):
        NoGE.restore(model.settings, graph, saved)


def test_it_is_registered():
    assert MODELS["NoGE"] is NoGE
