"""Candidates of the union: others' entities, by the rows that the run's shared table ended with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedkge.client.models import MODELS
from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs
from fedkge.simulations.runs.run_folder import RunFolder

Make = Callable[..., Experiment]
UNION = ("federation.strategy=FedE", "evaluation.candidates=union", "model.name=DistMult")


@pytest.mark.parametrize("protected", [False, True])
def test_the_union_is_ranked_by_the_rows_of_those_who_hold_them(
    protected: bool, tiny: Make, secret: Make, out: Path
) -> None:
    """Naively: every entity that enough clients hold, with the row that its holders share."""
    experiment = (secret if protected else tiny)("data.partition=relation", *UNION)
    utility = runs.run(experiment, out).summary["utility"]
    run, holders = RunFolder(out), experiment.privacy.holders if protected else 1
    graphs = [run.graph(client) for client in range(3)]
    tables = [load_file(run.embeddings[client]) for client in range(3)]
    counts: dict[str, int] = {}
    for graph in graphs:
        for label in graph.entity_labels:
            counts[label] = counts.get(label, 0) + 1
    shared = {
        label: tables[client]["entity"][row]
        for client, graph in enumerate(graphs)
        for row, label in enumerate(graph.entity_labels)
        if counts[label] >= holders
    }
    known = {
        (g.entity_labels[h], g.relation_labels[r], g.entity_labels[t])
        for g in graphs
        for h, r, t in g.triples.tolist()
    }
    ranks = load_file(run.ranks)
    wider = 0
    for client, graph in enumerate(graphs):
        own_labels = {graph.entity_labels[e] for e in graph.triples[:, [0, 2]].ravel().tolist()}
        rows = {label: tables[client]["entity"][graph.entity_labels.index(label)] for label in own_labels}
        wider += len(shared.keys() - rows.keys())
        names, entities = zip(*{**shared, **rows}.items(), strict=True)
        for i, (h, r, t) in enumerate(graph.test[:40].tolist()):
            head, relation, tail = graph.entity_labels[h], graph.relation_labels[r], graph.entity_labels[t]
            query = tables[client]["entity"][h].astype(float) * tables[client]["relation"][r]
            scores = np.array(entities, dtype=float) @ query
            left = np.array([name == tail or (head, relation, name) not in known for name in names])
            bar = scores[names.index(tail)]
            near = 1e-5 * np.abs(scores).max()
            low, high = ((scores[left] > bar + near).sum(), (scores[left] > bar - near).sum())
            assert 1 + low <= ranks[f"client-{client}/all"][i, 0] <= high
    assert (wider > 0) == (not protected)  # three clients: what all hold, no client lacks
    assert utility["protocol"]["candidates"] == "own"
    assert utility["filters"]["all"]["protocol"]["candidates"] == "union"
    if not protected:
        assert utility["filters"]["own"]["test"]["mr"]["value"] > utility["test"]["mr"]["value"]


@pytest.mark.parametrize("strategy", ["FedR", "Local"])
def test_without_shared_entities_there_is_no_union(strategy: str, tiny: Make, out: Path) -> None:
    with pytest.raises(SettingError, match=f"{strategy} does not share entity rows, so that no row is known"):
        runs.run(tiny("evaluation.candidates=union", f"federation.strategy={strategy}"), out)
    assert not out.exists()


def test_one_client_that_holds_all_is_its_own_union(tiny: Make, out: Path) -> None:
    settings = ("evaluation.candidates=union", "federation.strategy=Central")
    utility = runs.run(tiny(*settings), out).summary["utility"]
    assert utility["filters"]["all"]["test"]["mrr"] == utility["test"]["mrr"]


def test_rows_out_of_an_encoder_have_no_union(tiny: Make, monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    monkeypatch.setattr(MODELS["TransE"], "has_encoder", True)
    with pytest.raises(SettingError, match="encodes its rows from a client's own graph"):
        runs.run(tiny("evaluation.candidates=union", "federation.strategy=FedE"), out)
