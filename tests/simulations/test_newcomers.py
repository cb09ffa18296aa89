"""Questions about entities that a run never had, by their texts: as if they had been there all along."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import fedkge
from fedkge.client.models import MODELS
from fedkge.client.models.text_encoders import Described
from fedkge.datasets import KnowledgeGraph, load_graph, write_graph
from fedkge.errors import DataError, InputError, SettingError
from fedkge.experiment import Experiment, ModelSettings
from fedkge.server.records import Records
from fedkge.simulations.cli.main import app
from fedkge.simulations.trained.client_model import load_trained
from fedkge.simulations.trained.newcomers import Newcomers, admit
from fedkge.simulations.trained.prediction import predict, predict_new
from tests.simulations.finished import GRAPH, write_run

WORDS = ["sea", "ship", "sail", "wind", "harbour", "bread", "oven", "flour", "baker", "shop"]
NEW = {"cow": "a ship of the desert in the wind", "yeast": "flour for zymurgy"}
READERS = [name for name, kind in MODELS.items() if issubclass(kind, Described)]
CASES = [*((name, {}) for name in READERS), ("DKRL", {"trainable": False}), ("Fusion", {"weights": "gate"})]


def settings_of(name: str, options: dict[str, Any]) -> ModelSettings:
    return ModelSettings(name=name, dim=6, margin=2.0, options={"text": "hash:8", **options})


def described(graph: KnowledgeGraph, vectors: bool = False) -> KnowledgeGraph:
    """The graph and, at its end, the new entities without a triple; every entity with a text, or a vector."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in graph.entity_labels]
    wider = replace(graph, entity_labels=(*graph.entity_labels, *NEW))
    if vectors:
        rows = rng.normal(size=(wider.num_entities, 5)).astype(np.float32)
        return replace(wider, features={"entity": rows})
    return replace(wider, texts={"entity": (*texts, *NEW.values())})


def first(graph: KnowledgeGraph) -> KnowledgeGraph:
    """Without the new entities."""
    old = range(graph.num_entities - len(NEW))
    every = range(graph.num_relations)
    texts, features = graph.texts_of(old, every), graph.features_of(old, every)
    return replace(graph, entity_labels=graph.entity_labels[: len(old)], texts=texts, features=features)


def trained_with_all(settings: ModelSettings, wider: KnowledgeGraph) -> Any:
    """A model of the graph that has had the new entities all along; nothing moved their own parameters."""
    graph = first(wider)
    kind = MODELS[settings.name]
    model = kind.build(settings, wider, 0)
    narrow = kind.build(settings, graph, 0)
    rng = np.random.default_rng(1)
    for name, array in model.parameters.items():
        known = len(narrow.parameters[name])
        array[:known] += rng.normal(scale=0.3, size=array[:known].shape).astype(np.float32)
    return model, {name: model.parameters[name][: len(rows)] for name, rows in narrow.parameters.items()}


def write(folder: Path, settings: ModelSettings, wider: KnowledgeGraph) -> Any:
    """The folder of a run over the graph without the new entities; the model of the graph with them."""
    model, parameters = trained_with_all(settings, wider)
    graph = first(wider)
    write_graph(folder / "data" / "client-0", graph)
    Records(folder).write_tables("client-0", parameters, graph.labels)
    experiment = Experiment().model_copy(update={"model": settings})
    (folder / "experiment.toml").write_text(experiment.to_toml(), encoding="utf-8")
    return model


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("side", ["head", "tail"])
def test_a_new_entity_is_scored_as_if_it_had_been_there(
    name: str, options: dict[str, Any], side: str, tmp_path: Path
) -> None:
    wider = described(load_graph(GRAPH))
    model = write(tmp_path, settings_of(name, options), wider)
    rows, admitted = model.encode(), admit(load_trained(tmp_path, 0), Newcomers(NEW)).model.encode()
    torch.testing.assert_close(admitted.entities, rows.entities, rtol=0, atol=0)
    count = wider.num_entities - len(NEW)
    every, relation = np.arange(count), np.full(count, 1)
    for place, (label, text) in enumerate(NEW.items()):
        fixed = np.full(count, count + place)
        triples = (fixed, relation, every) if side == "head" else (every, relation, fixed)
        expected = dict(zip(wider.entity_labels, model.scores_of(*triples).tolist(), strict=False))
        alone = predict(tmp_path, 0, wider.relation_labels[1], **{f"{side}_text": text}, top=1000)  # type: ignore[arg-type]
        assert {answer.label for answer in alone.answers} == set(wider.entity_labels[:count])
        for answer in alone.answers:
            assert answer.score == pytest.approx(expected[answer.label], rel=1e-6, abs=1e-6)
            assert answer.known is None
        (tmp_path / "new.tsv").write_text(
            "".join(f"{name}\t{words}\n" for name, words in NEW.items()), encoding="utf-8"
        )
        together = predict_new(
            tmp_path, 0, wider.relation_labels[1], **{f"{side}s": tmp_path / "new.tsv"}, top=1000
        )  # type: ignore[arg-type]
        assert {answer.label: answer.score for answer in together[place].answers} == expected
        assert getattr(together[place], side) == label
        assert together[place].text == text


