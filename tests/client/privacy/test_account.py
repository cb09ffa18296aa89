"""A client's account: paid before release, once per release, and closed when the budget is spent."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.client.models import Model, build_model
from fedkge.client.privacy import PrivacyAccount, kept_secret, simulated_secret
from fedkge.client.privacy.accountant import Event, epsilon
from fedkge.datasets import unrestricted
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, TrainingError
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings

SETTINGS = TrainingSettings(batch_size=32, negatives=2, local_epochs=1, learning_rate=0.05, optimizer="SGD")


def steps_of(account: PrivacyAccount) -> int:
    """Confidential steps of one round."""
    return sum(event.steps for event in account.cost(1, {}))


def opened(folder: Path, graph: KnowledgeGraph, **dp: Any) -> PrivacyAccount:
    settings = DPSettings(**{"mode": "sound", **dp})
    return PrivacyAccount(
        folder / "ledger.json", 0, graph, SETTINGS, settings, 10, bytes(32), simulated=False
    )


def fresh(graph: KnowledgeGraph) -> Model:
    return build_model(ModelSettings(dim=4), unrestricted(graph), 0)


def trained(account: PrivacyAccount, graph: KnowledgeGraph, round: int = 1, shift: float = 0.0) -> bytes:
    """The entity table after one round from the initial rows, moved by `shift`."""
    model = fresh(graph)
    model.tables["entity"][0] += shift
    account.train(model, np.random.default_rng(round), SETTINGS, round, None)
    return model.tables["entity"].tobytes()


def test_the_same_release_costs_once_and_has_the_same_bits(tmp_path: Path, marked) -> None:
    account = opened(tmp_path, marked)
    first = trained(account, marked)
    steps = account.ledger.steps
    assert trained(account, marked) == first
    assert trained(opened(tmp_path, marked), marked) == first  # after a crash
    assert account.ledger.steps == steps > 0


def test_a_round_that_fails_is_paid_all_the_same(tmp_path: Path, marked) -> None:
    """Else a server could ask for failures, whose messages cost nothing, as often as it likes."""
    account = opened(tmp_path, marked)
    model = fresh(marked)
    model.tables["entity"][:] = np.nan
    with pytest.raises(TrainingError):
        account.train(model, np.random.default_rng(1), SETTINGS, 1, None)
    assert opened(tmp_path, marked).ledger.steps == steps_of(account) > 0


def test_another_release_of_the_same_round_is_paid_and_noised_afresh(tmp_path: Path, marked) -> None:
    """Else a server could send other rows for a round that is done, and subtract: the noise would cancel."""
    account = opened(tmp_path, marked, sigma=50.0, clip=0.1)
    first = np.frombuffer(trained(account, marked), np.float32).reshape(-1, 4)
    steps = account.ledger.steps
    second = np.frombuffer(trained(account, marked, shift=1e-3), np.float32).reshape(-1, 4)
    assert account.ledger.steps == 2 * steps
    noise = SETTINGS.learning_rate * 50 * 0.1 / 32 * np.sqrt(steps)
    assert np.std(second - first) > noise  # √2 of it, and not zero


def test_another_version_makes_another_release(
    tmp_path: Path, marked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a newer fedkge might scale the same noise by another bound, and the two would cancel."""
    account = opened(tmp_path, marked)
    trained(account, marked)
    steps = account.ledger.steps
    monkeypatch.setattr("fedkge.client.privacy.account._VERSION", "newer")
    trained(account, marked)
    assert account.ledger.steps == 2 * steps


def test_the_ledger_survives_and_a_damaged_one_is_refused(tmp_path: Path, marked) -> None:
    account = opened(tmp_path, marked)
    trained(account, marked)
    again = opened(tmp_path, marked)
    assert again.ledger == account.ledger
    assert again.report() == account.report()
    path = tmp_path / "ledger.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text(path.read_text()[:-9])
    with pytest.raises(
        DataError, match=r"ledger\.json: the privacy ledger cannot be read .*start the run anew"
    ):
        opened(tmp_path, marked)


