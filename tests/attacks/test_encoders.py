"""Attacks on models with an encoder: input rows as if they were scored, a colluder's encoder, reasons."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedkge.attacks.coalition import Coalition, views_of
from fedkge.attacks.encoders import of_inputs
from fedkge.attacks.membership.federated.in_federation import Played, play
from fedkge.attacks.recorded_run import RecordedRun
from fedkge.attacks.view import UNKNOWN, Rows
from fedkge.client.models import MODELS, Encoded, Model
from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.simulations.runs.attacking import attack_run
from fedkge.simulations.runs.run import run
from fedkge.simulations.runs.tampered import serve_actively, tamper
from fedkge.simulations.trained.client_model import load_trained
from tests.simulations.conftest import PLAIN, SMALLEST, TINY

RECORDED = [*PLAIN, "federation.rounds=2", "adversary.record=every", "adversary.colluders=[0]"]


def experiment(*changes: str) -> Experiment:
    return Experiment().override([*TINY, SMALLEST, "federation.strategy=FedE", *RECORDED, *changes])


@pytest.fixture(scope="module")
def comp_gcn(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    folder = tmp_path_factory.mktemp("runs") / "CompGCN"
    run(experiment("model.name=CompGCN"), folder)
    return RecordedRun(folder)


@pytest.fixture(scope="module")
def r_gcn(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    folder = tmp_path_factory.mktemp("runs") / "R-GCN"
    run(experiment("model.name=R-GCN"), folder)
    return RecordedRun(folder)


def test_input_rows_are_attacked_by_the_decoder(comp_gcn: RecordedRun) -> None:
    views = {view.name: view for view in views_of(comp_gcn, [0], 1.0)}
    assert set(views) == {
        f"{name}, {how}"
        for name in ("uploads", "broadcasts")
        for how in ("input rows", "encoded by client 0")
    }
    for view in views.values():
        assert view.model.name == "DistMult"
        assert view.handed[0].relation.values.shape[1] == 8  # without the inverse's half
    raw = Coalition(comp_gcn, (0,), 1.0, server=True).uploads()
    seen = views["uploads, input rows"]
    np.testing.assert_array_equal(seen.handed[0].relation.values, raw.handed[0].relation.values[:, :8])
    np.testing.assert_array_equal(seen.last.lee[1].values, raw.last.lee[1].values)


def test_a_colluder_encodes_its_own_rows_as_its_model_does(comp_gcn: RecordedRun) -> None:
    views = {view.name: view for view in views_of(comp_gcn, [0], 1.0)}
    model = load_trained(comp_gcn.folder, 0).model  # that of the best round, here the last
    rows = model.encode()
    handed = views["uploads, encoded by client 0"].handed[0]
    np.testing.assert_allclose(handed.entity.values, rows.entities.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(handed.relation.values, rows.relations.detach().numpy(), atol=1e-5)


def test_a_colluder_encodes_rows_that_it_has_no_place_for_without_edges(r_gcn: RecordedRun) -> None:
    encoder = Coalition(r_gcn, (0,), 1.0, server=True).own_encoder
    inputs = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    name = int(encoder.entities[4])
    rows, _ = encoder((Rows(np.array([UNKNOWN, name, UNKNOWN]), inputs), None))
    assert rows is not None
    alone = inputs @ encoder.parameters["self_loop"].reshape(8, 8)
    np.testing.assert_allclose(rows.values[[0, 2]], alone[[0, 2]], rtol=1e-5)
    assert np.abs(rows.values[1] - alone[1]).max() > 1e-3  # which has neighbours
    parameters = dict(encoder.parameters)
    parameters["entity"] = parameters["entity"].copy()
    parameters["entity"][4] = inputs[1]
    model = MODELS["R-GCN"].restore(encoder.settings, encoder.graph, parameters)
    np.testing.assert_allclose(rows.values[1], model.encode().entities[4].detach().numpy(), rtol=1e-4)


def test_inverse_relations_are_no_part_of_what_a_decoder_scores(tmp_path: Path) -> None:
    changes = ["model.name=NoGE", "training.type=KvsAll", "model.options.inverse_relations=true"]
    run(experiment(*changes, "federation.strategy=FedER"), tmp_path / "run")
    views = {view.name: view for view in views_of(RecordedRun(tmp_path / "run"), [0], 1.0)}
    rows = load_trained(tmp_path / "run", 0).model.encode()
    handed = views["uploads, encoded by client 0"].handed[0].relation.values
    np.testing.assert_allclose(handed, rows.relations.detach().numpy()[:, :8], atol=1e-5)
    for view in views.values():
        assert (view.model.name, view.model.dim) == ("QuatE", 2)
        widths = {rows.values.shape[1] for rows in (*view.last.lre.values(), view.handed[0].relation)}
        assert widths == {8}


@pytest.mark.parametrize("name", ["CompGCN", "R-GCN"])
def test_reconstruction_and_membership_find_numbers(
    name: str, comp_gcn: RecordedRun, r_gcn: RecordedRun
) -> None:
    recorded = comp_gcn if name == "CompGCN" else r_gcn
    findings = attack_run(recorded.folder, ["reconstruction"])
    views = {view.name: view for view in views_of(recorded, [0], 1.0) if "+" in view.adversary}
    for how in ("input rows", "encoded by client 0"):
        for metric in ("TRR", "recall"):
            values = [
                finding.value
                for finding in findings
                if (finding.metric, finding.view) == (metric, f"uploads, {how}") and finding.target != "any"
                if finding.adversary == "server + client 0"
            ]
            assert values
            assert None not in values
        played = play(views[f"uploads, {how}"], recorded.truth, 1, np.random.default_rng(0))
        assert isinstance(played, Played)
        assert all(np.isfinite(guess.certainty).all() for guess in played.guesses.values())


def test_what_no_shallow_model_scores_is_not_possible_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed(Model):
        """An encoder and a score with weights."""

        @classmethod
        def weight_shapes(cls, settings: object, graph: object) -> dict[str, tuple[int, ...]]:
            return {"weight": (1, 1)}

        def encode(self) -> Encoded:
            return Encoded(self["entity"] * 2, self["relation"])

        def score(self, h: torch.Tensor, r: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return (h * r * t).sum(-1) * self["weight"][0, 0]

    monkeypatch.setitem(MODELS, "Closed", Closed)
    run(experiment("model.name=Closed"), tmp_path / "run")
    findings = attack_run(tmp_path / "run", ["reconstruction", "membership"])
    metrics = ("TRR", "recall", "auc", "accuracy")
    scored = [each for each in findings if each.metric in metrics and "client 0" in each.adversary]
    assert scored
    for finding in scored:
        assert finding.value is None
        assert "Closed scores what its encoder makes of rows" in finding.note


@pytest.mark.parametrize("name", ["ConvKB", "KBGAT"])
def test_rows_that_are_scored_with_weights_of_a_clients_own_are_not_scored(tmp_path: Path, name: str) -> None:
    run(experiment(f"model.name={name}"), tmp_path / "run")
    findings = attack_run(tmp_path / "run", ["reconstruction", "membership"])
    scored = [each for each in findings if each.metric in ("auc", "accuracy") and not each.granted]
    assert scored
    for finding in scored:
        assert finding.value is None or "degrees" in finding.regime
    assert any(f"{name} scores" in finding.note for finding in findings)


def test_rows_of_a_shallow_model_are_as_they_were(tmp_path: Path) -> None:
    run(experiment("model.name=DistMult"), tmp_path / "run")
    views = views_of(RecordedRun(tmp_path / "run"), [0], 1.0)
    assert [view.name for view in views] == ["uploads", "uploads", "broadcasts"]
    assert all(of_inputs(view) is view for view in views)


def test_who_pushes_rows_apart_needs_a_shallow_model(tmp_path: Path) -> None:
    asked = experiment("model.name=R-GCN", "federation.rounds=4")
    why = (
        r"model\.name: R-GCN scores what a client's own encoder makes of rows.* so that '{}' is not possible"
    )
    with pytest.raises(SettingError, match=why.format("tampering")):
        tamper(asked, tmp_path / "tampered", 0, 1)
    with pytest.raises(SettingError, match=why.format("active")):
        serve_actively(asked, tmp_path / "active", [])
    assert not (tmp_path / "active").exists()
