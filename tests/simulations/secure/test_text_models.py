"""Models of descriptions in a federation: texts stay with their client, and secure sums are the open ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedkge.client.models import build_model
from fedkge.datasets import load_graph
from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.simulations.runs.run import run
from fedkge.simulations.trained.client_model import load_trained

EXPERIMENT = """
name = "described"
[data]
dataset = "UMLS"
clients = 3
partition = "random"
[model]
dim = 8
margin = 2.0
[model.options]
text = "hash:16"
[training]
local_epochs = 1
negatives = 4
learning_rate = 0.01
[federation]
rounds = 2
evaluate_every = 2
[engine]
name = "inline"
"""

# Two rounds turn sums, fixed-point or float64, into float32 numbers below 1: each may err by half a unit, up
# to 2⁻²⁵, either way; as much again comes from the training between them.
ROUNDING = 8 * 2.0**-24


@pytest.mark.parametrize(("model", "strategy"), [("Fusion", "FedE"), ("DKRL-Mixed", "FedE"), ("BLP", "FedR")])
def test_secure_sums_of_described_models_are_the_open_ones(model: str, strategy: str, tmp_path: Path) -> None:
    texts = tmp_path / "texts.tsv"
    labels = load_graph("UMLS").entity_labels
    texts.write_text("".join(f"{label}\t{label.replace('_', ' ')} secretword\n" for label in labels), "utf-8")
    changes = [f"model.name={model}", f"federation.strategy={strategy}", f'data.features=["{texts}"]']
    rows = {}
    for secure, union in (("false", "plain"), ("true", "private")):
        experiment = Experiment.from_toml(EXPERIMENT).override(
            [
                *changes,
                f"privacy.secure_aggregation={secure}",
                "privacy.rows_from_seed=true",
                f"privacy.union={union}",
                "privacy.min_holders=1",
            ]
        )
        folder = run(experiment, tmp_path / secure).folder
        trained = [load_trained(folder, client) for client in range(3)]
        rows[secure] = [client.model.parameters for client in trained]
        assert all("secretword" in client.graph.texts["entity"][0] for client in trained)
        untrained = build_model(experiment.model, trained[0].graph, 0).parameters
        assert any(not np.array_equal(untrained[name], array) for name, array in rows[secure][0].items())
    for open_rows, secure_rows in zip(rows["false"], rows["true"], strict=True):
        for name, array in open_rows.items():
            np.testing.assert_allclose(secure_rows[name], array, rtol=0, atol=ROUNDING, err_msg=name)


def test_words_of_own_texts_are_not_averaged_and_what_reads_them_is(tmp_path: Path) -> None:
    texts = tmp_path / "texts.tsv"
    labels = load_graph("UMLS").entity_labels
    texts.write_text("".join(f"{label}\t{label.replace('_', ' ')}\n" for label in labels), "utf-8")
    experiment = Experiment.from_toml(EXPERIMENT).override(
        [
            "model.name=DKRL",
            "federation.strategy=FedAvg",
            f'data.features=["{texts}"]',
            "data.partition=relation",  # clients with other words
            "privacy.min_holders=1",
        ]
    )
    folder = run(experiment, tmp_path / "run").folder
    first, second, third = (load_trained(folder, client).model for client in range(3))
    assert len({model.weights["words"].shape for model in (first, second, third)}) > 1
    assert first.weights["words"].any()
    np.testing.assert_allclose(first.weights["near"], second.weights["near"], atol=1e-6)
    with pytest.raises(SettingError, match="shares 'words', which DKRL does not have to share"):
        run(experiment.override(['federation.share=["words"]']), tmp_path / "named")
