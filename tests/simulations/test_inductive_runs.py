"""Federations over a graph with held-out entities: scores of seen and unseen ends, on every engine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from fedkge.datasets import KnowledgeGraph, Split, load, write_graph
from fedkge.experiment import Experiment
from fedkge.simulations.cli.main import app
from fedkge.simulations.runs import run as runs
from fedkge.simulations.runs.run_folder import RunFolder
from fedkge.simulations.trained.prediction import predict
from tests.datasets.test_inductive import graph
from tests.simulations.mishaps import Crash, crash_in

Make = Callable[..., Experiment]
TEXTS = ("model.name=BLP", 'model.options={text="hash:8"}', "training.corrupt=both", "evaluation.sides=both")
SMALL = ("federation.rounds=2", "federation.evaluate_every=1", "federation.strategy=FedR")
WORDS = ["sea", "ship", "sail", "wind", "harbour", "bread", "oven", "flour", "baker", "shop"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of described entities, as a folder."""
    rng = np.random.default_rng(0)
    drawn = graph()
    texts = tuple(" ".join(rng.choice(WORDS, 5)) for _ in drawn.entity_labels)
    folder = tmp_path_factory.mktemp("described")
    write_graph(folder, replace(drawn, texts={"entity": texts}))
    return folder


def asked(make: Make, source: Path, *changes: str, rule: str = "0.03,0.02,keep") -> Experiment:
    data = (f"data.dataset={source}", f'data.inductive="{rule}"', "data.partition=random")
    return make(*data, *TEXTS, *SMALL, *changes)


def unseen_ends(graph: KnowledgeGraph) -> np.ndarray:
    """(n, 2) whether head and tail of each test triple are in no train triple."""
    known = {int(entity) for h, _, t in graph.train for entity in (h, t)}
    return np.array([[int(h) not in known, int(t) not in known] for h, _, t in graph.test])


def test_seen_and_unseen_ends_are_scored_apart(tiny: Make, source: Path, out: Path) -> None:
    result = runs.run(asked(tiny, source), out)
    run, ranks = RunFolder(out), load_file(out / "ranks.safetensors")
    unseen = np.concatenate([unseen_ends(run.graph(client)) for client in range(3)])
    metrics = result.metrics.set_index(["split", "client", "metric"])["value"]
    for name in ("own", "all"):
        places = np.concatenate([ranks[f"client-{client}/{name}"] for client in range(3)]).astype(float)
        asked_unseen, given_unseen = unseen[:, [1, 0]], unseen  # the first column asks for tails
        chosen = {
            "seen": np.repeat(~unseen.any(axis=1)[:, None], 2, axis=1),
            "unseen": np.repeat(unseen.any(axis=1)[:, None], 2, axis=1),
            "unseen-asked": asked_unseen & ~given_unseen,
            "unseen-given": given_unseen & ~asked_unseen,
            "unseen-both": given_unseen & asked_unseen,
        }
        scores = result.summary["utility"]["filters"][name]["test"]["ends"]
        assert list(scores) == [end for end in chosen if chosen[end].any()]
        assert {"seen", "unseen", "unseen-asked", "unseen-given"} <= set(scores)
        for end, score in scores.items():
            mean = (1 / places[chosen[end]]).mean()
            assert score["mrr"]["value"] == pytest.approx(mean, rel=1e-5)
            assert metrics[f"test filter={name} end={end}", "all", "mrr"] == pytest.approx(mean, rel=1e-5)
            count = chosen[end].sum() // (2 if end in ("seen", "unseen") else 1)
            assert score["count"] == count
            frame = result.frame[(result.frame["part"] == f"ends {end}") & (result.frame["filter"] == name)]
            assert set(frame["split"]) >= {"test"}
    page = (out / "report.html").read_text(encoding="utf-8")
    for words in (
        "test, seen<",
        "test, all, unseen<",
        "seen and unseen ends",
        "MRR, an end unseen",
    ):
        assert words in page
    shown = CliRunner().invoke(app, ["run", "--resume", str(out)]).stdout
    assert "test, unseen 0." in " ".join(shown.split())


def test_nothing_is_said_of_ends_where_all_were_seen(tiny: Make, out: Path) -> None:
    filters = runs.run(tiny("federation.rounds=1"), out).summary["utility"]["filters"]
    assert all(block[split]["ends"] == {} for block in filters.values() for split in ("valid", "test"))
    assert "test, seen" not in (out / "report.html").read_text(encoding="utf-8")


