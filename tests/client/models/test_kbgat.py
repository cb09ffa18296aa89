"""KB-GAT's encoder, its paths and ConvKB against slow and obvious versions; its stages."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import elu, leaky_relu, normalize

from fedkge.client.kernels.neural.convolution import convolve, padded_filters
from fedkge.client.kernels.neural.paths import two_hop_paths
from fedkge.client.models import build_model
from fedkge.client.models.convolution import ConvKB
from fedkge.client.models.graph_attention import GraphAttention
from fedkge.client.models.kbgat import KBGAT
from fedkge.client.models.model import Model
from fedkge.client.training.autograd import AutogradStep
from fedkge.client.training.evaluate import measure
from fedkge.client.training.loop import build_step, train
from fedkge.client.training.ranks import rank
from fedkge.client.training.steps import KernelStep
from fedkge.datasets import load_graph
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import ModelSettings, TrainingSettings
from tests.client.conftest import random_graph
from tests.contracts.model import ExtensionContract


class TestGraphAttention(ExtensionContract):
    """What rounds train of KBGAT; what scores is ConvKB, and both together are below."""

    name = "KBGAT"
    kind = GraphAttention


class TestConvKB(ExtensionContract):
    name = "ConvKB"
    kind = ConvKB


def naive_paths(triples: np.ndarray, entities: int, most: int) -> list[tuple[int, int, int, int]]:
    """A breadth-first search from each entity with a queue and dictionaries."""
    graph: dict[int, dict[int, int]] = {}
    for h, r, t in triples.tolist():
        graph.setdefault(h, {})[t] = r
    found = []
    for start in range(entities):
        came_by: dict[int, tuple[int, ...]] = {start: ()}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            for there, relation in graph.get(here, {}).items():
                if there not in came_by:
                    came_by[there] = (*came_by[here], relation)
                    queue.append(there)
        ends = [(start, *path, end) for end, path in came_by.items() if len(path) == 2]
        found.extend(ends[:most])
    return found


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2), st.integers(0, 7)), max_size=30),
    st.sampled_from([0, 1, 2, 8]),
)
def test_paths_are_those_of_a_search_with_a_queue(edges: list[tuple[int, int, int]], most: int) -> None:
    triples = np.array(edges, dtype=np.int32).reshape(-1, 3)
    paths = two_hop_paths(triples, 8, most)
    assert [tuple(path) for path in paths.tolist()] == naive_paths(triples, 8, most)


def slow_encode(
    model: GraphAttention, graph: KnowledgeGraph, leaves: dict[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Every edge's message A [x_t ; x_h ; g] by itself, in the words of the paper."""
    most = {"all": graph.num_entities, "one": 1, "none": 0}[model.options.paths]
    paths = naive_paths(graph.train, graph.num_entities, most)
    edges = [(h, t, (r,)) for h, r, t in graph.train.tolist()] + [(h, t, (r, s)) for h, r, s, t in paths]

    def layer(x: Tensor, g: Tensor, a: Tensor, a2: Tensor) -> Tensor:
        rows = []
        for i in range(graph.num_entities):
            inputs = [
                torch.cat([x[t], x[h], sum(g[r] for r in relations)]) for h, t, relations in edges if t == i
            ]
            parts = []
            for head in range(len(a)):
                if not inputs:
                    parts.append(torch.zeros(a.shape[2], dtype=x.dtype))
                    continue
                messages = torch.stack([row @ a[head] for row in inputs])
                weights = torch.exp(-leaky_relu(messages @ a2[head, 0], 0.2))
                parts.append((weights / weights.sum()) @ messages)
            rows.append(torch.cat(parts))
        return torch.stack(rows)

    x, g = normalize(leaves["entity"], dim=1), leaves["relation"]
    hidden = elu(layer(x, g, leaves["messages"], leaves["attention"]))
    relations = g @ leaves["relation_map"]
    out = elu(layer(hidden, relations, leaves["last_messages"], leaves["last_attention"]))
    has_edges = torch.tensor([any(t == i for _, t, _ in edges) for i in range(graph.num_entities)])
    rows = x @ leaves["entity_map"] + has_edges[:, None] * out
    return normalize(rows, dim=1), relations


