"""New models, each a short class: a shallow model, two encoders, a network model, a score without a query.

Every one trains on the path that serves it, and its gradients are those of torch in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge.client.kernels.operators import Operator
from fedkge.client.models import Encoded, Keys, Model
from fedkge.client.models.bilinear import DistMult, Similarity
from fedkge.client.models.translations import TransE
from fedkge.client.training.autograd import AutogradStep
from fedkge.client.training.evaluate import measure
from fedkge.client.training.loop import build_step, train
from fedkge.client.training.ranks import rank
from fedkge.client.training.steps import KernelStep
from fedkge.datasets import load_graph
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, SettingError, TrainingError
from fedkge.experiment import ModelSettings, Settings, TrainingSettings
from tests.client.conftest import random_graph
from tests.contracts.model import ExtensionContract


class SimplE(Similarity):
    """½ (⟨h₁, r₁, t₂⟩ + ⟨t₁, r₂, h₂⟩): a shallow model is two widths, a score and two queries (2018)."""

    entity_width = relation_width = 2

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        (h1, h2), (r1, r2), (t1, t2) = (rows.chunk(2, dim=-1) for rows in (h, r, t))
        return (h1 * r1 * t2 + t1 * r2 * h2).sum(-1) / 2

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        (h1, h2), (r1, r2) = h.chunk(2, dim=-1), r.chunk(2, dim=-1)
        return torch.cat([r2 * h2, h1 * r1], dim=-1) / 2

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        (t1, t2), (r1, r2) = t.chunk(2, dim=-1), r.chunk(2, dim=-1)
        return torch.cat([r1 * t2, t1 * r2], dim=-1) / 2


class GraphConvolution(DistMult):
    """One layer over the client's own train edges, then DistMult (Kipf and Welling, 2017)."""

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        return {"layer": (settings.dim, settings.dim), "bias": (settings.dim,)}

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        ends = torch.from_numpy(graph.train[:, [0, 2]].astype(np.int64)).T  # (2, n)
        ends = torch.cat([ends, ends.flip(0)], dim=1)
        size = graph.num_entities
        edges = torch.sparse_coo_tensor(ends, torch.ones(ends.shape[1]), (size, size), check_invariants=True)
        degree = torch.bincount(ends[0], minlength=size).clamp(min=1)
        return {"edges": edges.coalesce(), "degree": degree[:, None].float()}

    def encode(self) -> Encoded:
        neighbours = torch.sparse.mm(self["edges"], self["entity"]) / self["degree"]
        messages = torch.tanh(neighbours @ self["layer"] + self["bias"])
        return Encoded(self["entity"] + messages, self["relation"])


class Described(TransE):
    """Entities are what their descriptions say: frozen features and a linear map, no entity table."""

    entity_width = 0

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        return {"map": (graph.features["entity"].shape[1], settings.dim)}

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        return {"features": torch.tensor(graph.features["entity"])}

    def encode(self) -> Encoded:
        return Encoded(self["features"] @ self["map"], self["relation"])


class DotProduct(Similarity):
    """h · t: a network has edges of one kind and no relation rows."""

    relation_width = 0
    operator = Operator.KEEP

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return (h * t).sum(-1)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        return h

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        return t


class ConvKB(Model):
    """w · relu([h, r, t] ∗ filters): a score that no query writes down (Nguyen et al., 2018)."""

    class Options(Settings):
        filters: int = 4

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        filters = cls.options_of(settings).filters
        return {"filters": (3, filters), "out": (filters, settings.dim)}

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        stacked = torch.stack(torch.broadcast_tensors(h, r, t), dim=-1)  # (..., dim, 3)
        return (torch.relu(stacked @ self["filters"]) * self["out"].T).sum((-1, -2))


EXTENSIONS = {
    "SimplE": (SimplE, KernelStep),
    "GraphConvolution": (GraphConvolution, KernelStep),
    "Described": (Described, KernelStep),
    "DotProduct": (DotProduct, KernelStep),
    "ConvKB": (ConvKB, AutogradStep),
}


def described(graph: KnowledgeGraph) -> KnowledgeGraph:
    """With features that say which relations an entity has, and noise."""
    rng = np.random.default_rng(0)
    features = rng.normal(scale=0.1, size=(graph.num_entities, 2 * graph.num_relations + 16))
    for head, relation, tail in graph.train:
        features[head, relation] += 0.1
        features[tail, graph.num_relations + relation] += 0.1
    return replace(graph, features={"entity": features.astype(np.float32)})


