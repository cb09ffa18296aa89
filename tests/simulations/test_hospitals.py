"""The example of hospitals: experiments/eicu-hospitals.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedkge.experiment import Experiment
from fedkge.simulations.runs.layout import divide

EXAMPLE = Path(__file__).parents[2] / "experiments" / "eicu-hospitals.toml"
MEDICAL = {"hasAllergyOf", "hasDrugOf", "hasTreatmentOf", "isDiagnosedAs", "isTakenCareBy"}


@pytest.fixture(scope="module")
def example(data_folder: Path) -> Experiment:
    if not (data_folder / "medical" / "eicu-demo").is_dir():
        pytest.skip("FEDKGE_DATA has no folder 'medical' with the demo of eICU")
    return Experiment.load(EXAMPLE)


def test_each_client_is_a_hospital_with_its_own_patients(example: Experiment) -> None:
    split = divide(example)
    assert split.num_clients == example.data.clients
    patients: set[str] = set()
    for client in split.clients:
        stays = client.relation_labels.index("https://example.org/eicu/staysAt")
        rows = client.train[client.train[:, 1] == stays]
        assert len(set(rows[:, 2].tolist())) == 1
        own = {client.entity_labels[row] for row in rows[:, 0]}
        assert own == {label for label in client.entity_labels if "/Patient-" in label}
        assert not own & patients
        patients |= own
        assert client.unseen("test") == 0
        marked = {client.relation_labels[r] for r in client.train[client.marks("train"), 1]}
        free = {client.relation_labels[r] for r in client.train[~client.marks("train"), 1]}
        assert {label.rpartition("/")[2] for label in marked} <= MEDICAL
        assert not {label.rpartition("/")[2] for label in free} & MEDICAL


def test_the_example_protects_and_attacks(example: Experiment) -> None:
    assert example.privacy.union == "private"
    assert example.privacy.secure_aggregation
    assert example.privacy.dp is not None
    assert example.privacy.dp.mode == "hubs"
    assert example.adversary.attacks