@pytest.mark.parametrize(("heads", "paths"), [(1, "all"), (2, "one"), (3, "none")])
def test_the_encoder_and_its_gradients_are_those_of_a_sum_edge_by_edge(heads: int, paths: str) -> None:
    graph = random_graph(0)
    chosen = ModelSettings(dim=6, margin=2.0, options={"heads": heads, "paths": paths})
    model = GraphAttention.build(chosen, graph, 0)

    def gradients(dtype: torch.dtype, slow: bool) -> tuple[list[Tensor], list[Tensor]]:
        leaves = {name: model[name].to(dtype).detach().requires_grad_() for name in model.parameters}
        encoded = slow_encode(model, graph, leaves) if slow else model.bind(leaves).encode()
        weights = [torch.linspace(-1, 1, rows.numel(), dtype=dtype).view_as(rows).cos() for rows in encoded]
        total = sum((rows * weight).sum() for rows, weight in zip(encoded, weights, strict=True))
        return list(encoded), list(torch.autograd.grad(total, list(leaves.values())))  # type: ignore[arg-type]

    expected = gradients(torch.float64, slow=True)
    for dtype, bound in ((torch.float64, 1e-10), (torch.float32, 2e-5)):
        for got, wanted in zip(gradients(dtype, slow=False), expected, strict=True):
            for part, slow in zip(got, wanted, strict=True):
                assert (part.double() - slow).abs().max() <= bound * slow.abs().max().clamp(min=1e-3)


