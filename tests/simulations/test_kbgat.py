"""KB-GAT in a federation: what travels, what stays, and what is trained before each ranking."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedkge.client.training.evaluate import evaluate
from fedkge.experiment import EvaluationSettings, Experiment
from fedkge.simulations.runs.run import resume, run
from fedkge.simulations.trained.client_model import load_trained
from tests.simulations.conftest import PLAIN, SMALLEST, TINY
from tests.simulations.mishaps import Crash, crash_in

SECURE = ["privacy.min_holders=1", "privacy.rows_from_seed=true"]  # shared and started as in the open
STAGES = [
    "model.name=KBGAT",
    "training.local_epochs=3",
    "training.batch_size=1000",
    "training.loss=margin-ranking",
    "training.corrupt=both",
    "model.options.decoder_epochs=2",
    "model.options.filters=4",
]


def experiment(strategy: str, *changes: str) -> Experiment:
    return Experiment().override([*TINY, SMALLEST, f"federation.strategy={strategy}", *STAGES, *changes])


def rows(folder: Path, client: int) -> dict[str, np.ndarray]:
    return load_file(folder / "embeddings" / f"client-{client}.safetensors")


@pytest.mark.parametrize(("strategy", "shared"), [("FedE", "entity"), ("FedR", "relation")])
def test_encoded_rows_travel_alike_in_open_and_secure_sums(
    strategy: str, shared: str, tmp_path: Path
) -> None:
    opened = run(experiment(strategy, *PLAIN), tmp_path / "open")
    run(experiment(strategy, *SECURE), tmp_path / "secure")
    for client in range(3):
        clear, masked = rows(opened.folder, client), rows(tmp_path / "secure", client)
        assert set(clear) == set(masked) >= {"entity", "scored_entity", "messages", "filters"}
        np.testing.assert_allclose(clear[shared], masked[shared], atol=1e-4)
    held = [load_trained(opened.folder, client) for client in range(3)]
    labels = [getattr(each.graph, f"{shared}_labels") for each in held]
    label = sorted(set(labels[0]) & set(labels[1]) & set(labels[2]))[0]
    means = [each.model.tables[shared][names.index(label)] for each, names in zip(held, labels, strict=True)]
    np.testing.assert_allclose(means[0], means[1], atol=1e-6)
    np.testing.assert_allclose(means[0], means[2], atol=1e-6)
    other = {"entity": "relation", "relation": "entity"}[shared]
    assert not np.allclose(held[0].model.tables[other][0], held[1].model.tables[other][0], atol=1e-2)


def test_a_run_leaves_the_decoder_it_was_tested_with_and_goes_on_after_a_crash(tmp_path: Path) -> None:
    whole = run(experiment("FedE", *PLAIN), tmp_path / "whole")
    for client in range(3):
        trained = load_trained(whole.folder, client)
        scores = whole.summary["utility"]["per_client"][str(client)]["test"]
        measured = evaluate(trained.model, trained.graph, "test", EvaluationSettings())
        assert measured.metrics["mrr"] == pytest.approx(scores["mrr"]["value"])
    with pytest.raises(Crash):
        run(experiment("FedE", *PLAIN), tmp_path / "cut", crash_in(3))
    assert resume(tmp_path / "cut").summary["result_hash"] == whole.summary["result_hash"]
