"""Models of descriptions: their rows against slow and obvious code, unseen entities, what a batch encodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.nn.functional import max_pool1d, normalize

from fedkge.client.models import MODELS, build_model
from fedkge.client.models.text_encoders import (
    BLP,
    BOW,
    DKRL,
    BLPComplEx,
    BLPDistMult,
    Described,
    DKRLMixed,
    Fusion,
    FusionComplEx,
    FusionDistMult,
)
from fedkge.client.texts import text_encoder
from fedkge.client.training.evaluate import measure
from fedkge.client.training.loop import train
from fedkge.client.training.ranks import rank
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, UnknownNameError
from fedkge.experiment import ModelSettings, TrainingSettings
from tests.client.conftest import random_graph
from tests.contracts.model import ExtensionContract

WORDS = ["sea", "ship", "sail", "wind", "harbour", "bread", "oven", "flour", "baker", "shop"]
TEXT_MODELS = sorted(name for name, kind in MODELS.items() if issubclass(kind, Described))


def told(graph: KnowledgeGraph) -> KnowledgeGraph:
    """With texts of nought to eleven words; entity 5 has none."""
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 12, graph.num_entities)
    counts[5] = 0
    texts = tuple(" ".join(rng.choice(WORDS, count)) for count in counts)
    return replace(graph, texts={"entity": texts})


def graph() -> KnowledgeGraph:
    return told(random_graph(0))


def build(kind: type[Described], dim: int = 6, **options: Any) -> Any:
    model = kind.build(ModelSettings(dim=dim, margin=2.0, options={"text": "hash:8", **options}), graph(), 0)
    rng = np.random.default_rng(1)
    for array in model.parameters.values():
        array += rng.normal(scale=0.2, size=array.shape).astype(np.float32)
    return model


class TextContract(ExtensionContract):
    graph = staticmethod(graph)
    options: ClassVar[dict[str, object]] = {"text": "hash:8"}


class TestBLP(TextContract):
    name = "BLP"
    kind = BLP


class TestDeepBLP(TextContract):
    name = "BLP"
    kind = BLP
    options: ClassVar[dict[str, object]] = {"text": "hash:8", "hidden": 5}
    tolerance = 1e-4  # its bias is moved by the sum over entities of slopes that cancel, unlike its weights


class TestBLPDistMult(TextContract):
    name = "BLP-DistMult"
    kind = BLPDistMult


class TestBLPComplEx(TextContract):
    name = "BLP-ComplEx"
    kind = BLPComplEx


class TestBOW(TextContract):
    name = "BOW"
    kind = BOW


class TestDKRL(TextContract):
    name = "DKRL"
    kind = DKRL


class TestFrozenDKRL(TextContract):
    name = "DKRL"
    kind = DKRL
    options: ClassVar[dict[str, object]] = {"text": "hash:8", "trainable": False}


class TestDKRLMixed(TextContract):
    name = "DKRL-Mixed"
    kind = DKRLMixed


class TestFusion(TextContract):
    name = "Fusion"
    kind = Fusion

    def size(self, name: str, expected: dict[str, np.ndarray], values: dict[str, np.ndarray]) -> float:
        """Rows of length 1 do not change when both weights grow: w₁g₁ + w₂g₂ = 0, sums of terms that cancel.

        A float32 sum errs by the size of its terms: those of g₁ are slope · structure, entry by entry, and
        the slope at an entry is the gradient of the structure there, over w₁.
        """
        if name != "weights":
            return super().size(name, expected, values)
        return float(np.abs(expected["entity"] * values["entity"]).sum() / abs(values["weights"][0]))


class TestGatedFusion(TextContract):
    name = "Fusion"
    kind = Fusion
    options: ClassVar[dict[str, object]] = {"text": "hash:8", "weights": "gate"}


class TestFusionDistMult(TextContract):
    name = "Fusion-DistMult"
    kind = FusionDistMult


class TestFusionComplEx(TextContract):
    name = "Fusion-ComplEx"
    kind = FusionComplEx


def padded(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, L, w) word vectors of each text, zero after its end; (n, L) whether there is a word."""
    words = text_encoder("hash:8").words(graph().texts["entity"], 32)
    longest = int(np.diff(words.starts).max())
    vectors = torch.from_numpy(words.vectors) + (model["words"] if "words" in model.weights else 0)
    x, mask = torch.zeros(len(words.starts) - 1, longest, 8), torch.zeros(len(words.starts) - 1, longest)
    for row, (start, stop) in enumerate(zip(words.starts, words.starts[1:], strict=False)):
        x[row, : stop - start], mask[row, : stop - start] = vectors[words.ids[start:stop]], 1
    return x, mask