def test_the_rule_of_blp_leaves_no_triple_among_seen_entities_in_whole(
    tiny: Make, source: Path, out: Path
) -> None:
    """A client can lack train triples of an entity that others train on, but never the other way round."""
    single = runs.run(asked(tiny, source, "data.clients=1", rule="0.03,0.02"), out)
    ends = single.summary["utility"]["filters"]["own"]["test"]["ends"]
    assert "seen" not in ends
    assert ends["unseen"]["count"] == single.summary["utility"]["test"]["count"]


@pytest.mark.parametrize("candidates", ["seen", "own", "all"])
def test_candidates_are_what_they_are_called(candidates: str, tiny: Make, source: Path, out: Path) -> None:
    """No rank, ties counted as worst, is beyond the number of candidates."""
    runs.run(asked(tiny, source, f"evaluation.candidates={candidates}", "evaluation.ties=pessimistic"), out)
    run, ranks = RunFolder(out), load_file(out / "ranks.safetensors")
    for client in range(3):
        own = run.graph(client)
        most = {"seen": int(own.seen_entities.sum()) + 1, "own": own.num_entities, "all": own.num_entities}
        assert ranks[f"client-{client}/own"].max() <= most[candidates]
    protocol = run.summary.part("utility", "protocol")
    assert protocol.text("candidates") == candidates


@pytest.mark.parametrize("protected", [False, True])
def test_every_engine_and_a_resumed_run_give_the_same(
    protected: bool, tiny: Make, secret: Make, source: Path, tmp_path: Path, ray_running: Any
) -> None:
    experiment = asked(secret if protected else tiny, source, "evaluation.candidates=seen")
    whole = runs.run(experiment, tmp_path / "whole")
    ray = runs.run(experiment.override(["engine.name=ray"]), tmp_path / "ray")
    with pytest.raises(Crash):
        runs.run(experiment, tmp_path / "cut", crash_in(2))
    resumed = runs.resume(tmp_path / "cut")
    for other in (ray, resumed):
        assert other.summary["result_hash"] == whole.summary["result_hash"]
        assert other.summary["utility"] == whole.summary["utility"]
    assert whole.summary["utility"]["filters"]["own"]["test"]["ends"]["unseen"]["count"] > 0


def test_a_split_that_was_written_is_ranked_as_the_experiment_that_divides(
    tiny: Make, source: Path, tmp_path: Path
) -> None:
    parts = tmp_path / "parts"
    made = ["data", "split", str(source), "--inductive", "0.03,0.02,keep", "--seed", "0", "--clients", "3"]
    assert CliRunner().invoke(app, [*made, "--out", str(parts)]).exit_code == 0
    split = load(parts)
    assert isinstance(split, Split)
    assert split.num_clients == 3
    assert all(any(client.texts["entity"]) for client in split.clients)
    whole = runs.run(asked(tiny, source), tmp_path / "whole")
    given = runs.run(tiny(f"data.dataset={parts}", *TEXTS, *SMALL), tmp_path / "given")
    assert given.summary["result_hash"] == whole.summary["result_hash"]
    refused = CliRunner().invoke(app, [*made, "--partition", "fedr", "--out", str(tmp_path / "no")])
    assert "decides anew" in str(refused.exception)
    assert not (tmp_path / "no").exists()


def test_a_federation_answers_for_a_new_entity(tiny: Make, source: Path, out: Path) -> None:
    runs.run(asked(tiny, source), out)
    answers = [predict(out, client, "often", head_text="bread and flour").answers for client in range(3)]
    assert all(len(each) == 10 for each in answers)


def test_entities_without_a_text_are_counted(
    tiny: Make, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = load(source)
    assert isinstance(whole, KnowledgeGraph)
    texts = ("", "", *whole.texts["entity"][2:])
    write_graph(tmp_path / "fewer", replace(whole, texts={"entity": texts}))
    with caplog.at_level(logging.WARNING):
        runs.run(asked(tiny, tmp_path / "fewer"), tmp_path / "run")
    assert "198 of 200 entities have a text or a vector; in place of the others' stands zero" in caplog.text


@pytest.mark.parametrize("name", ["BLP", "Fusion"])
def test_a_colluder_without_the_others_texts_has_no_rows_of_theirs(
    name: str, tiny: Make, source: Path, out: Path
) -> None:
    adversary = ("adversary.record=last", 'adversary.attacks=["reconstruction"]', "adversary.colluders=[0]")
    runs.run(asked(tiny, source, f"model.name={name}", *adversary), out)
    findings = RunFolder(out).findings
    assert findings
    assert not any("encoded by" in finding.where for finding in findings)