def test_words_that_no_text_had_are_counted_and_keep_their_given_vectors(tmp_path: Path) -> None:
    write(tmp_path, settings_of("BOW", {}), described(load_graph(GRAPH)))
    relation = load_trained(tmp_path, 0).graph.relation_labels[0]
    assert predict(tmp_path, 0, relation, head_text="a ship").new_words == 0
    assert predict(tmp_path, 0, relation, head_text="flour for zymurgy").new_words == 1
    asked = ["predict", str(tmp_path), "--relation", relation, "--head-text", "flour for zymurgy"]
    shown = CliRunner().invoke(app, asked)
    assert "1 word is in no text of the run" in shown.stdout


def test_vectors_of_new_entities_where_the_others_have_vectors(tmp_path: Path) -> None:
    wider = described(load_graph(GRAPH), vectors=True)
    model = write(tmp_path, settings_of("BLP", {}), wider)
    count = wider.num_entities - len(NEW)
    np.savez(tmp_path / "new.npz", labels=np.array(list(NEW)), rows=wider.features["entity"][count:])
    found = predict_new(tmp_path, 0, wider.relation_labels[0], tails=tmp_path / "new.npz", top=1)
    every = np.arange(count)
    for place, prediction in enumerate(found):
        scores = model.scores_of(every, np.zeros(count, dtype=int), np.full(count, count + place))
        assert prediction.answers[0].label == wider.entity_labels[int(scores.argmax())]
    relation = wider.relation_labels[0]
    with pytest.raises(
        SettingError, match=r"texts of new entities, where the others were given as vectors of 5"
    ):
        predict(tmp_path, 0, relation, head_text="a ship")
    np.savez(tmp_path / "narrow.npz", labels=np.array(["cow"]), rows=np.ones((1, 4)))
    with pytest.raises(SettingError, match=r"vectors of shape \(1, 4\) of new entities"):
        predict_new(tmp_path, 0, relation, heads=tmp_path / "narrow.npz")


def test_mistakes_name_the_remedy(tmp_path: Path) -> None:
    write(tmp_path, settings_of("BLP", {}), described(load_graph(GRAPH)))
    graph = load_trained(tmp_path, 0).graph
    relation, entity = graph.relation_labels[0], graph.entity_labels[0]
    with pytest.raises(SettingError, match="give a head or a tail, and not both"):
        predict(tmp_path, 0, relation, head=entity, tail_text="a ship")
    for text in ("", " \n", "x" * 100_001):
        with pytest.raises(SettingError, match=r"a text of [\d,]+ characters; expected a description"):
            predict(tmp_path, 0, relation, head_text=text)
    with pytest.raises(DataError, match=r"'of the, and': hash:8 knows no word of its text"):
        predict(tmp_path, 0, relation, head_text="of the, and")
    with pytest.raises(InputError, match="unknown relation"):
        predict(tmp_path, 0, "nothing", head_text="a ship")
    files = {
        "known.tsv": (f"{entity}\ta ship\n".encode(), f"'{entity}' is an entity of client 0 already"),
        "empty.tsv": (b"", "no text and no vector"),
        "latin.tsv": ("cow\tété\n".encode("latin-1"), "is not UTF-8"),
        "untabbed.tsv": (b"cow\n", "a label, a tab and a text"),
    }
    for name, (content, words) in files.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=words):
            predict_new(tmp_path, 0, relation, heads=tmp_path / name)
    np.savez(tmp_path / "new.npz", labels=np.array(["cow"]), rows=np.ones((1, 8)))
    with pytest.raises(SettingError, match="vectors of new entities, where hash:8 reads texts"):
        predict_new(tmp_path, 0, relation, heads=tmp_path / "new.npz")
    with pytest.raises(SettingError, match="a file of heads or of tails"):
        predict_new(tmp_path, 0, relation)
    asked = ["predict", str(tmp_path), "--relation", relation, "--heads", "x.tsv", "--tail", entity]
    assert "all that is given" in str(CliRunner().invoke(app, asked).exception)


@pytest.mark.parametrize("name", ["TransE", "R-GCN"])
def test_models_that_read_no_texts_refuse(name: str, tmp_path: Path) -> None:
    graph = write_run(tmp_path, name)[0].graph
    with pytest.raises(SettingError, match=rf"{name} reads no texts, .* or train one of .*BLP"):
        predict(tmp_path, 0, graph.relation_labels[0], head_text="a ship")


def test_the_command_prints_tables_or_json(tmp_path: Path) -> None:
    graph = described(load_graph(GRAPH))
    write(tmp_path, settings_of("DKRL", {}), graph)
    asked = ["predict", str(tmp_path), "--client", "0", "--relation", graph.relation_labels[2], "--top", "2"]
    text = ["--tail-text", NEW["cow"]]
    given = json.loads(CliRunner().invoke(app, [*asked, *text, "--json"]).stdout)
    assert (given["head"], given["tail"], given["text"]) == (None, NEW["cow"], NEW["cow"])
    shown = CliRunner().invoke(app, [*asked, *text]).stdout
    assert all(answer["label"] in shown for answer in given["answers"])
    (tmp_path / "new.tsv").write_text("cow\ta ship\nyeast\tflour\n", encoding="utf-8")
    several = json.loads(
        CliRunner().invoke(app, [*asked, "--heads", str(tmp_path / "new.tsv"), "--json"]).stdout
    )
    assert [(each["head"], len(each["answers"])) for each in several] == [("cow", 2), ("yeast", 2)]
    assert fedkge.predict_new(tmp_path, 0, graph.relation_labels[2], heads=tmp_path / "new.tsv", top=2)[
        0
    ].frame.shape
