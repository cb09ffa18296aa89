"""Questions to trained models, against scoring every entity by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedkge.client.models import MODELS
from fedkge.client.training.evaluate import evaluate
from fedkge.errors import DataError, InputError, SettingError
from fedkge.experiment import EvaluationSettings
from fedkge.simulations.cli.main import app
from fedkge.simulations.runs.run import RunResult
from fedkge.simulations.trained.client_model import load_trained
from fedkge.simulations.trained.prediction import predict
from tests.simulations.finished import write_run


@pytest.mark.parametrize("model", MODELS)
def test_answers_are_all_entities_by_score(model: str, tmp_path: Path) -> None:
    trained = write_run(tmp_path, model)[1]
    graph = trained.graph
    h, r, t = graph.train[0].tolist()
    for side, fixed in (("head", h), ("tail", t)):
        label, relation = graph.entity_labels[fixed], graph.relation_labels[r]
        found = predict(tmp_path, 1, relation, **{side: label}, top=1000)  # type: ignore[arg-type]
        for answer in found.answers:
            e = graph.entity_labels.index(answer.label)
            triple = (fixed, r, e) if side == "head" else (e, r, fixed)
            score = trained.model.scores_of(*([place] for place in triple))  # type: ignore[arg-type]
            assert answer.score == pytest.approx(float(score[0]), rel=1e-5, abs=1e-5)
            stated = [name for name in ("train", "valid", "test") if list(triple) in graph[name].tolist()]
            assert answer.known == (stated[0] if stated else None)
        scores = [answer.score for answer in found.answers]
        assert scores == sorted(scores, reverse=True)
        assert {answer.label for answer in found.answers} == set(graph.entity_labels)
        assert [answer.rank for answer in found.answers] == list(range(1, graph.num_entities + 1))
        assert any(answer.known == "train" for answer in found.answers)
        assert list(found.frame.columns) == ["rank", "label", "score", "known"]


def test_a_run_leaves_the_rows_it_was_tested_with(finished: RunResult) -> None:
    for client in range(3):
        trained = load_trained(finished.folder, client)
        scores = finished.summary["utility"]["per_client"][str(client)]["test"]
        measured = evaluate(trained.model, trained.graph, "test", EvaluationSettings())
        assert measured.metrics["mrr"] == pytest.approx(scores["mrr"]["value"])


def test_the_nearest_labels_are_named(tmp_path: Path) -> None:
    trained = write_run(tmp_path, "TransE")[0]
    known = trained.graph.entity_labels[7]
    with pytest.raises(InputError, match=rf"unknown entity of client 0: '{known.upper()}x'.*'{known}'"):
        predict(tmp_path, 0, trained.graph.relation_labels[0], head=known.upper() + "x")
    with pytest.raises(InputError, match="unknown relation of client 0: 'nothing like it'; the nearest: "):
        predict(tmp_path, 0, "nothing like it", head=known)


def test_mistakes_name_the_remedy(tmp_path: Path) -> None:
    trained = write_run(tmp_path, "TransE")[0]
    entity, relation = trained.graph.entity_labels[0], trained.graph.relation_labels[0]
    with pytest.raises(SettingError, match="a head or a tail, and not both"):
        predict(tmp_path, 0, relation)
    with pytest.raises(SettingError, match="a head or a tail, and not both"):
        predict(tmp_path, 0, relation, head=entity, tail=entity)
    with pytest.raises(InputError, match="no embeddings of client 3; it has clients 0, 1, 2"):
        predict(tmp_path, 3, relation, head=entity)
    with pytest.raises(InputError, match="is not a run folder"):
        predict(tmp_path / "data", 0, relation, head=entity)
    (tmp_path / "embeddings" / "client-0.safetensors").write_bytes(b"torn")
    with pytest.raises(DataError, match="run the experiment again"):
        predict(tmp_path, 0, relation, head=entity)
    for file in (tmp_path / "embeddings").glob("*.safetensors"):
        file.unlink()
    with pytest.raises(InputError, match="--resume"):
        predict(tmp_path, 0, relation, head=entity)


def test_the_command_prints_a_table_or_json(tmp_path: Path) -> None:
    graph = write_run(tmp_path, "DistMult")[2].graph
    h, r, _ = graph.train[0].tolist()
    asked = ["--client", "2", "--head", graph.entity_labels[h], "--relation", graph.relation_labels[r]]
    shown = CliRunner().invoke(app, ["predict", str(tmp_path), *asked, "--top", "3"])
    assert shown.exit_code == 0, shown.output
    given = json.loads(CliRunner().invoke(app, ["predict", str(tmp_path), *asked, "--json"]).stdout)
    assert (given["head"], given["tail"], len(given["answers"])) == (graph.entity_labels[h], None, 10)
    for answer in given["answers"][:3]:
        assert f"{answer['label']} " in shown.stdout
        assert f"{answer['score']:.4f}" in shown.stdout
