"""A network is released once: paid once, the same in every round and after a crash, and for no other data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.client.models import MODELS, Model, build_model
from fedkge.client.models.stage import Stage
from fedkge.client.networks.factors import factors_of
from fedkge.client.networks.walk_matrix import adjacency_of, walk_matrix
from fedkge.client.privacy import MECHANISMS, PrivacyAccount, mechanism_of, train_privately
from fedkge.client.privacy.networks.private_edges import RandomisedResponse
from fedkge.client.privacy.networks.private_vertices import GaussianVertices
from fedkge.client.privacy.networks.release import Release
from fedkge.client.privacy.normals import Keystream, derived
from fedkge.client.training.loop import train
from fedkge.datasets import mark, unrestricted
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.networks.network import edges_of, network_of
from fedkge.errors import SettingError
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from tests.client.conftest import random_graph

RELEASES = [name for name, mode in MECHANISMS.items() if issubclass(mode, Release)]
SETTINGS = TrainingSettings(local_epochs=1, filter_negatives=False)
SIZE = 40


def network(extra: int = 0) -> KnowledgeGraph:
    edges = np.random.default_rng(0).integers(0, SIZE, (90 + extra, 2))
    return mark(network_of("net", [f"v{i}" for i in range(SIZE)], edges), "1.0", 0)


NET = network()
ADJACENCY = adjacency_of(edges_of(NET), SIZE)


def dp(mode: str, epsilon: float = 3.0, **more: Any) -> DPSettings:
    return DPSettings(mode=mode, target_epsilon=epsilon, **more)


def account(
    folder: Path, mode: str, graph: KnowledgeGraph = NET, simulated: bool = False, run: str = "", **more: Any
) -> PrivacyAccount:
    path = folder / "ledger.json"
    return PrivacyAccount(path, 0, graph, SETTINGS, dp(mode, **more), 10, bytes(32), simulated, run)


def fresh(seed: int = 0, name: str = "DeepWalkMF", dim: int = 6) -> Model:
    return build_model(ModelSettings(name=name, dim=dim), unrestricted(NET), seed)


def products(made: PrivacyAccount, round: int, seed: int = 0, dim: int = 6) -> np.ndarray:
    """Of all rows with each other after a round: how rows are turned does not enter."""
    model = fresh(seed, dim=dim)
    made.train(model, np.random.default_rng(round), SETTINGS, round, None)
    rows = model.tables["entity"].astype(np.float64)
    return rows @ rows.T


@pytest.mark.parametrize("mode", RELEASES)
def test_a_release_is_paid_once_and_is_the_same_in_every_round_and_after_a_crash(
    mode: str, tmp_path: Path
) -> None:
    made = account(tmp_path, mode)
    first = products(made, 1)
    np.testing.assert_allclose(products(made, 2, seed=5), first, atol=1e-4)
    again = account(tmp_path, mode, run="another")
    np.testing.assert_allclose(products(again, 1, seed=7), first, atol=1e-4)
    for each in (made, again):
        report = each.report()
        assert 2.99 < report["epsilon"] <= 3.0
        assert len(report["events"]) == 1
        assert not report["budget_spent"]
    other = products(account(tmp_path / "b", mode), 1)  # of another key
    apart = 1e-4 if mode == "dpne-absolute" else 1e-2  # its noise leaves rows all but where they are
    assert not np.allclose(other, first, rtol=0, atol=apart)


@pytest.mark.parametrize("mode", RELEASES)
def test_another_network_is_another_release_and_is_paid(mode: str, tmp_path: Path) -> None:
    products(account(tmp_path, mode), 1)
    larger = account(tmp_path, mode, network(extra=5), run="another")
    products(larger, 1)
    assert len(larger.charges) == 2
    assert larger.charges[0].key != larger.charges[1].key
    assert larger.spent() > 3.5


def test_a_lifetime_budget_is_not_spent_twice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    products(account(tmp_path, "randomised-response"), 1)
    made = account(tmp_path, "randomised-response", network(extra=5), run="another")
    made.lifetime = 4.0
    model = fresh()
    before = model.tables["entity"].copy()
    result = made.train(model, np.random.default_rng(0), SETTINGS, 1, None)
    assert result.events == ()
    np.testing.assert_array_equal(model.tables["entity"], before)
    assert "lifetime budget" in caplog.text
    assert made.spent() == 3.0


def test_a_release_without_delta_is_added_to_what_needs_one(tmp_path: Path) -> None:
    products(account(tmp_path, "gaussian-edges"), 1)
    after = account(tmp_path, "randomised-response", run="another")
    products(after, 1)
    assert 5.9 < after.spent() < 6.1
    assert 0 < after.report()["delta"] < 1 / len(NET.train)


def test_what_is_released_does_not_depend_on_the_width(tmp_path: Path) -> None:
    for mode, charges in (("randomised-response", 1), ("dpne", 2)):
        products(account(tmp_path / mode, mode, run="one"), 1)
        made = account(tmp_path / mode, mode, run="two")
        products(made, 1, dim=4)
        assert len(made.charges) == charges


def test_a_simulation_repeats_itself(tmp_path: Path) -> None:
    one, two = (products(account(tmp_path / name, "top-edges", simulated=True), 1) for name in ("one", "two"))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("mode", RELEASES)
def test_every_mode_says_what_its_epsilon_is_worth(mode: str, tmp_path: Path) -> None:
    kind = MECHANISMS[mode]
    assert kind.summary
    assert kind.guaranteed == (not kind.doubts) == kind.kind.guaranteed
    report = account(tmp_path, mode).report()
    assert report["standing"].startswith("guaranteed" if kind.guaranteed else "claimed")
    assert set(kind.assumed) | set(kind.doubts) <= set(report["outside"])
    assert ("vertex" in report["adjacency"]) == (mode == "gaussian-vertices") or "edge" in report["adjacency"]


def test_randomised_response_is_what_the_mechanism_embeds() -> None:
    """Through an account and a model, the singular vectors of its estimate, and nothing else."""
    secret, model = bytes(range(32)), fresh()
    train_privately(model, NET, np.random.default_rng(0), SETTINGS, dp("randomised-response"), secret)
    rows = RandomisedResponse(3.0).rows(ADJACENCY, 6, Keystream(derived(secret, "release")))
    trained = model.tables["entity"].astype(np.float64)
    # a ridge of a thousandth is off each singular value
    np.testing.assert_allclose(trained @ trained.T, rows @ rows.T, atol=0.01)


def test_without_noise_edges_train_the_model_without_privacy() -> None:
    model, plain = fresh(), fresh()
    train_privately(model, NET, np.random.default_rng(0), SETTINGS, dp("top-edges", 500.0), bytes(32))
    train(plain, NET, np.random.default_rng(0), SETTINGS)
    rows, expected = (each.tables["entity"].astype(np.float64) for each in (model, plain))
    np.testing.assert_allclose(rows @ rows.T, expected @ expected.T, atol=1e-4)


@pytest.mark.parametrize(
    ("mode", "embedded"),
    [
        ("gaussian-edges", ADJACENCY),
        ("gaussian-vertices", GaussianVertices(1.0).weighed(ADJACENCY)),
        ("dpm", walk_matrix(ADJACENCY)),
    ],
)
def test_without_noise_a_matrix_is_factorised_as_it_is(mode: str, embedded: Any) -> None:
    model = fresh()
    settings = dp(mode, 1e7, delta=1e-3)
    train_privately(model, NET, np.random.default_rng(0), SETTINGS, settings, bytes(32))
    rows, expected = model.tables["entity"].astype(np.float64), factors_of(embedded, 6).vertices
    np.testing.assert_allclose(rows @ rows.T, expected @ expected.T, atol=0.02)


@pytest.mark.parametrize("name", ["LINE-1", "LINE-2", "SkipGram", "DeepWalkMF"])
def test_released_edges_train_every_model_of_networks(name: str) -> None:
    model = fresh(name=name)
    before = model.entity_vectors().copy()
    result = train_privately(model, NET, np.random.default_rng(0), SETTINGS, dp("top-edges"), bytes(32))
    assert np.abs(model.entity_vectors() - before).max() > 0
    assert result.triples == len(NET.train)


def test_contexts_of_dpne_are_never_kept() -> None:
    """They are learnt without noise, and the paper keeps them secret."""
    model = fresh()
    before = model.tables["context"].copy()
    result = train_privately(model, NET, np.random.default_rng(0), SETTINGS, dp("dpne"), bytes(32))
    np.testing.assert_array_equal(model.tables["context"], before)
    assert all(loss != loss for loss in result.losses)


def test_vertices_are_not_told_from_edges_in_one_ledger(tmp_path: Path) -> None:
    """What is per vertex holds per edge too, and not the other way round."""
    first = account(tmp_path / "a", "gaussian-vertices")
    products(first, 1)
    after = account(tmp_path / "a", "gaussian-edges", run="another")
    products(after, 1)
    assert after.spent() > 3.5
    products(account(tmp_path / "b", "gaussian-edges"), 1)
    with pytest.raises(SettingError, match=r"counts ε per vertex, and .* whose ε is per edge"):
        account(tmp_path / "b", "gaussian-vertices", run="another")


def refused(
    message: str, settings: DPSettings, graph: KnowledgeGraph = NET, model: str = "DeepWalkMF"
) -> None:
    with pytest.raises(SettingError, match=message):
        mechanism_of(settings).check(MODELS[model], graph, SETTINGS)


def test_what_a_mode_is_not_for_is_refused_with_a_remedy() -> None:
    with pytest.raises(SettingError, match=r'target_epsilon: missing; mode "dpm" .* such as 8\.0'):
        mechanism_of(DPSettings(mode="dpm"))
    refused(r'set model.name = "DeepWalkMF", or take mode "top-edges"', dp("dpne"), model="LINE-1")
    refused(r"CompGCN has an encoder.* take DeepWalkMF, LINE-1", dp("top-edges"), model="CompGCN")
    kinds = mark(random_graph(1, entities=20, triples=60), "1.0", 0)
    refused(r'relations; take mode "hubs" or "sound".*network:graph=NAME', dp("top-edges"), kinds)
    half = mark(NET, "0.5", 0)
    refused(r"data.confidential: .* hides all or none; set it to 1\.0", dp("top-edges"), half)
    for name, value in (("sigma", 2.0), ("clip", 0.1), ("percentile", 5.0), ("noise", "dense")):
        refused(rf"privacy\.dp\.{name}: .*; leave {name} out", dp("top-edges", **{name: value}))
    refused(r"delta: 0.5 is not below 1 /", dp("gaussian-edges", delta=0.5))
    crowd = replace(NET, entity_labels=tuple(f"v{i}" for i in range(20_001)))
    refused(r"noises every pair of vertices.*20,001 vertices", dp("gaussian-edges"), crowd)


@pytest.mark.parametrize("mode", ["sound", "hubs", "paper", "sgm"])
def test_a_model_with_stages_of_its_own_is_not_trained_in_private_steps(mode: str) -> None:
    """LINE-2 makes an arc each way of an edge; without the second, half of its rows would stay."""
    settings = DPSettings(mode=mode, sigma=1.0, delta=1e-5, clip=1.0)
    with pytest.raises(SettingError, match=r"the model is trained in stages of its own.*Take LINE-1"):
        mechanism_of(settings).check(MODELS["LINE-2"], NET, SETTINGS)


def test_every_model_that_private_steps_take_is_one_stage_of_what_it_is_given() -> None:
    """By the stages themselves, whatever a mechanism looks at."""
    settings = DPSettings(mode="sound", sigma=1.0, delta=1e-5, clip=1.0)
    training = SETTINGS.model_copy(update={"local_epochs": 1})
    taken = 0
    for name in ("LINE-1", "LINE-2", "SkipGram", "DeepWalkMF", "TransE", "DistMult"):
        model = build_model(ModelSettings(name=name, dim=4), NET, 0)
        (stage,) = model.stages(training)
        try:
            mechanism_of(settings).check(type(model), NET, training)
        except SettingError:
            continue
        taken += 1
        assert stage == Stage(model, training), name
    assert taken == 3


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("top-edges", {"directed": True}, "without directions; leave it out"),
        ("dpne", {"solver": "als"}, "releases finished rows; leave it out"),
        ("randomised-response", {"window": 3}, "releases the network itself with noise"),
        ("gaussian-vertices", {"logarithm": True}, "releases the network itself with noise"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(
    mode: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        mechanism_of(dp(mode)).check_options(
            MODELS["DeepWalkMF"], ModelSettings(name="DeepWalkMF", options=options)
        )
