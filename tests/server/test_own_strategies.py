"""Strategies of a user's own: verbs act alike on open and on secure sums, or are refused with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import Field
from safetensors.numpy import load_file

from fedkge.client.models import MODELS, Encoded
from fedkge.client.models.translations import TransE
from fedkge.client.participant import Participant
from fedkge.errors import FederationError, SettingError
from fedkge.exchange import Table
from fedkge.experiment import Experiment, Settings
from fedkge.server.app import check_strategy
from fedkge.server.strategies.averaging import FedE, FedR
from fedkge.simulations.runs.run import RunResult, resume, run
from fedkge.strategy import STRATEGIES, ClientRound, Rows, Strategy, Term, check_shared
from tests.simulations.conftest import PLAIN, SMALLEST, TINY
from tests.simulations.mishaps import Crash, crash_in

SECURE = ["privacy.min_holders=1", "privacy.rows_from_seed=true"]  # shared and started as in the open


class Momentum(FedE):
    """FedAvgM (Hsu et al., 2019): the server's step keeps some of the one before."""

    class Options(Settings):
        beta: float = Field(default=0.5, ge=0, lt=1)

    def update(self, name: str, rows: Rows, mean_step: Rows) -> Rows:
        before = self.memory.get(name, np.zeros_like(rows))
        self.memory[name] = self.options.beta * before + mean_step  # type: ignore[attr-defined]
        return rows + self.memory[name].astype(np.float32)


class Pull:
    """μ/2 · ‖row − broadcast row‖² of the rows that are shared."""

    def __init__(self, round: ClientRound, mu: float) -> None:
        self.anchors = {}
        for name, local in round.local.items():
            self.anchors[name] = dict(zip(local.tolist(), round.reference[name], strict=True))
        self.mu = mu

    def gradient(self, name: str, ids: NDArray[np.int32], rows: Rows) -> Rows | None:
        if name not in self.anchors:
            return None
        anchors = [self.anchors[name].get(row, own) for row, own in zip(ids.tolist(), rows, strict=True)]
        return np.float32(self.mu) * (rows - np.array(anchors))


class Proximal(FedE):
    """FedProx (Li et al., 2020)."""

    class Options(Settings):
        mu: float = Field(default=1.0, ge=0)

    def objective(self, round: ClientRound) -> Term | None:
        round.memory["rounds"] = round.memory.get("rounds", np.zeros(1)) + 1
        return Pull(round, self.options.mu)  # type: ignore[attr-defined]


class Sparse(FedE):
    """The half of the rows that moved most, and those that waited longest in the end."""

    def select(self, name: str, step: Rows, round: ClientRound) -> NDArray[np.bool_] | None:
        length = np.linalg.norm(step, axis=1)
        chosen: NDArray[np.bool_] = length > np.median(length)
        return chosen


class Median(FedE):
    needs_uploads = "it takes the median of single steps"

    def merge(self, name: str, rows: Rows, uploads: Mapping[int, Table]) -> Rows:
        steps = np.full((len(uploads), *rows.shape), np.nan)
        for place, table in enumerate(uploads.values()):
            steps[place, table.ids] = table.rows
        middle: Rows = np.nan_to_num(np.nanmedian(steps, axis=0)).astype(np.float32)
        return rows + middle


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    for strategy in (Momentum, Proximal, Sparse, Median):
        monkeypatch.setitem(STRATEGIES, strategy.__name__, strategy)


def experiment(strategy: str, *changes: str) -> Experiment:
    return Experiment().override([*TINY, SMALLEST, f"federation.strategy={strategy}", *changes])


def losses(result: RunResult) -> list[float]:
    """The mean training loss of each round."""
    rows = result.metrics.query("metric == 'loss'")
    return [float(value) for value in rows.groupby("round")["value"].mean()]


@pytest.mark.parametrize("strategy", ["Momentum", "Proximal", "Sparse"])
def test_verbs_act_alike_on_open_and_on_secure_sums(strategy: str, tmp_path: Path) -> None:
    opened = run(experiment(strategy, *PLAIN), tmp_path / "open")
    secure = run(experiment(strategy, *SECURE), tmp_path / "secure")
    plain = run(experiment("FedE", *PLAIN), tmp_path / "plain")
    assert losses(opened) == pytest.approx(losses(secure), rel=1e-5)
    for client in range(3):
        rows, masked, means = (
            load_file(tmp_path / name / "embeddings" / f"client-{client}.safetensors")["entity"]
            for name in ("open", "secure", "plain")
        )
        np.testing.assert_allclose(rows, masked, atol=1e-4)
        assert np.abs(rows - means).max() > 1e-2  # the verb is not passed over
    assert opened.summary["result_hash"] != plain.summary["result_hash"]


@pytest.mark.parametrize("strategy", ["Momentum", "Proximal", "Sparse", "Median"])
def test_what_strategies_remember_survives_a_crash(strategy: str, tmp_path: Path) -> None:
    changes = (*PLAIN, "federation.rounds=6")
    whole = run(experiment(strategy, *changes), tmp_path / "whole")
    with pytest.raises(Crash):
        run(experiment(strategy, *changes), tmp_path / "cut", crash_in(3))
    assert resume(tmp_path / "cut").summary["result_hash"] == whole.summary["result_hash"]


