"""Models of texts under private training: every parameter is in the bound, every number is noised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fedkge.client.kernels.gradients import Objective
from fedkge.client.kernels.losses import LOSSES
from fedkge.client.models import MODELS, Model, build_model
from fedkge.client.models.model import Encoded
from fedkge.client.models.text_encoders import BLP, LinearReader
from fedkge.client.models.translations import TransE
from fedkge.client.privacy import PrivacyAccount, mechanism_of, train_privately
from fedkge.client.privacy.encoders.row_encoders import ByAutograd, Linear, row_encoder_of
from fedkge.client.privacy.encoders.triple_parameters import TripleParameters, clipped_sums, each_triple
from fedkge.client.privacy.grid import GRID, ParameterSums
from fedkge.client.privacy.mechanism import TrainingSession
from fedkge.client.privacy.normals import Keystream
from fedkge.client.training.loop import train
from fedkge.client.training.negatives import Batch
from fedkge.client.training.steps import KernelStep
from fedkge.client.training.threads import one_thread
from fedkge.datasets import mark, unrestricted
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError, TrainingError
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from tests.client.conftest import random_graph
from tests.client.models.test_text_encoders import TEXT_MODELS, told
from tests.client.privacy.conftest import single
from tests.contracts.model import (
    MARGIN,
    autograd,
    mixed_batch,
    one_negative,
    shared_batch,
    tail_batch,
)

SECRET = bytes(range(32))
BATCHES = (tail_batch(), mixed_batch(), one_negative(), shared_batch())
SETTINGS = TrainingSettings(
    local_epochs=2, batch_size=16, negatives=3, learning_rate=0.01, optimizer="SGD", filter_negatives=False
)
GRAPH = told(random_graph(0))
MARKED = told(mark(replace(random_graph(1, entities=40, triples=400), name="marked"), "0.5", 0))


@pytest.fixture(autouse=True)
def alone_on_a_core() -> Iterator[None]:
    with one_thread():
        yield


def _variants() -> list[tuple[str, dict[str, Any]]]:
    cases: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in TEXT_MODELS]
    cases += [(name, {"weights": "gate"}) for name in TEXT_MODELS if name.startswith("Fusion")]
    cases += [(name, {"hidden": 3}) for name in ("BLP", "Fusion")]
    return cases + [(name, {"trainable": False}) for name in ("BOW", "DKRL")]


CASES = _variants()


def settings_of(name: str, options: dict[str, Any], dim: int = 6) -> ModelSettings:
    return ModelSettings(name=name, dim=dim, margin=MARGIN, options={"text": "hash:8", **options})


def perturbed(name: str, options: dict[str, Any], graph: KnowledgeGraph = GRAPH, dim: int = 6) -> Model:
    model = build_model(settings_of(name, options, dim), unrestricted(graph), 0)
    rng = np.random.default_rng(1)
    for array in model.parameters.values():
        array += rng.normal(scale=0.2, size=array.shape).astype(np.float32)
    return model


def alone(model: Model, objective: Objective, batch: Batch, i: int) -> dict[str, np.ndarray]:
    """The gradient of one triple by itself at every parameter, by torch in float64."""
    gradients, _ = autograd(model, objective, single(batch, i))
    rows = model.rows
    return {name: gradient.reshape(rows[name].shape) for name, gradient in gradients.items()}


def length(gradients: dict[str, np.ndarray]) -> float:
    return float(np.sqrt(sum((gradient**2).sum() for gradient in gradients.values())))


def written_out(model: Model, triple: TripleParameters) -> dict[str, np.ndarray]:
    out = {name: np.zeros(rows.shape) for name, rows in model.rows.items()}
    for part in triple.parts:
        assert len(np.unique(part.rows)) == len(part.rows)  # else its norm would not be that of the sum
        out[part.name][part.rows] += part.gradient
    return out


@pytest.mark.parametrize("loss", ["self-adversarial", "margin-ranking"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_gradient_of_a_triple_is_that_of_autograd_over_all_parameters(
    name: str, options: dict[str, Any], loss: str
) -> None:
    model, objective = perturbed(name, options), Objective(LOSSES[loss], MARGIN, temperature=0.7)
    for batch in BATCHES:
        count = 0
        for i, triple in enumerate(each_triple(model, objective, batch)):
            expected = alone(model, objective, batch, i)
            given = written_out(model, triple)
            whole = length(expected)
            scale = max(whole, 0.1)  # parts may cancel
            for key, gradient in expected.items():
                np.testing.assert_allclose(given[key], gradient, atol=1e-5 * scale)
            assert triple.norm == pytest.approx(whole, abs=1e-5 * scale)
            count += 1
        assert count == len(batch.anchors)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_clipped_sum_is_that_of_the_naive_loop(name: str, options: dict[str, Any]) -> None:
    model, objective = perturbed(name, options), Objective(LOSSES["self-adversarial"], MARGIN, 0.7)
    batch = mixed_batch()
    every = [alone(model, objective, batch, i) for i in range(len(batch.anchors))]
    bound = float(np.median([length(one) for one in every]))
    sums, _ = clipped_sums(model, objective, batch, bound, model.rows)
    for key, total in sums.sums.items():
        expected = sum(one[key] * min(1 / bound, 1 / length(one)) for one in every)
        np.testing.assert_allclose(total / GRID, expected, atol=2e-5)
        np.testing.assert_array_equal(total, np.round(total))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_no_triple_counts_for_more_than_its_bound_over_all_parameters_together(
    name: str, options: dict[str, Any]
) -> None:
    """Clipping each parameter by itself would let one triple count √k times for k of them."""
    model, objective = perturbed(name, options), Objective(LOSSES["logistic"], MARGIN, 1.0)
    reached = []
    for batch in BATCHES:
        for i in range(len(batch.anchors)):
            sums, _ = clipped_sums(model, objective, single(batch, i), 1e-3, model.rows)
            reached.append(np.sqrt(sum((total**2).sum() for total in sums.sums.values())) / GRID)
    assert max(reached) <= 1
    assert max(reached) > 0.9999  # and not for less than it may


def test_the_faster_way_of_linear_rows_gives_the_same_gradients() -> None:
    for name in ("BLP", "BLP-DistMult", "BLP-ComplEx"):
        model = perturbed(name, {})
        fast, slow = row_encoder_of(model), ByAutograd(model)
        assert isinstance(fast, Linear)
        np.testing.assert_allclose(fast.scored.entities, slow.scored.entities, atol=1e-6)
        rng = np.random.default_rng(0)
        ids = np.array([3, 5, 3, 7], dtype=np.int32)
        slopes = rng.normal(size=(4, fast.scored.entities.shape[1])).astype(np.float32)
        at_relation = rng.normal(size=fast.scored.relations.shape[1]).astype(np.float32)
        given = [
            written_out(model, TripleParameters(encoder.parts(ids, slopes, 2, at_relation), 0.0))
            for encoder in (fast, slow)
        ]
        for key, gradient in given[0].items():
            np.testing.assert_allclose(gradient, given[1][key], atol=1e-5)


def test_a_reader_that_adds_something_to_a_product_goes_the_general_way() -> None:
    class Shifted(BLP):
        def read(self, entities: torch.Tensor) -> torch.Tensor:
            return LinearReader.read(self, entities) + 1

    model = Shifted.build(settings_of("BLP", {}), GRAPH, 0)
    assert isinstance(row_encoder_of(model), ByAutograd)


def test_sparse_gradients_of_looked_up_rows_are_the_dense_ones() -> None:
    for name in ("Fusion", "DKRL", "BOW"):
        model = perturbed(name, {})
        ids = torch.tensor([4, 1, 4])
        found = []
        for sparse in (False, True):
            leaves = {key: model[key].detach().requires_grad_() for key in model.parameters}
            rows = model.bind(leaves, sparse=sparse).encode_rows(ids).entities
            gradients = torch.autograd.grad(rows.sum(), list(leaves.values()), allow_unused=True)
            found.append({key: one for key, one in zip(leaves, gradients, strict=True) if one is not None})
        table = "entity" if name == "Fusion" else "words"
        assert found[1][table].is_sparse
        for key, gradient in found[0].items():
            other = found[1][key]
            torch.testing.assert_close(other.to_dense() if other.is_sparse else other, gradient)


# Steps.


def privately(name: str, options: dict[str, Any], graph: KnowledgeGraph = MARKED, **dp: Any) -> Model:
    model = build_model(settings_of(name, options, 4), unrestricted(graph), 0)
    given = DPSettings(**{"mode": "sound", "clip": 0.1, **dp})
    train_privately(model, graph, np.random.default_rng(1), SETTINGS, given, SECRET)
    return model


def bits(model: Model) -> bytes:
    return b"".join(array.tobytes() for array in model.parameters.values())


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_number_of_every_parameter_is_noised(
    name: str, options: dict[str, Any], optimizer: str
) -> None:
    """Which word, row or weight a confidential triple reaches is not told by which of them moved."""
    everything = mark(MARKED, "1.0", 0)
    model = build_model(settings_of(name, options, 4), unrestricted(everything), 0)
    before = {key: array.copy() for key, array in model.parameters.items()}
    settings = SETTINGS.model_copy(
        update={"optimizer": optimizer, "batch_size": 400, "local_epochs": 1, "learning_rate": 1.0}
    )
    dp = DPSettings(mode="sound", clip=0.1, sigma=10.0)
    result = train_privately(model, everything, np.random.default_rng(1), settings, dp, SECRET)
    assert result.noise == "dense"
    for key, array in model.parameters.items():
        moved = np.mean(array != before[key])
        assert moved > 0.99, key


def test_noise_is_as_large_as_the_accountant_was_told() -> None:
    """One step of plain descent on triples that ask for nothing: what is left is noise alone."""
    everything = mark(MARKED, "1.0", 0)
    settings = SETTINGS.model_copy(update={"batch_size": 400, "local_epochs": 1, "loss": "margin-ranking"})
    model = build_model(settings_of("Fusion", {}, 64).model_copy(update={"margin": 0.0}), everything, 0)
    model = build_model(model.settings, unrestricted(everything), 0)
    for array in model.parameters.values():
        array[:] = 0  # all scores are equal, and none is above another
    dp = DPSettings(mode="sound", clip=0.5, sigma=2.0)
    (event,) = train_privately(model, everything, np.random.default_rng(1), settings, dp, SECRET).events
    assert (event.sigma, event.steps, event.rate) == (2.0, 1, 1.0)
    expected = settings.learning_rate * 2.0 * 0.5 / len(everything.train)
    for key in ("entity", "projection", "relation"):
        noise = model.parameters[key].ravel()
        assert np.std(noise) == pytest.approx(expected, rel=5 / np.sqrt(2 * noise.size))
        assert abs(np.mean(noise)) < 5 * expected / np.sqrt(noise.size)


def test_sums_with_noise_are_on_the_grid_and_alike_for_any_order() -> None:
    rows = {"a": np.zeros((5, 3), dtype=np.float32)}
    gradients = np.random.default_rng(0).normal(size=(20, 5, 3)).astype(np.float32)
    noisy = []
    for order in (range(20), reversed(range(20))):
        sums = ParameterSums(rows)
        for i in order:
            sums.add("a", gradients[i], np.arange(5, dtype=np.int32), 0.1)
        noisy.append(sums.noised("a", 3.0, Keystream(bytes(32))))
    np.testing.assert_array_equal(*noisy)
    np.testing.assert_array_equal(noisy[0] * GRID, np.round(noisy[0] * GRID))


@pytest.mark.parametrize("mode", ["sound", "sgm"])
def test_the_same_secret_gives_the_same_bits_and_another_gives_others(mode: str) -> None:
    first, second = (privately("BLP", {}, mode=mode) for _ in range(2))
    assert bits(first) == bits(second)
    other = build_model(settings_of("BLP", {}, 4), unrestricted(MARKED), 0)
    dp = DPSettings(mode=mode, clip=0.1)
    train_privately(other, MARKED, np.random.default_rng(1), SETTINGS, dp, bytes(32))
    assert bits(first) != bits(other)


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_spared_confidential_triples_leave_what_unrestricted_ones_make(name: str) -> None:
    graph = unrestricted(MARKED)
    spared = build_model(settings_of(name, {}, 4), graph, 0)
    dp = DPSettings(mode="sound", clip=0.1)
    result = train_privately(spared, MARKED, np.random.default_rng(1), SETTINGS, dp, SECRET, spare=True)
    plain = build_model(settings_of(name, {}, 4), graph, 0)
    assert result.events == ()
    plain_losses = train(plain, graph, np.random.default_rng(1), SETTINGS).losses
    assert np.mean(result.losses) == pytest.approx(np.mean(plain_losses), rel=0.2)
    assert bits(spared) != bits(build_model(settings_of(name, {}, 4), graph, 0))


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_little_noise_learns_what_training_without_learns(optimizer: str) -> None:
    """Every triple is confidential, as in Ghanvatkar and Wei (2021)."""
    everything = mark(MARKED, "1.0", 0)
    rate = {"SGD": 2.0, "Adam": 0.02}[optimizer]
    settings = SETTINGS.model_copy(
        update={"optimizer": optimizer, "learning_rate": rate, "local_epochs": 20, "batch_size": 50}
    )
    losses = {}
    for sigma in (1e-6, 50.0):
        model = build_model(settings_of("BLP", {}, 16), unrestricted(everything), 0)
        dp = DPSettings(mode="sound", clip=1.0, sigma=sigma)
        result = train_privately(model, everything, np.random.default_rng(1), settings, dp, SECRET)
        losses[sigma] = result.confidential_losses
    assert losses[1e-6][-1] < 0.9 * losses[1e-6][0]
    assert losses[50.0][-1] > losses[1e-6][-1]


def test_the_rule_for_the_bound_looks_at_nothing_confidential() -> None:
    """Other confidential triples, and the bound is the same bits."""
    marks = MARKED.marks("train")
    changed = MARKED.train.copy()
    changed[marks] = changed[marks][:, [2, 1, 0]]
    other = replace(MARKED, train=changed)
    for optimizer in ("SGD", "Adam"):
        settings = SETTINGS.model_copy(update={"optimizer": optimizer})
        bounds = []
        for graph in (MARKED, other):
            model = build_model(settings_of("Fusion", {}, 4), unrestricted(graph), 0)
            dp = DPSettings(mode="sound")
            bounds.append(train_privately(model, graph, np.random.default_rng(1), settings, dp, SECRET).clip)
        assert bounds[0] == bounds[1] > 1e-6


def test_the_mean_of_iterates_is_over_all_parameters() -> None:
    last, mean = (build_model(settings_of("BLP", {}, 4), unrestricted(MARKED), 0) for _ in range(2))
    for model, options in ((last, {}), (mean, {"average": 1.0})):
        dp = DPSettings(mode="sound", clip=0.1, options=options)
        train_privately(model, MARKED, np.random.default_rng(1), SETTINGS, dp, SECRET)
    for key, array in last.parameters.items():
        assert not np.array_equal(array, mean.parameters[key])


def test_lazy_noise_is_said_not_to_be_there() -> None:
    model = build_model(settings_of("BLP", {}, 4), unrestricted(MARKED), 0)
    dp = DPSettings(mode="sound", clip=0.1, noise="lazy")
    result = train_privately(model, MARKED, np.random.default_rng(1), SETTINGS, dp, SECRET)
    assert result.noise == "dense"
    assert "reads the weights of an encoder" in result.why


def test_weights_that_overflow_are_named() -> None:
    model = build_model(settings_of("BLP-DistMult", {}, 4), unrestricted(MARKED), 0)
    settings = SETTINGS.model_copy(update={"learning_rate": 1e38})
    dp = DPSettings(mode="sound", clip=1e6, sigma=1e6)
    with pytest.raises(TrainingError, match=r"finite|loss"):
        train_privately(model, MARKED, np.random.default_rng(1), settings, dp, SECRET)


# What is refused.


class Running(BLP):
    """Its rows depend on a statistic that training gathers over batches."""

    @classmethod
    def initial_buffers(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, np.ndarray]:
        return {"mean": np.zeros(3, dtype=np.float32)}


class Neighbours(TransE):
    """A graph encoder, whose rows depend on those of others."""

    def encode(self) -> Encoded:
        return Encoded(self["entity"], self["relation"])


@pytest.mark.parametrize("model", [Running, Neighbours, MODELS["R-GCN"]])
@pytest.mark.parametrize("mode", ["sound", "sgm", "hubs", "paper"])
def test_encoders_that_join_triples_are_refused(mode: str, model: type[Model]) -> None:
    with pytest.raises(SettingError, match=r"one triple reaches many rows.*frozen encoder"):
        mechanism_of(DPSettings(mode=mode)).check(model, MARKED, SETTINGS)


@pytest.mark.parametrize(
    ("mode", "reason"), [("hubs", "hubs are entities with rows of their own"), ("paper", 'Mode "sgm"')]
)
def test_mechanisms_over_rows_refuse_texts_and_say_why(mode: str, reason: str) -> None:
    with pytest.raises(SettingError, match=f'not supported for BLP.*{reason}.*use mode = "sound"'):
        mechanism_of(DPSettings(mode=mode)).check(MODELS["BLP"], MARKED, SETTINGS)


@pytest.mark.parametrize("name", ["BLP", "Fusion-ComplEx"])
@pytest.mark.parametrize("mode", ["sound", "sgm"])
def test_dropout_that_private_training_would_ignore_is_refused(mode: str, name: str) -> None:
    def refused(options: dict[str, Any]) -> None:
        model = perturbed(name, options, MARKED)
        dp = DPSettings(mode=mode, sigma=1.0, clip=1.0, delta=1e-5)
        train_privately(model, MARKED, np.random.default_rng(0), SETTINGS, dp, SECRET, epochs=1)

    message = r'^model\.options\.hidden_dropout: not yet .*; set it to 0, or set privacy\.dp\.mode = "off"$'
    with pytest.raises(SettingError, match=message):
        refused({"hidden": 3, "hidden_dropout": 0.5})
    if mode == "sound":
        refused({"hidden": 3, "hidden_dropout": 0.0})


@pytest.mark.parametrize("mode", ["sound", "hubs"])
def test_negatives_out_of_the_batch_are_refused_where_they_would_break_the_guarantee(mode: str) -> None:
    settings = SETTINGS.model_copy(update={"negatives_from": "batch"})
    with pytest.raises(SettingError, match=r'negatives_from.*clipping each does not bound.*"sgm"'):
        mechanism_of(DPSettings(mode=mode)).check(MODELS["TransE"], MARKED, settings)


def test_a_structure_that_confidential_triples_switched_on_is_refused() -> None:
    """Fusion leaves out the structure of entities without a train triple: that tells of triples."""
    lonely = MARKED.train[MARKED.marks("train")][0, 0]
    public = ~MARKED.marks("train") & (MARKED.train[:, [0, 2]] != lonely).all(axis=1)
    marks = ~public
    graph = replace(MARKED, confidential={"train": marks})
    dp = DPSettings(mode="sound", clip=0.1)
    told_too_much = build_model(settings_of("Fusion", {}, 4), graph, 0)
    with pytest.raises(SettingError, match=r"'seen' of Fusion is made of confidential triples"):
        train_privately(told_too_much, graph, np.random.default_rng(1), SETTINGS, dp, SECRET)
    model = build_model(settings_of("Fusion", {}, 4), unrestricted(graph), 0)
    assert model["seen"][lonely] == 0
    train_privately(model, graph, np.random.default_rng(1), SETTINGS, dp, SECRET)


def test_other_texts_are_another_release(tmp_path: Any) -> None:
    """Else whoever may change a description asks twice, and the same noise cancels."""
    dp = DPSettings(mode="sound", clip=0.1)
    swapped = replace(MARKED, texts={"entity": MARKED.texts["entity"][::-1]})
    charges = []
    for graph in (MARKED, MARKED, swapped):
        account = PrivacyAccount(
            tmp_path / "ledger.json", 0, graph, SETTINGS, dp, 10, SECRET, simulated=False
        )
        model = build_model(settings_of("BLP", {}, 4), unrestricted(graph), 0)
        account.train(model, np.random.default_rng(1), SETTINGS, 1, None)
        charges.append(len(account.charges))
    assert charges == [1, 1, 2]


class TestSGM:
    """As Ghanvatkar and Wei (2021) trained: what makes its ε a claim is there."""

    dp: ClassVar = DPSettings(mode="sgm", clip=0.1)

    def test_one_triple_less_moves_the_gradients_of_others(self) -> None:
        """The reason that the report gives: negatives are other triples' entities."""
        everything = mark(MARKED, "1.0", 0)
        mechanism = mechanism_of(self.dp)
        model = build_model(settings_of("BLP", {}, 4), everything, 0)
        session = TrainingSession(
            model,
            everything,
            np.random.default_rng(0),
            SETTINGS,
            mechanism.plan(everything, SETTINGS),
            KernelStep(model, SETTINGS),
            SECRET,
        )
        batch = next(mechanism.batches(session).confidential())
        assert len(batch.anchors) == SETTINGS.batch_size
        for i in range(len(batch.anchors)):
            others = np.delete(np.stack([batch.anchors, batch.candidates[:, 0]]), i, axis=1)
            assert set(batch.candidates[i, 1:]) <= set(others.ravel())

    def test_every_triple_is_in_one_batch_of_an_epoch(self) -> None:
        result = train_privately(
            build_model(settings_of("BLP", {}, 4), MARKED, 0),
            MARKED,
            np.random.default_rng(1),
            SETTINGS,
            self.dp,
            SECRET,
        )
        (event,) = result.events
        confidential = int(MARKED.marks("train").sum())
        assert event.steps == 2 * -(-confidential // SETTINGS.batch_size)
        assert event.rate == SETTINGS.batch_size / confidential
        assert mechanism_of(self.dp).delta(MARKED) == 1 / len(MARKED.train)
