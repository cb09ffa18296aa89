"""R-GCN and CompGCN: encoded rows and gradients are those of their papers' equations, edge by edge."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge.client.models import MODELS, Model
from fedkge.client.models.relational_convolutions import RGCN, CompGCN
from fedkge.client.privacy import MECHANISMS, Mechanism, mechanism_of
from fedkge.client.training.evaluate import measure
from fedkge.client.training.loop import train
from fedkge.client.training.ranks import rank
from fedkge.datasets import load_graph, mark
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from tests.client.conftest import random_graph
from tests.contracts.model import ExtensionContract

COMPOSITIONS = ("subtract", "multiply", "circular")


class TestRGCN(ExtensionContract):
    name = "R-GCN"
    kind = RGCN
    options: ClassVar = {"bases": 3, "edge_dropout": 0.0, "self_dropout": 0.0}


class TestCompGCN(ExtensionContract):
    name = "CompGCN"
    kind = CompGCN
    options: ClassVar = {"dropout": 0.0}


class TestCompGCNByTransE(ExtensionContract):
    name = "CompGCN"
    kind = CompGCN
    options: ClassVar = {"composition": "circular", "decoder": "TransE", "layers": 2, "dropout": 0.0}


def r_gcn(model: Model, graph: KnowledgeGraph) -> tuple[Tensor, Tensor]:
    """Σ_r Σ_j 1/c_{i,r} W_r x_j + W_0 x_i, W_r = Σ_b a_rb V_b (equations 2 and 3)."""
    options, x = model.options, list(model["entity"])
    table = model["coefficient"]
    edges = [(t, 0, r, h) for h, r, t in graph.train.tolist()]
    edges += [(h, 1, r, t) for h, r, t in graph.train.tolist()]
    for layer in range(options.layers):
        x = [row.relu() for row in x] if layer else x
        after = [row @ model["self_loop"][layer] for row in x]
        for i, way, r, j in edges:
            count = sum(edge[:3] == (i, way, r) for edge in edges)
            first = (2 * layer + way) * options.bases
            a = table[r, first : first + options.bases]
            matrix = sum(a[b] * model["basis"][layer, b] for b in range(options.bases))
            after[i] = after[i] + x[j] @ matrix / count
        x = after
    return torch.stack(x), model["relation"]


def composed(name: str, x: Tensor, z: Tensor) -> Tensor:
    if name == "subtract":
        return x - z
    if name == "multiply":
        return x * z
    size = len(x)
    return torch.stack([sum(x[i] * z[(k + i) % size] for i in range(size)) for k in range(size)])  # type: ignore[misc]


def comp_gcn(model: Model, graph: KnowledgeGraph) -> tuple[Tensor, Tensor]:
    """tanh of the normalised third of Σ W_λ φ(x_j, z_r) over both ways and the entity itself (equation 4)."""
    name, width = model.options.composition, model.settings.dim
    x, relation = list(model["entity"]), model["relation"]
    z = [list(relation[:, :width]), list(relation[:, width:])]
    train = graph.train.tolist()
    for layer in range(model.options.layers):
        w = model["convolution"][layer]
        after = [composed(name, row, model["self_relation"][layer]) @ w[2] for row in x]
        for way, (sender, receiver) in enumerate(((0, 2), (2, 0))):
            for triple in train:
                j, r, i = triple[sender], triple[1], triple[receiver]
                into = sum(other[receiver] == i for other in train)
                out = sum(other[sender] == j for other in train)
                after[i] = after[i] + composed(name, x[j], z[way][r]) @ w[way] / (into * out) ** 0.5
        rows = torch.stack(after) / 3
        spread = (rows.var(dim=0, correction=0) + 1e-5).sqrt()
        normal = (rows - rows.mean(dim=0)) / spread * model["gain"][layer] + model["bias"][layer]
        x = list(normal.tanh())
        z = [[row @ model["relation_map"][layer] for row in rows] for rows in z]
    return torch.stack(x), torch.stack(z[0])


CASES = [(RGCN, r_gcn, {"layers": 1, "bases": 1}), (RGCN, r_gcn, {"layers": 2, "bases": 3})] + [
    (CompGCN, comp_gcn, {"layers": layers, "composition": name}) for name in COMPOSITIONS for layers in (1, 2)
]


@pytest.mark.parametrize(("kind", "oracle", "options"), CASES)
@pytest.mark.parametrize("dim", [5, 8])
def test_gradients_are_those_of_the_paper_edge_by_edge(
    kind: type[Model], oracle: Any, options: dict[str, Any], dim: int
) -> None:
    graph = random_graph(0, entities=9, relations=3, triples=40)
    model = kind.build(ModelSettings(dim=dim, options=options), graph, 0)
    rng = np.random.default_rng(0)
    for array in model.parameters.values():
        array += rng.normal(scale=0.3, size=array.shape).astype(np.float32)
    slopes = [torch.from_numpy(rng.normal(size=(rows, dim))) for rows in (9, 3)]

    def gradients(encode: Any, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
        leaves = {name: model[name].to(dtype).requires_grad_() for name in model.parameters}
        rows = encode(model.bind(leaves))
        loss = sum((row * slope.to(dtype)).sum() for row, slope in zip(rows, slopes, strict=True))
        found = torch.autograd.grad(loss, list(leaves.values()))  # type: ignore[arg-type]
        return [row.detach() for row in rows], list(found)

    expected, at_expected = gradients(lambda bound: oracle(bound, graph), torch.float64)
    for dtype, error in ((torch.float64, 1e-6), (torch.float32, 2e-5)):  # plain torch, then kernels
        rows, at_rows = gradients(lambda bound: bound.encode(), dtype)
        for actual, wanted in zip([*rows, *at_rows], [*expected, *at_expected], strict=True):
            largest = wanted.abs().max()
            bound = error * (largest if largest > 1e-9 else 1)  # the norm cancels what is added to all rows
            assert (actual.double() - wanted).abs().max() <= bound


@pytest.mark.parametrize("name", ["R-GCN", "CompGCN"])
@pytest.mark.parametrize("decoder", ["DistMult", "TransE"])
def test_it_learns_nations(name: str, decoder: str) -> None:
    graph = load_graph("Nations")
    settings = TrainingSettings(batch_size=512, negatives=16, learning_rate=1e-2, corrupt="both")
    model = MODELS[name].build(
        ModelSettings(name=name, dim=16, margin=4.0, options={"decoder": decoder}), graph, 0
    )
    untrained = measure(rank(model, graph))["mrr"]
    losses = train(model, graph, np.random.default_rng(0), settings, epochs=30).losses
    chance = np.mean(1 / np.arange(1, graph.num_entities + 1))
    assert losses[-1] < 0.9 * losses[0]
    assert measure(rank(model, graph))["mrr"] > max(1.5 * chance, untrained)


def test_the_same_seed_gives_the_same_bits_with_any_number_of_threads() -> None:
    graph = load_graph("Nations")
    settings = TrainingSettings(batch_size=512, negatives=8)
    bits, before = set(), torch.get_num_threads()
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        try:
            model = CompGCN.build(ModelSettings(dim=16, options={"composition": "circular"}), graph, 0)
            train(model, graph, np.random.default_rng(0), settings, epochs=2)
            parameters = b"".join(array.tobytes() for array in model.parameters.values())
            bits.add((parameters, rank(model, graph).better.tobytes()))
        finally:
            torch.set_num_threads(before)
    assert len(bits) == 1


@pytest.mark.parametrize("kind", [RGCN, CompGCN])
def test_a_client_with_a_single_entity_trains(kind: type[Model]) -> None:
    graph = KnowledgeGraph.from_ids("one", ["a"], ["r"], {"train": np.zeros((1, 3), dtype=np.int32)})
    model = kind.build(ModelSettings(dim=4), graph, 0)
    result = train(model, graph, np.random.default_rng(0), TrainingSettings(negatives=2), epochs=2)
    assert np.isfinite(result.losses).all()
    assert np.isfinite(model.encode().entities.numpy()).all()


def test_an_unknown_decoder_or_composition_is_refused() -> None:
    graph = load_graph("Nations")
    for options in ({"decoder": "RotatE"}, {"composition": "add"}, {"layers": 0}):
        with pytest.raises(SettingError, match=rf"^model\.options\.{next(iter(options))}: "):
            CompGCN.build(ModelSettings(dim=4, options=options), graph, 0)


@pytest.mark.parametrize("name", ["R-GCN", "CompGCN"])
@pytest.mark.parametrize("mode", [name for name, kind in MECHANISMS.items() if issubclass(kind, Mechanism)])
def test_private_training_refuses_it_and_says_what_would_be_sound(name: str, mode: str) -> None:
    graph = mark(load_graph("Nations"), "0.5")
    reason = "one triple reaches many rows.*frozen encoder.*bounded number of neighbours.*bounded degree"
    with pytest.raises(SettingError, match=reason):
        mechanism_of(DPSettings(mode=mode)).check(MODELS[name], graph, TrainingSettings())
