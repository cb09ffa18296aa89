"""NoGE: its adjacency by a naive count and in closed form, its gradients by torch, its mode and its state."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from fedkge.client.models import MODELS, build_model
from fedkge.client.models.cooccurrence import NoGE, cooccurrence
from fedkge.client.training.autograd import AutogradStep
from fedkge.client.training.kvsall import KvsAllStep, QuestionSampler
from fedkge.client.training.loop import train
from fedkge.client.training.negatives import NegativeSampler
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


class TestNoGEWithInverseRelations(ExtensionContract):
    name = "NoGE"
    kind = Narrow
    options: ClassVar = {"inverse_relations": True}


def counted(graph: KnowledgeGraph, inverse: bool = False) -> np.ndarray:
    """The adjacency as it is told: sentences of three words, a window of two, words counted one by one.

    NoGE's own code appends each triple turned round to the train triples, and counts sentences of all.
    """
    size = graph.num_entities + graph.num_relations * (2 if inverse else 1)
    together: Counter[tuple[int, int]] = Counter()
    triples = graph.train.tolist()
    if inverse:
        triples += [[tail, relation + graph.num_relations, head] for head, relation, tail in triples]
    for head, relation, tail in triples:
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
@given(
    seed=st.integers(0, 2**16), entities=st.integers(5, 12), triples=st.integers(8, 24), inverse=st.booleans()
)
def test_the_adjacency_is_the_one_counted_word_by_word(seed, entities, triples, inverse):
    graph = random_graph(seed, entities, 3, triples)  # with a loop, and mostly with an entity of no triple
    matrix = cooccurrence(graph, inverse).tensor().to_dense()
    np.testing.assert_allclose(matrix.numpy(), counted(graph, inverse), rtol=1e-6)


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
    """A training step's loss and its gradients: dense matrices in float64, torch's own modules.

    Inverse relations are relations of their own, numbered after all others, with triples of their own.
    """
    leaves = {name: model[name].double().requires_grad_() for name in model.parameters}
    norm, product_norm = (torch.nn.BatchNorm1d(model.settings.dim).double() for _ in range(2))
    inverse, num_relations, dim = model.options.inverse_relations, graph.num_relations, model.settings.dim
    adjacency = torch.from_numpy(counted(graph, inverse))
    every = [leaves["relation"][:, :dim], leaves["relation"][:, dim:]] if inverse else [leaves["relation"]]
    nodes = adjacency @ (torch.cat([leaves["entity"], *every]) @ leaves["layer"])
    rows = torch.tanh(norm(nodes) * leaves["norm_scale"] + leaves["norm_shift"])
    entity, relation = rows[: graph.num_entities], rows[graph.num_entities :]
    triples = graph.train.tolist()
    if inverse:
        triples += [[tail, r + num_relations, head] for head, r, tail in triples]
    answers: dict[tuple[int, int], set[int]] = {}
    for head, r, tail in triples:
        answers.setdefault((head, r), set()).add(tail)
    questions = sorted(answers, key=lambda question: (question[1] >= num_relations, *question))
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
    product = product_norm(product) if model.options.product_norm else product
    loss = cross_entropy((product * masks * 2) @ entity.T, target)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    statistics = {"node_mean": norm.running_mean, "node_variance": norm.running_var}
    if model.options.product_norm:
        statistics |= {
            "product_mean": product_norm.running_mean,
            "product_variance": product_norm.running_var,
        }
    return loss.item(), dict(zip(leaves, gradients, strict=True)), statistics


@pytest.mark.parametrize(
    "options",
    [{}, {"inverse_relations": True}, {"inverse_relations": True, "product_norm": True}],
    ids=["", "inverse", "as NoGE has it"],
)
def test_a_training_step_is_that_of_plain_torch(options):
    """BatchNorm of all nodes, dropout, smoothing as published: parameters, and the running statistics."""
    graph = random_graph(0)
    corrupt = "both" if "inverse_relations" in options else "tail"
    chosen = TrainingSettings(**KVSALL, optimizer="SGD", learning_rate=RATE, corrupt=corrupt)
    model = build_model(ModelSettings(name="NoGE", dim=8, options={"deviation": 0.3, **options}), graph, 0)
    before = {name: array.copy() for name, array in model.parameters.items()}
    sampler = QuestionSampler(graph, chosen)
    order = np.random.default_rng(1).permutation(len(sampler))
    order = order[np.argsort(order >= sampler.num_tails, kind="stable")]  # as a batch has them
    kept = np.random.default_rng(7).random((len(order), 8), dtype=np.float32) >= 0.5
    loss, gradients, statistics = naive_loss(model, graph, torch.from_numpy(kept), order)
    step = KvsAllStep(model, chosen, rng=np.random.default_rng(7))
    assert step(sampler.batch(order)) == pytest.approx(loss, rel=1e-5)
    for name, gradient in gradients.items():
        moved = (before[name].astype(np.float64) - model.parameters[name]) / RATE
        assert np.abs(moved - gradient.numpy()).max() <= 1e-5 * gradient.abs().max(), name
    assert set(statistics) == set(model.state_buffers)
    for name, expected in statistics.items():
        np.testing.assert_allclose(model.state_buffers[name], expected, rtol=1e-4, atol=1e-7)


def trained(graph, seed=0, epochs=2, **options):
    model = build_model(ModelSettings(name="NoGE", dim=8, options=options), graph, 0)
    settings = TrainingSettings(
        **KVSALL, learning_rate=0.01, batch_size=16, max_gradient_norm=0.5, corrupt="both"
    )
    result = train(model, graph, np.random.default_rng(seed), settings, epochs=epochs)
    return model, result


@pytest.mark.parametrize(
    "options",
    [{}, {"product_norm": True}, {"dropout": 0.0}, {"inverse_relations": True, "product_norm": True}],
    ids=str,
)
def test_the_same_generator_gives_the_same_dropout_and_statistics(graph, options):
    (a, first), (b, second) = (trained(graph, **options) for _ in range(2))
    for name, array in {**a.parameters, **a.state_buffers}.items():
        np.testing.assert_array_equal(array, {**b.parameters, **b.state_buffers}[name])
    assert first.losses == second.losses
    assert not np.array_equal(trained(graph, seed=1, **options)[0].entity, a.entity)


@pytest.mark.parametrize("inverse", [False, True])
def test_ranking_uses_what_training_kept_and_changes_nothing(graph, inverse):
    model, _ = trained(graph, product_norm=True, inverse_relations=inverse)
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


@pytest.mark.parametrize("inverse", [False, True])
def test_a_score_is_what_its_question_is_ranked_by(graph, inverse):
    """The norm of the product counts in both; without it the order of candidates would be another."""
    model, _ = trained(graph, product_norm=True, inverse_relations=inverse)
    heads, relations, tails = graph.test.T.copy()
    entities, kinds = model.encode()
    asked = (
        model.query_tail(entities[heads], kinds[relations]),
        model.query_head(entities[tails], kinds[relations]),
    )
    for query, candidates, asks_tail in zip(asked, (tails, heads), (True, False), strict=True):
        expected = (query * entities[candidates]).sum(-1).detach().numpy()
        found = model.scores_of(heads, relations, tails, asks_tail=asks_tail)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_plain_torch_trains_with_dropout_and_the_norm_of_the_product(graph):
    """As other devices do it: the statistics of the product move, and another generator drops others."""
    settings = TrainingSettings(loss="logistic", optimizer="SGD", learning_rate=0.1)
    batch = NegativeSampler(graph, settings).batch(np.arange(20), np.random.default_rng(0))
    losses = []
    for seed in (0, 0, 1):
        model = build_model(ModelSettings(name="NoGE", dim=8, options={"product_norm": True}), graph, 0)
        losses.append(AutogradStep(model, settings, rng=np.random.default_rng(seed))(batch))
        assert np.abs(model.state_buffers["product_mean"]).max() > 0
    assert losses[0] == losses[1] != losses[2]


def test_it_learns_what_it_is_asked(graph):
    untrained = build_model(ModelSettings(name="NoGE", dim=32), graph, 0)
    settings = TrainingSettings(**KVSALL, learning_rate=0.01, batch_size=64)
    losses = train(untrained, graph, np.random.default_rng(0), settings, epochs=60).losses
    assert losses[-1] < 0.4 * losses[0]


def test_a_question_for_a_head_is_one_for_the_tail_of_the_inverse(graph):
    """Ranks of both sides are those of tails alone where inverses are relations of their own."""
    model, _ = trained(graph, inverse_relations=True)
    both = rank(model, graph)
    count, (entities, relations) = graph.num_relations, model.encode()
    turned = {
        split: np.concatenate([graph[split], graph[split][:, [2, 1, 0]] + [0, count, 0]])
        for split in ("train", "valid", "test")
    }
    labels = (*graph.relation_labels, *(f"{label} turned" for label in graph.relation_labels))
    doubled = KnowledgeGraph.from_ids("doubled", graph.entity_labels, labels, turned)
    rows = torch.cat(relations.split(8, dim=1))
    settings = ModelSettings(name="QuatE", dim=2)
    alone = MODELS["QuatE"].of_rows(settings, entities.detach().numpy(), rows.detach().numpy())
    tails = rank(alone, doubled, sides="tail").better[:, 0]
    np.testing.assert_array_equal(both.better.T.ravel(), tails)
    assert not np.array_equal(relations.detach()[:, :8], relations.detach()[:, 8:])


def test_a_relation_row_begins_as_it_does_without_its_inverse(graph):
    alone, beside = (
        build_model(ModelSettings(name="NoGE", dim=8, options=options), graph, 0).tables["relation"]
        for options in ({}, {"inverse_relations": True})
    )
    np.testing.assert_array_equal(beside[:, :8], alone)
    assert not np.array_equal(beside[:, 8:], alone)


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