def test_a_budget_is_never_exceeded_and_the_client_says_so(tmp_path: Path, marked, caplog) -> None:
    cost = opened(tmp_path / "free", marked)
    for round in (1, 2):
        trained(cost, marked, round)
    budget = cost.spent() + 0.01  # two rounds fit, three do not
    account = opened(tmp_path / "bound", marked, budget=budget)
    events = []
    for round in (1, 2, 3, 4):
        model = fresh(marked)
        result = account.train(model, np.random.default_rng(round), SETTINGS, round, None)
        events.append(bool(result.events))
        assert account.spent() <= budget
    assert events == [True, True, False, False]
    (said,) = caplog.records
    assert "client 0: another round would exceed privacy.dp.budget" in said.getMessage()
    assert "on unrestricted triples alone" in said.getMessage()
    assert account.report()["budget_spent"]
    caplog.clear()
    opened(tmp_path / "bound", marked, budget=budget)  # at resume
    assert "another round would exceed" in caplog.text


def test_a_round_that_was_paid_for_is_repeated_even_if_the_budget_is_spent_since(
    tmp_path: Path, marked
) -> None:
    account = opened(tmp_path, marked, budget=1.0, sigma=2.0)
    first, rounds = trained(account, marked, 1), 1
    while account.charges[-1:] and not account.report()["budget_spent"]:
        rounds += 1
        trained(account, marked, rounds)
    assert rounds > 1
    again = opened(tmp_path, marked, budget=1.0, sigma=2.0)
    assert trained(again, marked, 1) == first
    assert again.ledger == account.ledger


def test_a_budget_of_nothing_is_training_on_unrestricted_triples(tmp_path: Path, marked, caplog) -> None:
    account = opened(tmp_path, marked, budget=0)
    trained(account, marked)
    assert account.spent() == 0
    assert not (tmp_path / "ledger.json").exists()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_noise_can_be_solved_for(tmp_path: Path, marked) -> None:
    account = opened(tmp_path, marked, target_epsilon=2.0)
    steps = 10 * steps_of(account)
    assert epsilon([Event(account.dp.sigma, account.plan.rate, steps)], account.delta) == pytest.approx(
        2, abs=0.02
    )


def test_the_paper_s_delta_is_questioned(tmp_path: Path, marked, caplog) -> None:
    opened(tmp_path, marked, mode="paper", delta=0.1)
    assert "privacy.dp.delta: 0.1 is not below 1 /" in caplog.text


def test_an_optimizer_that_lazy_noise_cannot_serve_is_named(tmp_path: Path, marked, caplog) -> None:
    settings = SETTINGS.model_copy(update={"optimizer": "Adagrad"})
    dp = DPSettings(mode="sound", noise="lazy")
    account = PrivacyAccount(
        tmp_path / "ledger.json", 3, marked, settings, dp, 10, bytes(32), simulated=False
    )
    for round in (1, 2):
        account.train(fresh(marked), np.random.default_rng(0), settings, round, None)
    assert (
        caplog.text.count("client 3: privacy.dp.noise: lazy noise is exact for SGD alone, not for Adagrad")
        == 1
    )
    assert account.report()["noise"] == "dense"


def test_a_secret_is_drawn_once_and_is_the_client_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "own" / "dp.secret"
    secret = kept_secret(path)
    assert len(secret) == 32
    assert kept_secret(path) == secret
    assert kept_secret(tmp_path / "other" / "dp.secret") != secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(secret[:5])
    with pytest.raises(DataError, match=r"dp\.secret: 5 bytes where a secret of 32 is kept"):
        kept_secret(path)


def test_simulated_secrets_differ_by_client_and_seed() -> None:
    secrets = {simulated_secret(seed, client) for seed in (0, 1) for client in (0, 1)}
    assert len(secrets) == 4


def test_a_run_of_other_length_makes_another_release(tmp_path: Path, marked) -> None:
    """The bound by rule, and what a mechanism does in a round, depend on how many rounds a run has."""
    releases, steps = [], []
    for rounds in (10, 40):
        settings = DPSettings(mode="sound", sigma=50.0)
        path = tmp_path / "ledger.json"
        account = PrivacyAccount(path, 0, marked, SETTINGS, settings, rounds, bytes(32), simulated=False)
        releases.append(np.frombuffer(trained(account, marked), dtype=np.float32))
        steps.append(account.ledger.steps)
    assert steps[1] == 2 * steps[0]
    moves = [release - fresh(marked).tables["entity"].ravel() for release in releases]
    assert abs(np.corrcoef(moves)[0, 1]) < 0.5  # noise of its own
