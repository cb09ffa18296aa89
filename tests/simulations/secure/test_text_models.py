"""Models of descriptions in a federation: texts stay with their client, and secure sums are the open ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    with pytest.raises(SettingError, match=r"to share 'words' of DKRL: each client numbers those of its own"):
        run(experiment.override(['federation.share=["words"]']), tmp_path / "named")


def described(folder: Path, *changes: str) -> Any:
    """An experiment over clients with other texts, and a public file of texts."""
    texts, labels = folder / "texts.tsv", load_graph("UMLS").entity_labels
    texts.write_text("".join(f"{label}\t{label.replace('_', ' ')}\n" for label in labels), "utf-8")
    return Experiment.from_toml(EXPERIMENT).override(
        [f'data.features=["{texts}"]', "data.partition=relation", "privacy.min_holders=1", *changes]
    )


def test_what_reads_codes_of_own_texts_is_not_averaged_and_the_rest_is(tmp_path: Path) -> None:
    experiment = described(
        tmp_path, "model.name=Fusion", "model.options.text=aec:1:hash:8", "federation.strategy=FedAvg"
    ).override(["model.options.hidden=3", "model.options.weights=gate"])
    folder = run(experiment, tmp_path / "own").folder
    first, second = (load_trained(folder, client).model.weights for client in (0, 1))
    for name in ("projection", "hidden", "hidden_out"):
        assert not np.allclose(first[name], second[name], atol=1e-3), name
    np.testing.assert_allclose(first["gate"], second["gate"], atol=1e-6)
    public = experiment.override([f"model.options.text=aec:1:hash:8@{tmp_path / 'texts.tsv'}"])
    folder = run(public, tmp_path / "public").folder
    first, second = (load_trained(folder, client).model.weights for client in (0, 1))
    for name in ("projection", "hidden", "hidden_out"):
        np.testing.assert_allclose(first[name], second[name], atol=1e-6)


@pytest.mark.parametrize("text", ["aec:1:hash:8", "hash:8+aec:1:hash:8"])
@pytest.mark.parametrize(
    "changes",
    [
        ["model.name=BLP", "federation.strategy=FedAvg"],
        ["model.name=BLP", "federation.strategy=FedR", 'federation.share=["projection"]'],
        ["model.name=Fusion", "federation.strategy=FedE", 'federation.share=["projection"]'],
        [
            "model.name=BLP",
            "model.options.hidden=3",
            "federation.strategy=FedR",
            'federation.share=["hidden"]',
        ],
    ],
)
def test_to_share_what_reads_codes_of_own_texts_is_refused_with_the_remedy(
    changes: list[str], text: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=r"fits to its own texts.*fit it to public ones, as aec:NAME@FILE"):
        run(described(tmp_path, f'model.options.text="{text}"', *changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_given_vectors_are_the_same_everywhere_whatever_would_read_texts(tmp_path: Path) -> None:
    labels = np.array(load_graph("UMLS").entity_labels)
    np.savez(tmp_path / "v.npz", labels=labels, rows=np.random.default_rng(0).normal(size=(len(labels), 4)))
    changes = ["model.name=BLP", "model.options.text=aec:1:hash:8", "federation.strategy=FedAvg"]
    experiment = described(tmp_path, *changes, f'data.features=["{tmp_path / "v.npz"}"]')
    folder = run(experiment, tmp_path / "run").folder
    first, second = (load_trained(folder, client).model.weights for client in (0, 1))
    np.testing.assert_allclose(first["projection"], second["projection"], atol=1e-6)


def test_dropout_under_private_training_is_refused_before_anything_starts(tmp_path: Path) -> None:
    changes = ["model.name=BLP", "federation.strategy=FedR", "data.confidential=0.5", "privacy.dp.sigma=1.0"]
    layer = ["privacy.dp.mode=sound", "model.options.hidden=3", "model.options.hidden_dropout=0.5"]
    with pytest.raises(SettingError, match=r"^model\.options\.hidden_dropout: not yet under differential"):
        run(described(tmp_path, *changes, *layer), tmp_path / "run")
    assert not (tmp_path / "run").exists()