def test_bow_is_the_mean_of_word_vectors() -> None:
    for dim in (8, 6):
        model = build(BOW, dim=dim)
        x, mask = padded(model)
        mean = x.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        rows = mean if dim == 8 else mean @ model["projection"]
        torch.testing.assert_close(model.entity, normalize(rows, dim=1))


@pytest.mark.parametrize("trainable", [True, False])
def test_dkrl_is_two_convolutions_over_padded_texts(trainable: bool) -> None:
    """As BLP's code has it: conv, mask, the largest of four, tanh, conv, mean over what is there, tanh."""
    model = build(DKRL, trainable=trainable)
    x, mask = padded(model)
    short = -x.shape[1] % 4
    x, mask = torch.nn.functional.pad(x, (0, 0, 0, short)), torch.nn.functional.pad(mask, (0, short))
    first = torch.stack([model["near"].T, model["next"].T], dim=2)  # (columns, w, 2)
    second = torch.stack([model["near_window"].T, model["next_window"].T], dim=2)
    pad = torch.nn.functional.pad
    y = torch.conv1d(pad(x.mT, (0, 1)), first, model["bias"]) * mask[:, None]
    y, left = torch.tanh(max_pool1d(y, 4)), max_pool1d(mask[:, None], 4)  # (n, columns, g), (n, 1, g)
    z = torch.conv1d(pad(y * left, (0, 1)), second, model["bias_window"])
    rows = torch.tanh((z * left).sum(2) / left.sum(2).clamp(min=1))
    torch.testing.assert_close(model.entity, normalize(rows, dim=1), rtol=1e-4, atol=1e-6)


def test_fusion_leaves_out_the_part_that_is_missing() -> None:
    source = graph()
    seen = set(source.train[:, [0, 2]].ravel().tolist())
    assert len(seen) < source.num_entities
    for weights in ("global", "gate"):
        model = build(FusionDistMult, weights=weights)
        text, table = model["texts"] @ model["projection"], model["entity"]
        for entity in range(source.num_entities):
            has_text, is_seen = bool(source.texts["entity"][entity]), entity in seen
            if weights == "global":
                first, second = model["weights"]
                row = first * is_seen * table[entity] + second * has_text * text[entity]
            elif is_seen and has_text:
                both = torch.cat([table[entity], text[entity]])
                share = torch.sigmoid((both @ model["gate"] + model["gate_bias"])[0])
                row = share * table[entity] + (1 - share) * text[entity]
            else:
                row = table[entity] if is_seen else text[entity]
                row = row if is_seen or has_text else torch.zeros_like(row)
            torch.testing.assert_close(model.entity[entity], row)


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_some_rows_are_those_of_all(name: str) -> None:
    model = build(MODELS[name])  # type: ignore[type-abstract]
    chosen = torch.tensor([5, 3, 29, 3])
    torch.testing.assert_close(model.encode_rows(chosen).entities, model.encode().entities[chosen])


def test_a_batch_encodes_the_entities_that_it_names_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BLP, "encode", lambda self: pytest.fail("all rows are encoded"))
    named: list[int] = []
    whole = BLP.encode_rows

    def encode_rows(self: BLP, entities: torch.Tensor) -> Any:
        named.append(len(entities))
        return whole(self, entities)

    monkeypatch.setattr(BLP, "encode_rows", encode_rows)
    settings = TrainingSettings(batch_size=2, negatives=3, shared_negatives=True)
    train(build(BLP), graph(), np.random.default_rng(0), settings, epochs=1)
    assert max(named) <= 2 * 2 + 3


