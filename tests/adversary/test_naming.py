"""Finding 1 of the review: a server that follows the protocol named pseudonyms by their initial rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.attacks import Finding
from fedkge.attacks.coalition import views_of
from fedkge.attacks.recorded_run import RecordedRun
from fedkge.attacks.view import View
from fedkge.client.models import MODELS
from fedkge.client.models.initial import seed_key
from fedkge.client.policy import Policy
from fedkge.client.secure import SecureParticipant
from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs
from fedkge.simulations.runs.attacking import attack_run
from tests.simulations.conftest import TINY

SMALL = [
    "federation.strategy=FedE",
    "federation.rounds=2",
    "federation.evaluate_every=2",
    "training.local_epochs=1",
    "model.dim=128",
    "adversary.record=every",
    "engine.name=inline",
]
FROM_SEED = "privacy.rows_from_seed=true"


def named(folder: Path, *changes: str) -> Finding:
    """What a server by itself makes of a small federation over UMLS, against 100,000 decoys."""
    runs.run(Experiment().override([*SMALL, *changes]), folder)
    (finding,) = attack_run(folder, ["naming"])
    assert (finding.adversary, finding.metric, finding.regime) == ("server", "pseudonyms named", "entity")
    assert finding.count == 135
    assert finding.baseline == pytest.approx(1 / 100_135)
    return finding


@pytest.mark.parametrize("model", ["TransE", "RotatE"])
def test_rows_from_the_seed_name_pseudonyms_and_rows_from_the_clients_key_do_not(
    model: str, tmp_path: Path
) -> None:
    leaky = named(tmp_path / "seed", f"model.name={model}", FROM_SEED)
    assert leaky.value is not None
    assert leaky.value >= 0.7
    kept = named(tmp_path / "key", f"model.name={model}")
    assert kept.is_at_chance
    assert kept.value == 0.0  # of 135, guessing 1 of 100,135


def test_labels_in_the_clear_are_read(tmp_path: Path) -> None:
    finding = named(tmp_path / "run", "privacy.union=plain")
    assert (finding.value, finding.note) == (1.0, "read: labels travel in the clear")


def test_the_last_round_alone_is_said_to_tell_less(tmp_path: Path) -> None:
    finding = named(tmp_path / "run", "adversary.record=last", FROM_SEED, "model.name=TransE")
    assert "steps of rounds 2; the first rounds tell most" in finding.note


def test_no_view_of_the_server_alone_changes_with_the_clients_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key that a simulation derives from the seed may reach views only through a client."""
    runs.run(Experiment().override(SMALL), tmp_path / "run")

    def forbidden(*_: object) -> None:
        raise AssertionError("the server alone has no key to compute initial rows with")

    monkeypatch.setattr("fedkge.attacks.coalition.initial_rows", forbidden)
    (view,) = views_of(RecordedRun(tmp_path / "run"), (), 1.0)
    assert view.adversary == "server"
    view.save(tmp_path / "view")
    again = View.load(tmp_path / "view").movement["entity"]
    np.testing.assert_array_equal(again.steps, view.movement["entity"].steps)
    assert again.rounds == (1, 2)
    with pytest.raises(AssertionError, match="no key"):
        views_of(RecordedRun(tmp_path / "run"), (0,), 1.0)


Rows = Mapping[str, np.ndarray[Any, Any]]


@pytest.mark.parametrize("mode", ["private", "hashed", "oprf"])
def test_deployed_clients_start_alike_from_what_the_server_has_not(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs, take = runs.node_configs, SecureParticipant._take_shared
    starts: list[Rows] = []

    def deployed(*arguments: Any) -> dict[int, dict[str, Any]]:
        return {node: {**config, "simulated": False} for node, config in configs(*arguments).items()}

    def taking(self: SecureParticipant, shared: Any) -> None:
        take(self, shared)
        starts.append(dict(zip(self.graph.entity_labels, self._start["entity"], strict=True)))
        again = SecureParticipant(self.client, self.graph, self.experiment, self.files, True, self.run, None)
        np.testing.assert_array_equal(again._start["entity"], self._start["entity"])  # after a restart
        assert (self.files.folder / "rows.safetensors").stat().st_mode & 0o077 == 0

    monkeypatch.setattr(Policy, "load", classmethod(lambda kind, folder: kind.simulated()))
    monkeypatch.setattr(runs, "node_configs", deployed)
    monkeypatch.setattr(SecureParticipant, "_take_shared", taking)
    union = [f"privacy.union={mode}", "privacy.query_budget=256"]
    experiment = Experiment().override([*TINY, "federation.strategy=FedE", *union])
    runs.run(experiment, tmp_path / "run")
    assert len(starts) == 3
    common = set.intersection(*(set(rows) for rows in starts))
    assert len(common) > 50
    model = MODELS[experiment.model.name]
    for label in common:
        seeded = model.initial_table("entity", [label], experiment.model, seed_key(experiment.seed, "entity"))
        assert all(np.array_equal(rows[label], starts[0][label]) for rows in starts)
        assert not np.array_equal(starts[0][label], seeded[0])