class TestSimplE(ExtensionContract):
    kind = SimplE


class TestGraphConvolution(ExtensionContract):
    kind = GraphConvolution


class TestDescribed(ExtensionContract):
    kind = Described
    graph = staticmethod(lambda: described(random_graph(0)))


class TestDotProduct(ExtensionContract):
    kind = DotProduct


class TestConvKB(ExtensionContract):
    kind = ConvKB


@cache
def nations() -> KnowledgeGraph:
    return described(load_graph("Nations"))


@pytest.mark.parametrize("name", EXTENSIONS)
def test_an_extension_trains_and_ranks_above_chance(name: str) -> None:
    kind, step = EXTENSIONS[name]
    settings = TrainingSettings(
        batch_size=256, negatives=16, learning_rate=1e-2, corrupt="both", filter_negatives=True
    )
    model = kind.build(ModelSettings(dim=16, margin=4.0), nations(), 0)
    assert isinstance(build_step(model, settings), step)
    before = {name: array.copy() for name, array in model.parameters.items()}
    untrained = measure(rank(model, nations()))["mrr"]
    losses = train(model, nations(), np.random.default_rng(0), settings, epochs=20).losses
    assert losses[-1] < 0.95 * losses[0]
    chance = np.mean(1 / np.arange(1, nations().num_entities + 1))
    assert measure(rank(model, nations()))["mrr"] > max(1.3 * chance, untrained)
    for name, array in model.parameters.items():
        assert not np.array_equal(array, before[name])


def test_an_option_of_a_model_is_checked_by_its_own_schema() -> None:
    settings = ModelSettings(dim=4, options={"filters": 7})
    assert ConvKB.build(settings, nations(), 0).weights["out"].shape == (7, 4)
    with pytest.raises(
        SettingError, match=r"^model\.options\.filter: unknown key; did you mean 'filters'\?$"
    ):
        ConvKB.build(ModelSettings(dim=4, options={"filter": 7}), nations(), 0)
    with pytest.raises(SettingError, match=r"^model\.options\.filters: expected a whole number, not 'x'"):
        ConvKB.build(ModelSettings(dim=4, options={"filters": "x"}), nations(), 0)
    with pytest.raises(SettingError, match=r"^model\.options\.filters: .*TransE"):
        TransE.build(settings, nations(), 0)


def test_weights_that_an_encoder_forgets_are_an_error() -> None:
    class Forgetful(GraphConvolution):
        def encode(self) -> Encoded:
            return Encoded(self["entity"] * 2, self["relation"])

    model = Forgetful.build(ModelSettings(dim=4), nations(), 0)
    with pytest.raises(TrainingError, match=r"Forgetful: encode\(\) makes nothing of 'layer'"):
        train(model, nations(), np.random.default_rng(0), TrainingSettings(), epochs=1)


def test_a_model_of_rows_has_no_encoder() -> None:
    entities, relations = np.ones((3, 4), np.float32), np.zeros((2, 4), np.float32)
    assert TransE.of_rows(ModelSettings(dim=4), entities, relations).entity.shape == (3, 4)
    with pytest.raises(SettingError, match="GraphConvolution scores come out of an encoder"):
        GraphConvolution.of_rows(ModelSettings(dim=4), entities, relations)


def test_saved_parameters_of_another_size_are_refused() -> None:
    settings = ModelSettings(dim=4)
    parameters = GraphConvolution.build(settings, nations(), 0).parameters
    with pytest.raises(DataError, match=r"layer has shape \(4, 3\), where Nations .* have \(4, 4\)"):
        GraphConvolution.restore(settings, nations(), {**parameters, "layer": parameters["layer"][:, :3]})
    del parameters["layer"]
    with pytest.raises(DataError, match="no layer among entity, relation, bias; GraphConvolution has such"):
        GraphConvolution.restore(settings, nations(), parameters)


def test_initial_values_come_from_the_key_of_their_name() -> None:
    def keys(secret: bytes) -> Keys:
        return lambda name: b"common" if name == "relation" else secret

    models = [
        GraphConvolution.build(ModelSettings(dim=4), nations(), keys(secret)).parameters
        for secret in (b"mine", b"yours")
    ]
    same = {name: np.array_equal(array, models[1][name]) for name, array in models[0].items()}
    assert same == {"entity": False, "relation": True, "layer": False, "bias": True}  # a bias starts at zero