def test_dropout_falls_on_shares_and_between_layers() -> None:
    graph = random_graph(0)
    model = GraphAttention.build(ModelSettings(dim=6, options={"dropout": 0.5}), graph, 0)
    still = model.encode().entities
    leaves = dict(model.tensors)
    draws = [model.bind(leaves, rng=np.random.default_rng(seed)).encode().entities for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    lonely = np.setdiff1d(np.arange(graph.num_entities), graph.train[:, 2])
    torch.testing.assert_close(draws[0][lonely], still[lonely])
    doubles = {name: tensor.double() for name, tensor in leaves.items()}
    slow = model.bind(doubles, rng=np.random.default_rng(1)).encode().entities
    torch.testing.assert_close(draws[0].double(), slow, rtol=1e-4, atol=1e-5)


def test_heads_that_do_not_divide_the_rows_are_refused() -> None:
    with pytest.raises(SettingError, match=r"^model\.options\.heads: 4 heads share model\.dim = 6"):
        GraphAttention.build(ModelSettings(dim=6, options={"heads": 4}), random_graph(0), 0)


@pytest.mark.parametrize(("filters", "dim", "b", "n"), [(3, 5, 4, 7), (16, 9, 2, 1), (50, 6, 2, 300)])
@pytest.mark.parametrize("side", ["tail", "head"])
def test_convolution_and_its_gradients_are_those_of_torch(
    filters: int, dim: int, b: int, n: int, side: str
) -> None:
    graph = random_graph(0)
    model = ConvKB.build(ModelSettings(dim=dim, options={"filters": filters}), graph, 0)
    rng = np.random.default_rng(1)
    shapes = [(b, 1, dim), (b, 1, dim), (b, n, dim)]
    rows = [torch.from_numpy(rng.normal(size=shape)) for shape in shapes]

    def gradients(dtype: torch.dtype) -> tuple[Tensor, tuple[Tensor, ...]]:
        weights = {name: model[name].to(dtype).detach().requires_grad_() for name in model.parameters}
        anchor, r, c = (row.to(dtype).requires_grad_() for row in rows)
        bound = model.bind(weights)
        scores = bound.score(anchor, r, c) if side == "tail" else bound.score(c, r, anchor)
        assert scores.shape == (b, n)
        slopes = torch.linspace(-1, 2, b * n, dtype=dtype).view(b, n)
        inputs = [anchor, r, c, *(weights[name] for name in model.weights)]
        return scores, torch.autograd.grad((scores * slopes).sum(), inputs)

    fast, slow = gradients(torch.float32), gradients(torch.float64)
    torch.testing.assert_close(fast[0].double(), slow[0], rtol=1e-5, atol=1e-5)
    for part, wanted in zip(fast[1], slow[1], strict=True):
        assert (part.double() - wanted).abs().max() <= 1e-5 * wanted.abs().max().clamp(min=1)


def test_shared_candidates_score_as_everybodys_own() -> None:
    rng = np.random.default_rng(0)
    filters = padded_filters(*rng.normal(size=(4, 10)), rng.normal(size=(7, 10)))
    anchors, relations = rng.normal(size=(2, 5, 7)).astype(np.float32)
    rows = rng.normal(size=(1, 600, 7)).astype(np.float32)
    rows[0, 580] = rows[0, 3]  # in another tile
    shared, own = np.empty((2, 5, 600), dtype=np.float32)
    convolve(filters, anchors, relations, rows, shared)
    convolve(filters, anchors, relations, np.repeat(rows, 5, axis=0), own)
    np.testing.assert_array_equal(shared, own)
    np.testing.assert_array_equal(shared[:, 580], shared[:, 3])


@pytest.mark.parametrize("kind", [ConvKB, KBGAT])
def test_rows_alone_are_no_model(kind: type[Model]) -> None:
    rows = np.ones((3, 4), dtype=np.float32)
    with pytest.raises(SettingError, match="scores rows with weights of its own, which were never sent"):
        kind.of_rows(ModelSettings(dim=4), rows, rows)


def settings_of(name: str = "KBGAT", **options: object) -> ModelSettings:
    quick = {"decoder_epochs": 6, "decoder_negatives": 8, "decoder_learning_rate": 1e-2, "filters": 8}
    return ModelSettings(name=name, dim=16, margin=2.0, options={**quick, **options})


STAGE_ONE = TrainingSettings(
    local_epochs=20, batch_size=10_000, negatives=2, loss="margin-ranking", corrupt="both", learning_rate=1e-2
)


def build() -> tuple[KBGAT, KnowledgeGraph]:
    graph = load_graph("Nations")
    model = build_model(settings_of(), graph, 0)
    assert isinstance(model, KBGAT)
    return model, graph


def test_each_stage_trains_its_own_part_in_its_own_way() -> None:
    model, _ = build()
    encoder, decoder = model.stages(STAGE_ONE)
    assert isinstance(build_step(encoder.model, encoder.training), KernelStep)
    assert isinstance(build_step(decoder.model, decoder.training), AutogradStep)
    assert (encoder.training, encoder.before_scoring) == (STAGE_ONE, False)
    assert (decoder.training.loss, decoder.training.negatives, decoder.before_scoring) == (
        "binary-cross-entropy",
        8,
        True,
    )
    views = [*encoder.model.parameters.values(), *decoder.model.parameters.values()]
    addresses = sorted(array.ctypes.data for array in views)
    assert addresses == sorted(array.ctypes.data for array in model.parameters.values())


def test_each_stage_has_a_weight_decay_and_a_schedule_of_its_own() -> None:
    graph = load_graph("Nations")
    options = {"decoder_weight_decay": 1e-5, "decoder_decay_every": 25}
    chosen = STAGE_ONE.model_copy(update={"weight_decay": 5e-6, "decay_every": 500, "decay_by": 2.0})
    encoder, decoder = build_model(settings_of(**options), graph, 0).stages(chosen)
    assert (encoder.training.weight_decay, encoder.training.decay_every) == (5e-6, 500)
    assert (decoder.training.weight_decay, decoder.training.decay_every) == (1e-5, 25)
    assert decoder.training.rate_in(25) == decoder.training.rate_in(24) / 2
    _, plain = build_model(settings_of(), graph, 0).stages(chosen)
    assert (plain.training.weight_decay, plain.training.decay_every) == (0, None)


def test_rows_do_not_grow_from_round_to_round() -> None:
    """What is made of relations is not what is taken next: their map begins with √2 of a rotation."""
    model, graph = build()
    few = STAGE_ONE.model_copy(update={"local_epochs": 1, "learning_rate": 1e-3})
    for round in range(30):
        train(model, graph, np.random.default_rng(round), few, scoring=False)
    assert np.abs(model.tables["relation"]).max() < 2
    np.testing.assert_allclose(np.linalg.norm(model.tables["entity"], axis=1), 1, rtol=1e-5)


def test_scoring_starts_from_what_the_encoder_gives() -> None:
    model, graph = build()
    train(model, graph, np.random.default_rng(0), STAGE_ONE, scoring=False)
    relations = model.encoder.scored.relations
    _, decoder = model.stages(STAGE_ONE)
    decoder.begin(np.random.default_rng(1))
    np.testing.assert_array_equal(model.tables["scored_entity"], model.tables["entity"])
    np.testing.assert_array_equal(model.tables["scored_relation"], relations)


def test_stages_begin_and_end_with_the_same_bits_on_any_number_of_threads() -> None:
    graph = load_graph("synthetic:entities=12000,relations=10,triples=20000")
    quick = STAGE_ONE.model_copy(update={"local_epochs": 1})
    before, outcomes = torch.get_num_threads(), []
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            model = KBGAT.build(ModelSettings(name="KBGAT", dim=50), graph, 0)
            train(model, graph, np.random.default_rng(0), quick, scoring=False)
            outcomes.append(model.parameters)
    finally:
        torch.set_num_threads(before)
    for name, array in outcomes[0].items():
        np.testing.assert_array_equal(array, outcomes[1][name])


def test_a_round_leaves_the_encoders_output_as_its_next_input() -> None:
    model, graph = build()
    before = {name: array.copy() for name, array in model.parameters.items()}
    train(model, graph, np.random.default_rng(0), STAGE_ONE, scoring=False)
    np.testing.assert_allclose(np.linalg.norm(model.tables["entity"], axis=1), 1, rtol=1e-5)
    for name, array in model.parameters.items():
        moves = name in model.encoder.parameters
        assert np.array_equal(array, before[name]) != moves, name


def test_what_is_scored_depends_on_the_rows_alone_and_not_on_earlier_scoring() -> None:
    model, graph = build()
    train(model, graph, np.random.default_rng(0), STAGE_ONE, scoring=False)
    outcomes = []
    for _ in range(2):
        train(model, graph, np.random.default_rng(1), STAGE_ONE, scoring=True)
        outcomes.append({name: array.copy() for name, array in model.parameters.items()})
    for name, array in outcomes[0].items():
        np.testing.assert_array_equal(array, outcomes[1][name])


def test_both_stages_together_rank_above_chance_and_give_the_same_bits_again() -> None:
    outcomes = []
    for _ in range(2):
        model, graph = build()
        untrained = measure(rank(model, graph))["mrr"]
        result = train(model, graph, np.random.default_rng(0), STAGE_ONE)
        assert len(result.losses) == 20 + 6
        assert result.losses[19] < 0.9 * result.losses[0]
        assert result.losses[25] < 0.9 * result.losses[20]
        chance = np.mean(1 / np.arange(1, graph.num_entities + 1))
        assert measure(rank(model, graph))["mrr"] > max(1.3 * chance, untrained)
        outcomes.append(model.parameters)
    for name, array in outcomes[0].items():
        np.testing.assert_array_equal(array, outcomes[1][name])


def test_ranks_are_those_of_scoring_each_candidate_by_itself() -> None:
    model, graph = build()
    rng = np.random.default_rng(1)
    for array in model.parameters.values():
        array += rng.normal(scale=0.2, size=array.shape).astype(np.float32)
    graph_ranks = rank(model, graph, "test", "both")
    every = np.arange(graph.num_entities, dtype=np.int32)
    for (head, relation, tail), better in zip(graph.test[:40], graph_ranks.better[:40], strict=True):
        fixed, r = np.full_like(every, head), np.full_like(every, relation)
        scores = model.scores_of(fixed, r, every)
        answers = {t for h, s, t in graph.triples.tolist() if (h, s) == (head, relation)} - {tail}
        above = {e for e in every.tolist() if scores[e] > scores[tail] + 1e-6}
        assert better[0] == len(above - answers)


def test_it_is_restored_from_its_parameters() -> None:
    model, graph = build()
    saved = {name: array.copy() for name, array in model.parameters.items()}
    restored: Model = KBGAT.restore(model.settings, graph, saved)
    np.testing.assert_array_equal(restored.scores_of(*graph.test.T), model.scores_of(*graph.test.T))