def neighbours(count: int) -> KnowledgeGraph:
    """Sailors know sailors and bakers bakers; the last ten people are met in no train triple."""
    rng = np.random.default_rng(0)
    group = np.arange(count) % 2
    texts = tuple(" ".join(rng.choice(WORDS[:5] if side == 0 else WORDS[5:], 6)) for side in group)
    rows = [
        (h, 0, t) for h in range(count) for t in rng.integers(0, count, 12) if h != t and group[h] == group[t]
    ]
    triples = np.unique(np.array(rows), axis=0)
    unseen = (triples[:, [0, 2]] >= count - 10).any(axis=1)
    labels = (f"p{number}" for number in range(count))
    splits = {"train": triples[~unseen], "test": triples[unseen]}
    return KnowledgeGraph.from_ids("people", labels, ["knows"], splits, texts={"entity": texts})


@pytest.mark.parametrize("name", ["BLP", "BOW", "DKRL", "DKRL-Mixed", "Fusion"])
def test_people_that_were_never_met_are_known_by_their_text(name: str) -> None:
    people = neighbours(60)
    settings = TrainingSettings(batch_size=64, negatives=16, learning_rate=0.02, corrupt="both")
    margin = 16.0 if name == "DKRL-Mixed" else 2.0  # of a sum of four distances
    model = build_model(
        ModelSettings(name=name, dim=8, margin=margin, options={"text": "hash:32"}), people, 0
    )
    train(model, people, np.random.default_rng(0), settings, epochs=30)
    blind = replace(people, texts={"entity": ("",) * people.num_entities})
    mrr = measure(rank(model, people))["mrr"]
    assert mrr > 1.5 * np.mean(1 / np.arange(1, people.num_entities + 1))
    with pytest.raises(DataError, match=f"people: {MODELS[name].__name__} reads texts of entities"):
        build_model(model.settings, blind, 0)


def test_vectors_that_are_given_take_the_place_of_texts() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    given = replace(random_graph(0), features={"entity": rows})
    model = BLP.build(ModelSettings(dim=4), given, 0)
    torch.testing.assert_close(model.entity, normalize(torch.from_numpy(rows) @ model["projection"], dim=1))


def test_an_unknown_encoder_is_named() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown text encoder 'glow'.*Did you mean 'glove'"):
        BLP.build(ModelSettings(options={"text": "glow"}), graph(), 0)


def test_a_layer_beside_the_projection_adds_what_it_says() -> None:
    model = build(BLPDistMult, hidden=3)
    texts, weights = model["texts"], model.weights
    states = np.maximum(texts.numpy() @ weights["hidden"] + weights["hidden_bias"], 0)
    expected = texts.numpy() @ weights["projection"] + states @ weights["hidden_out"]
    np.testing.assert_allclose(model.encode().entities.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    assert "hidden" not in build(BLPDistMult).weights


def test_its_dropout_is_of_training_alone() -> None:
    model = build(BLPDistMult, hidden=64, hidden_dropout=0.5)
    every = torch.arange(model.num_rows)
    trained = model.bind(model.tensors, rng=np.random.default_rng(0)).encode_rows(every).entities
    again = model.bind(model.tensors, rng=np.random.default_rng(0)).encode_rows(every).entities
    assert torch.equal(trained, again)
    assert not torch.allclose(trained, model.encode_rows(every).entities)
    assert torch.equal(model.encode_rows(every).entities, model.encode().entities)


def test_untrained_structure_is_left_out_unless_it_is_to_count_as_it_was_drawn() -> None:
    left_out, as_drawn = (build(Fusion, untrained=way) for way in ("left-out", "as-drawn"))
    unseen = np.setdiff1d(np.arange(left_out.num_rows), np.unique(graph().train[:, [0, 2]]))
    moved = ~np.isclose(left_out.encode().entities.numpy(), as_drawn.encode().entities.numpy()).all(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(moved), unseen)
    assert len(unseen) > 0
