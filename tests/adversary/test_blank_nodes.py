"""Finding 14 of the review: blank nodes of different parties became one entity."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedkge.attacks.recorded_run import RecordedRun
from fedkge.datasets import Split, load, partition
from fedkge.datasets.labels import is_local
from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs
from fedkge.simulations.runs.layout import pooled
from tests.simulations.conftest import PLAIN, TINY

PATIENTS, DRUGS = 12, 6


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hospitals, each with twelve anonymous patients and the same six drugs."""
    folder = tmp_path_factory.mktemp("hospitals")
    for number in range(3):
        client = folder / f"client-{number}"
        client.mkdir()
        for split, drugs in (("train", (0, 1, 2)), ("valid", (3,)), ("test", (4,))):
            lines = [
                f"_:p{patient} <http://h/takes> <http://h/drug{(patient + drug) % DRUGS}> ."
                for patient in range(PATIENTS)
                for drug in drugs
            ]
            (client / f"{split}.nt").write_text("\n".join(lines) + "\n")
    return folder


def test_patients_of_three_hospitals_are_not_twelve(hospitals: Path, tmp_path: Path) -> None:
    split = load(hospitals)
    assert isinstance(split, Split)
    patients = [label for label in split.entity_labels if is_local(label)]
    assert len(patients) == 3 * 3 * PATIENTS  # a blank node belongs to its file
    everybody = pooled(split).clients[0]
    assert everybody.num_entities == len(patients) + DRUGS
    assert len(everybody.train) == 3 * PATIENTS * 3


@pytest.mark.parametrize("changes", [PLAIN, [], ["privacy.union=oprf", "privacy.query_budget=64"]])
def test_blank_nodes_stay_at_home(changes: list[str], hospitals: Path, tmp_path: Path) -> None:
    settings = [f"data.dataset={hospitals}", "federation.strategy=FedE", "adversary.record=last"]
    runs.run(Experiment().override([*TINY, *settings, *changes]), tmp_path / "run")
    recorded = RecordedRun(tmp_path / "run")
    union = recorded.recording.union("entity")
    if union is not None:  # in the open
        assert sorted(union.names) == [f"http://h/drug{number}" for number in range(DRUGS)]
    shared = recorded.recording.tables(recorded.recording.rounds[-1])["entity"]
    assert len(shared.ids) == DRUGS
    for client in range(3):
        labels, rows = recorded.labels(client, "entity"), recorded.state(client)["rows.entity"]
        np.testing.assert_array_equal(rows < 0, [is_local(label) for label in labels])
        assert all(label.startswith(f"_:client-{client}.") for label in labels if is_local(label))
    assert len(recorded.truth.entity_ids) == 3 * 3 * PATIENTS + DRUGS


def test_a_blank_node_that_a_partition_divides_is_two_things(hospitals: Path) -> None:
    whole = load(hospitals / "client-0")
    assert not isinstance(whole, Split)
    split = partition(whole, "random", clients=2, seed=0)
    first, second = ({label for label in graph.entity_labels if is_local(label)} for graph in split.clients)
    assert first
    assert second
    assert not first & second
    assert {"http://h/drug0", "http://h/drug1"} <= set(split.clients[0].entity_labels)


def test_weights_of_triples_count_only_what_is_shared(hospitals: Path, tmp_path: Path) -> None:
    settings = [f"data.dataset={hospitals}", "federation.strategy=FedE", "federation.weighting=triples"]
    summary = runs.run(Experiment().override([*TINY, *PLAIN, *settings]), tmp_path / "run").summary
    assert summary["utility"]["test"]["count"] == 3 * PATIENTS
