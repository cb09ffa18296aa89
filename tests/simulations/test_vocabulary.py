"""Clients with rows for the entities of all clients: data.vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedkge.client.training.ranks import rank
from fedkge.datasets import Split
from fedkge.datasets.features import with_all_entities
from fedkge.datasets.graph import SPLITS
from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.simulations.runs.run import divide, run
from fedkge.simulations.trained.client_model import load_trained
from tests.simulations.conftest import SMALLEST

Make = Callable[..., Experiment]
ALL = (SMALLEST, "data.vocabulary=all")


def test_every_client_has_a_row_for_every_entity_and_its_own_triples(tiny: Make, tmp_path: Path) -> None:
    own, wide = divide(tiny(SMALLEST)), divide(tiny(*ALL))
    assert {graph.num_entities for graph in wide.clients} == {len(own.entity_labels)}
    assert max(graph.num_entities for graph in own.clients) < len(own.entity_labels)
    assert wide.content_hash == own.content_hash
    for before, after in zip(own.clients, wide.clients, strict=True):
        assert after.entity_labels[: before.num_entities] == before.entity_labels
        for split in SPLITS:
            np.testing.assert_array_equal(after[split], before[split])
    experiment = tiny(*ALL, "federation.strategy=FedR", "evaluation.candidates=all")
    result = run(experiment, tmp_path / "run")
    ranks = 0.0
    for client in range(3):
        trained = load_trained(tmp_path / "run", client)
        assert trained.graph.entity_labels == wide.clients[client].entity_labels
        places = rank(trained.model, trained.graph, sides="tail")
        assert places.candidates.max() > own.clients[client].num_entities
        ranks += float((1 / places.ranks()).sum())
    tested = sum(len(graph.test) for graph in wide.clients)
    assert result.test("mrr") == pytest.approx(ranks / tested)


def test_rows_that_no_triple_names_are_wrong_answers_of_kvsall(tiny: Make, tmp_path: Path) -> None:
    changes = ("federation.strategy=Local", "model.name=DistMult", "training.type=KvsAll")
    longer = ("training.local_epochs=20", "training.learning_rate=0.05")
    run(tiny(*ALL, *changes, *longer), tmp_path / "run")
    trained = load_trained(tmp_path / "run", 0)
    graph = trained.graph
    held = np.unique(graph.triples[:, [0, 2]])
    others = np.setdiff1d(np.arange(graph.num_entities), held)
    heads, relations = graph.train[:, 0], graph.train[:, 1]
    scores = [trained.model.scores_of(heads, relations, np.full_like(heads, each)).mean() for each in others]
    answers = trained.model.scores_of(*graph.train.T).mean()
    assert max(scores) < 0 < answers


def test_others_texts_come_with_their_labels_and_local_labels_stay(tiny: Make) -> None:
    own = divide(tiny(SMALLEST))
    told = [
        replace(graph, texts={"entity": tuple(f"of {label}" for label in graph.entity_labels)})
        for graph in own.clients
    ]
    told[0] = replace(told[0], entity_labels=("_:b0", *told[0].entity_labels[1:]))
    wide = with_all_entities(Split.of("told", told, "given"))
    for client, graph in enumerate(wide.clients):
        local = [label for label in graph.entity_labels if label.startswith("_:")]
        assert len(local) == (client == 0)
        known = zip(graph.entity_labels, graph.texts["entity"], strict=True)
        assert all(text == f"of {label}" for label, text in known if label not in local)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (("federation.strategy=FedE",), "FedE takes means of 'entity' rows over the clients that hold an"),
        (("adversary.record=last",), "attacks are scored by which entities a client holds"),
    ],
)
def test_what_depends_on_who_holds_an_entity_is_refused(
    tiny: Make, tmp_path: Path, changes: tuple[str, ...], why: str
) -> None:
    with pytest.raises(SettingError, match=f'^data.vocabulary = "all": {why}'):
        run(tiny(*ALL, "federation.strategy=FedR", *changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_deployment_refuses_it(tiny: Make) -> None:
    with pytest.raises(SettingError, match=r'^data.vocabulary = "all": a client of a deployment would have'):
        tiny(*ALL).check_deployed()
