"""Weights of an encoder beside a strategy's rows: averaged in the open and under masks, counted, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from fedkge.client.participant import Participant
from fedkge.client.policy import Policy
from fedkge.errors import RefusedError, SettingError
from fedkge.experiment import Experiment
from fedkge.simulations.runs.run import run
from tests.simulations.conftest import PLAIN, SMALLEST, TINY

SECURE = ["privacy.min_holders=1", "privacy.rows_from_seed=true"]  # shared and started as in the open
COMPGCN = ["model.name=CompGCN", "federation.rounds=2"]
RGCN = ["model.name=R-GCN", "federation.rounds=2"]
WEIGHTS = 'federation.share=["weights"]'


def experiment(*changes: str) -> Experiment:
    return Experiment().override([*TINY, SMALLEST, "federation.strategy=FedE", *changes])


def tables(folder: Path, client: int) -> dict[str, NDArray[np.float32]]:
    return load_file(folder / "embeddings" / f"client-{client}.safetensors")


@pytest.fixture
def before_and_after(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """By client and round: its weights before training, and after."""
    kept: dict[tuple[int, int], list[dict[str, Any]]] = {}
    train = Participant._train

    def watched(self: Participant, round: int) -> None:
        copies = kept.setdefault((self.client, round), [])
        copies.append({name: array.copy() for name, array in self.model.weights.items()})
        train(self, round)
        copies.append({name: array.copy() for name, array in self.model.weights.items()})

    monkeypatch.setattr(Participant, "_train", watched)
    return kept


@pytest.mark.parametrize("changes", [PLAIN, SECURE, [*PLAIN, "federation.weighting=triples"]])
def test_all_start_from_the_mean_of_what_all_trained(
    changes: list[str], tmp_path: Path, before_and_after: dict[tuple[int, int], list[dict[str, Any]]]
) -> None:
    result = run(experiment(*COMPGCN, WEIGHTS, *changes), tmp_path / "run")
    counts = np.array([len(load_triples(tmp_path / "run", client)) for client in range(3)], dtype=float)
    share = counts / counts.sum() if "federation.weighting=triples" in changes else np.full(3, 1 / 3)
    first, second = ([before_and_after[client, round] for client in range(3)] for round in (1, 2))
    for name in first[0][0]:
        for client in (1, 2):
            np.testing.assert_array_equal(first[client][0][name], first[0][0][name])
            np.testing.assert_array_equal(second[client][0][name], second[0][0][name])
        mean = sum(part * each[1][name] for part, each in zip(share, first, strict=True))
        np.testing.assert_allclose(second[0][0][name], mean, atol=2e-5)
        assert np.abs(first[0][1][name] - mean).max() > 1e-4  # clients disagree
    assert result.summary["utility"]["test"]["mrr"]["value"] > 0


def load_triples(folder: Path, client: int) -> list[str]:
    return (folder / "data" / f"client-{client}" / "train.tsv").read_text(encoding="utf-8").splitlines()


def test_weights_stay_at_home_unless_they_are_shared(
    tmp_path: Path, before_and_after: dict[tuple[int, int], list[dict[str, Any]]]
) -> None:
    run(experiment(*COMPGCN, *PLAIN), tmp_path / "run")
    starts = [before_and_after[client, 1][0]["convolution"] for client in range(3)]
    assert not np.array_equal(starts[0], starts[1])
    for client in range(3):
        (_, trained), (later, _) = (before_and_after[client, round] for round in (1, 2))
        np.testing.assert_array_equal(trained["convolution"], later["convolution"])


def test_masked_sums_of_weights_are_the_open_ones(tmp_path: Path) -> None:
    shared = 'federation.share=["weights", "coefficient"]'
    opened = run(experiment(*RGCN, shared, *PLAIN), tmp_path / "open")
    run(experiment(*RGCN, shared, *SECURE), tmp_path / "secure")
    for client in range(3):
        plain, masked = tables(tmp_path / "open", client), tables(tmp_path / "secure", client)
        for name in ("entity", "basis", "self_loop", "coefficient"):
            np.testing.assert_allclose(plain[name], masked[name], atol=2e-4)
    rows = run(experiment(*RGCN, *PLAIN), tmp_path / "rows")
    sent, without = (each.summary["communication"]["by_phase"]["train up"] for each in (opened, rows))
    weights = 4 * 3 * 2 * (8 * 8 * 3)  # bytes · clients · rounds · (two bases and a self loop)
    assert sent - without > weights


def test_fedavg_shares_weights_alone(tmp_path: Path) -> None:
    result = run(experiment(*RGCN, *PLAIN, "federation.strategy=FedAvg"), tmp_path / "run")
    first, second = (tables(tmp_path / "run", client) for client in (0, 1))
    np.testing.assert_allclose(first["basis"], second["basis"])
    assert not np.allclose(first["self_loop"], 0)
    assert result.summary["communication"]["by_phase"]["train up"] < 4 * 3 * 2 * (8 * 8 * 3) * 2
    run(experiment(*RGCN, *SECURE, "federation.strategy=FedAvg"), tmp_path / "secure")
    np.testing.assert_allclose(first["basis"], tables(tmp_path / "secure", 0)["basis"], atol=2e-4)


def test_a_model_without_weights_has_none_to_share(tmp_path: Path) -> None:
    for changes in ([WEIGHTS], ["federation.strategy=FedAvg"]):
        with pytest.raises(SettingError, match=r"share the weights of TransE, which has none; leave"):
            run(experiment(*PLAIN, *changes), tmp_path / "run")
    with pytest.raises(
        SettingError, match="shares 'basis', which CompGCN does not have to share; it has entity"
    ):
        run(experiment(*COMPGCN, *PLAIN, 'federation.share=["basis"]'), tmp_path / "run")
    local = run(experiment(*COMPGCN, *PLAIN, WEIGHTS, "federation.strategy=Local"), tmp_path / "local")
    assert local.summary["communication"]["by_phase"]["train up"] < 2000  # nothing but what JSON says


def test_a_policy_that_names_strategies_names_what_may_travel_beside_them() -> None:
    asked = experiment(WEIGHTS)
    Policy().check_experiment(asked)
    with pytest.raises(RefusedError, match=r'`share = \["any"\]`, and the run has federation\.share'):
        Policy(strategies=("FedE",)).check_experiment(asked)
    Policy(strategies=("FedE",), share=("weights",)).check_experiment(asked)
    Policy(strategies=("FedE",)).check_experiment(experiment())
    with pytest.raises(RefusedError, match="entity"):
        Policy(strategies=("FedR",), share=("weights",)).check_experiment(
            experiment("federation.strategy=FedR", 'federation.share=["entity"]')
        )


@pytest.mark.slow
def test_ray_gives_the_bits_of_one_process(tmp_path: Path, ray_running: Any) -> None:
    changes = [*COMPGCN, WEIGHTS, *PLAIN, "model.options.composition=circular"]
    hashes = {
        run(experiment(*changes, f"engine.name={engine}"), tmp_path / engine).summary["result_hash"]
        for engine in ("inline", "ray")
    }
    assert len(hashes) == 1