def test_masked_sums_resume_with_what_was_not_selected(tmp_path: Path) -> None:
    whole = run(experiment("Sparse", *SECURE), tmp_path / "whole")
    with pytest.raises(Crash):
        run(experiment("Sparse", *SECURE), tmp_path / "cut", crash_in(3))
    assert resume(tmp_path / "cut").summary["result_hash"] == whole.summary["result_hash"]


def test_rows_that_are_not_selected_do_not_travel(tmp_path: Path) -> None:
    sparse, whole = (run(experiment(each, *PLAIN), tmp_path / each) for each in ("Sparse", "FedE"))
    sent, all_rows = (each.summary["communication"]["by_phase"]["train up"] for each in (sparse, whole))
    assert sent < 0.75 * all_rows


def test_options_reach_both_sides_and_are_checked(tmp_path: Path) -> None:
    none = run(experiment("Momentum", "federation.options.beta=0.0", *PLAIN), tmp_path / "none")
    fede = run(experiment("FedE", *PLAIN), tmp_path / "fede")
    assert none.summary["result_hash"] == fede.summary["result_hash"]
    still = run(experiment("Proximal", "federation.options.mu=0.0", *PLAIN), tmp_path / "still")
    assert losses(still) == pytest.approx(losses(fede), rel=1e-3)
    with pytest.raises(SettingError, match="beta"):
        run(experiment("Momentum", "federation.options.betta=0.0"), tmp_path / "bad")


def test_what_needs_uploads_runs_in_the_open_and_is_refused_over_sums(tmp_path: Path) -> None:
    reason = (
        r"Median cannot work on sums: it takes the median of single steps; set privacy\.secure_aggregation"
    )
    with pytest.raises(SettingError, match=reason):
        run(experiment("Median", *SECURE), tmp_path / "secure")
    assert not (tmp_path / "secure").exists()
    median = run(experiment("Median", *PLAIN), tmp_path / "median")
    fede = run(experiment("FedE", *PLAIN), tmp_path / "fede")
    assert median.summary["result_hash"] != fede.summary["result_hash"]


@pytest.mark.parametrize("changes", [PLAIN, SECURE])
def test_a_client_whose_strategy_is_another_one_refuses(
    changes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a worker that has another version, or none: the client builds its own strategy."""
    monkeypatch.setattr("fedkge.client.participant.build_strategy", lambda settings: FedE(settings))
    with pytest.raises(
        FederationError, match=r"server's Proximal has verbs \['objective'\], and this client's"
    ):
        run(experiment("Proximal", *changes), tmp_path / "run")


def test_what_a_model_does_not_have_cannot_be_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        SettingError, match="FedR shares 'relation', which LINE does not have to share; it has entity"
    ):
        check_shared("FedR", FedR.shared, "LINE", ["entity"])

    class Contextual(Strategy):
        shared = ("entity", "context")

    monkeypatch.setitem(STRATEGIES, "Contextual", Contextual)
    with pytest.raises(SettingError, match="Contextual shares 'context', which TransE does not have"):
        run(experiment("Contextual", *PLAIN), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_weights_travel_beside_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with an array of its own, which training moves: all clients end with the same one."""

    class Weighted(FedE):
        shared = ("entity", "matrix")

    class Moved(TransE):
        """TransE with an array of its own, which does not change a score."""

        @classmethod
        def weight_shapes(cls, settings: Any, graph: Any) -> dict[str, tuple[int, ...]]:
            return {"matrix": (2, 2, 3)}

        def encode(self) -> Encoded:
            return Encoded(self["entity"] + 0 * self["matrix"].sum(), self["relation"])

    ended: list[NDArray[np.float32]] = []
    train, test = Participant._train, Participant.test

    def moving(self: Participant, round: int) -> None:
        train(self, round)
        self.model.weights["matrix"] += np.float32(self.client)  # 0, 1, 2: one in the mean

    def tested(self: Participant, download: Any) -> Any:
        upload = test(self, download)
        ended.append(self.model.weights["matrix"] - self._start["matrix"].reshape(2, 2, 3))
        return upload

    monkeypatch.setitem(MODELS, "Moved", Moved)
    monkeypatch.setitem(STRATEGIES, "Weighted", Weighted)
    monkeypatch.setattr(Participant, "_train", moving)
    monkeypatch.setattr(Participant, "test", tested)
    for name, changes in {"open": PLAIN, "secure": SECURE}.items():
        run(experiment("Weighted", "federation.rounds=2", "model.name=Moved", *changes), tmp_path / name)
    assert len(ended) == 6
    for moved in ended:  # the second round is the best
        np.testing.assert_allclose(moved, 2.0, atol=1e-6)


def test_what_only_says_what_it_shares_runs_over_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sharer(FedE):
        """Nothing of its own but a helper."""

        def helper(self) -> None: ...

    monkeypatch.setitem(STRATEGIES, "Mine", Sharer)
    assert check_strategy(Experiment().override(["federation.strategy=Mine"])) is Sharer
    assert Sharer.verbs() == []
