"""Mechanisms by name: one of a test's own, its options, its sentences, terms, and models that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedkge.client.models import MODELS, build_model
from fedkge.client.models.model import Model
from fedkge.client.models.translations import TransE
from fedkge.client.privacy import (
    MECHANISMS,
    EpochPlan,
    Mechanism,
    PrivacyAccount,
    mechanism_of,
    train_privately,
)
from fedkge.client.privacy.sound import Sound
from fedkge.datasets import unrestricted
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError, UnknownNameError
from fedkge.experiment import DPSettings, ModelSettings, Settings, TrainingSettings
from tests.contracts.model import PRIVATE

SECRET = bytes(range(32))
STEPPED = [name for name, kind in MECHANISMS.items() if issubclass(kind, Mechanism)]
SMALL = TrainingSettings(
    local_epochs=2, batch_size=16, negatives=3, learning_rate=0.05, optimizer="SGD", filter_negatives=False
)


class Tight(Sound):
    """`sound` with a bound of its own."""

    class Options(Settings):
        bound: float = 0.2

    summary = "confidential triples are clipped to a bound that the options name"

    @property
    def bound(self) -> float:
        return self.options.bound


class Spared(Sound):
    """No confidential step at all."""

    summary = "confidential triples are left alone"

    def plan(self, graph: KnowledgeGraph, settings: TrainingSettings) -> EpochPlan:
        return replace(super().plan(graph, settings), confidential_steps=0)


@pytest.fixture
def registered() -> Iterator[None]:
    MECHANISMS["tight"], MECHANISMS["spared"] = Tight, Spared
    yield
    del MECHANISMS["tight"], MECHANISMS["spared"]


class Pull:
    """A strategy's term that draws every row towards 1."""

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength
        self.calls: list[tuple[str, int]] = []

    def gradient(self, name: str, ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
        assert len(ids) == len(rows)
        self.calls.append((name, len(ids)))
        return np.float32(self.strength) * (rows - 1)


def trained(graph: KnowledgeGraph, dp: DPSettings, **options: object) -> tuple[Model, object]:
    model = build_model(ModelSettings(dim=4), unrestricted(graph), 0)
    result = train_privately(model, graph, np.random.default_rng(1), SMALL, dp, SECRET, **options)
    return model, result


def bits(model: Model) -> bytes:
    return b"".join(table.tobytes() for table in model.tables.values())


def test_a_mechanism_of_its_own_trains_as_its_options_say(marked, registered) -> None:
    given, result = trained(marked, DPSettings(mode="tight", options={"bound": 0.4}))
    assert result.clip == 0.4
    assert bits(given) == bits(trained(marked, DPSettings(mode="sound", clip=0.4))[0])
    assert bits(given) != bits(trained(marked, DPSettings(mode="tight"))[0])


def test_a_mechanism_without_confidential_steps_spares_them_and_costs_nothing(
    tmp_path: Path, marked, registered
) -> None:
    model, result = trained(marked, DPSettings(mode="spared"))
    assert (result.events, result.noise) == ((), "none")
    assert bits(model) == bits(trained(marked, DPSettings(mode="sound"), spare=True)[0])
    dp = DPSettings(mode="spared", target_epsilon=1.0, budget=0.1)
    account = PrivacyAccount(tmp_path / "ledger.json", 0, marked, SMALL, dp, 10, bytes(32), simulated=False)
    account.train(build_model(ModelSettings(dim=4), unrestricted(marked), 0), *round_one(), None)
    assert account.spent() == 0
    assert not account.report()["budget_spent"]


def round_one() -> tuple[np.random.Generator, TrainingSettings, int]:
    return np.random.default_rng(1), SMALL, 1


def test_unknown_modes_and_options_are_named(registered) -> None:
    with pytest.raises(UnknownNameError, match=r"sond.*Did you mean 'sound'"):
        mechanism_of(DPSettings(mode="sond"))
    with pytest.raises(SettingError, match=r"privacy\.dp\.options\.bond: unknown key; did you mean 'bound'"):
        mechanism_of(DPSettings(mode="tight", options={"bond": 1.0}))
    with pytest.raises(SettingError, match=r"privacy\.dp\.options\.bound: unknown key"):
        mechanism_of(DPSettings(mode="sound", options={"bound": 1.0}))


@pytest.mark.parametrize("mode", STEPPED)
def test_every_mechanism_says_what_its_epsilon_is_worth(tmp_path: Path, mode: str, marked) -> None:
    kind = MECHANISMS[mode]
    assert kind.summary
    assert kind.guaranteed == (not kind.doubts)  # a claim has reasons, a guarantee none
    report = PrivacyAccount(
        tmp_path / "ledger.json", 0, marked, SMALL, DPSettings(mode=mode), 10, bytes(32), simulated=True
    ).report()
    assert report["standing"] == kind.standing(simulated=True)
    assert report["standing"].startswith("guaranteed" if kind.guaranteed else "claimed")
    assert set(kind.assumed) | set(kind.doubts) <= set(report["outside"])
    assert kind.standing(simulated=False) in ("guaranteed", "claimed")


@pytest.mark.parametrize("mode", STEPPED)
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_a_term_that_is_zero_changes_no_row_and_another_moves_them(
    mode: str, optimizer: str, marked, monkeypatch
) -> None:
    settings = SMALL.model_copy(update={"optimizer": optimizer})
    monkeypatch.setitem(globals(), "SMALL", settings)
    dp = DPSettings(mode=mode, noise="dense")
    plain, zero, pulled = (trained(marked, dp, term=term)[0] for term in (None, Pull(0.0), Pull(2.0)))
    for name, table in plain.tables.items():
        np.testing.assert_allclose(zero.tables[name], table, atol=2e-4)
        assert np.abs(pulled.tables[name] - 1).mean() < np.abs(table - 1).mean()


def test_a_term_reaches_every_row_at_confidential_steps(marked) -> None:
    """Were it the rows of the batch alone, the term would tell which those are, without noise."""
    every = replace(marked, confidential={"train": np.ones(len(marked.train), dtype=bool)})
    term = Pull()
    _, result = trained(every, DPSettings(mode="sound", noise="lazy"), term=term)
    assert set(term.calls) == {("entity", marked.num_entities), ("relation", marked.num_relations)}
    assert result.noise == "dense"
    assert "term reads every row" in result.why


def test_another_term_is_another_release(tmp_path: Path, marked) -> None:
    """Else a server could change what decides the term, ask again, and subtract: the noise would cancel."""
    account = PrivacyAccount(
        tmp_path / "ledger.json", 0, marked, SMALL, DPSettings(mode="sound"), 10, bytes(32), simulated=False
    )

    def release(strength: float) -> bytes:
        model = build_model(ModelSettings(dim=4), unrestricted(marked), 0)
        account.train(model, *round_one(), None, Pull(strength), {"strength": np.array([strength])})
        return bits(model)

    first = release(1.0)
    assert release(1.0) == first
    assert len(account.charges) == 1
    release(1.5)
    assert len(account.charges) == 2
    with pytest.raises(TypeError, match="term_arrays"):
        account.train(build_model(ModelSettings(dim=4), marked, 0), *round_one(), None, Pull())


class Encoded(TransE):
    def encode(self) -> None:
        """Stands for a graph convolution."""


class OnlyScored(TransE):
    query_tail, query_head, queries = Model.query_tail, Model.query_head, Model.queries


@pytest.mark.parametrize("mode", STEPPED)
@pytest.mark.parametrize(
    ("model", "reason"),
    [(Encoded, "one triple reaches many rows.*frozen encoder"), (OnlyScored, "not yet for OnlyScored")],
)
def test_models_whose_gradients_cannot_be_bounded_are_refused(mode: str, model, reason: str, marked) -> None:
    with pytest.raises(SettingError, match=reason):
        mechanism_of(DPSettings(mode=mode)).check(model, marked, SMALL)


def test_every_shallow_model_is_accepted(marked) -> None:
    for name in PRIVATE:
        Sound(DPSettings(mode="sound")).check(MODELS[name], marked, SMALL)


def test_mechanisms_are_abstract_until_they_draw_and_step() -> None:
    with pytest.raises(TypeError, match=r"batches.*step"):
        Mechanism(DPSettings(mode="sound"))


@pytest.mark.parametrize("mode", STEPPED)
@pytest.mark.parametrize("changes", [{"type": "KvsAll"}, {"max_gradient_norm": 1.0}])
def test_training_that_has_no_gradient_of_a_single_triple_is_refused(mode: str, changes, marked) -> None:
    settings = SMALL.model_copy(update=changes)
    with pytest.raises(SettingError, match="the gradient of a batch is none of single triples"):
        mechanism_of(DPSettings(mode=mode)).check(MODELS["DistMult"], marked, settings)


@pytest.mark.parametrize("mode", STEPPED)
@pytest.mark.parametrize("changes", [{"weight_decay": 1e-5}, {"decay_every": 2}])
def test_rows_that_more_than_gradients_move_are_refused(mode: str, changes, marked) -> None:
    with pytest.raises(SettingError, match=r"not yet with training\.weight_decay or training\.decay_every"):
        mechanism_of(DPSettings(mode=mode)).check(
            MODELS["DistMult"], marked, SMALL.model_copy(update=changes)
        )
