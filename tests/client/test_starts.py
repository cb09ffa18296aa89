"""Negatives by shared number, as in published FedE code, and a common start: if asked, and not else."""

from __future__ import annotations

import numpy as np
import pytest

from fedkge import Experiment, run
from fedkge.client.holdings import Holding
from fedkge.client.participant import Participant
from fedkge.client.state import StateFiles
from fedkge.errors import InputError, RefusedError
from tests.client.conftest import random_graph

GRAPH = random_graph(0, 12, 3, 40)
SMALL = [
    "data.dataset=Nations",
    "data.clients=3",
    "data.partition=random",
    "model.name=TransE",
    "model.dim=8",
    "training.negatives=8",
    "federation.strategy=FedE",
    "federation.rounds=2",
    "federation.evaluate_every=1",
    "privacy.union=plain",
    "privacy.secure_aggregation=false",
    "engine.name=inline",
]


def client_of(folder, client, start, simulated=True):
    experiment = Experiment().override([*SMALL, f"federation.start={start}"])
    return Participant(client, GRAPH, experiment, StateFiles(folder, durable=False), True, simulated)


def test_first_numbers_are_own_rows_or_none():
    holding = Holding.of_all(np.array([7, 2, -1, 0, 4]))  # the shared number of each own row
    assert holding.first(5).tolist() == [3, -1, 1, -1, 4]


@pytest.mark.parametrize(("start", "alike"), [("own", False), ("alike", True)])
def test_rows_that_are_not_shared_start_from_each_clients_secret_unless_asked(tmp_path, start, alike):
    first, second = (client_of(tmp_path / str(client), client, start).model.tables for client in (0, 1))
    assert np.array_equal(first["relation"], second["relation"]) is alike
    assert np.array_equal(first["entity"], second["entity"])  # FedE shares them


def test_a_deployed_client_refuses_a_common_start(tmp_path):
    with pytest.raises(RefusedError, match=r'start = "alike".*its own'):
        client_of(tmp_path, 0, "alike", simulated=False)


def test_negatives_by_shared_number_train_another_model_and_need_shared_entities(tmp_path):
    published = [*SMALL, "training.negatives_from=first"]
    own, first = (
        run(Experiment().override(settings), tmp_path / name).summary["result_hash"]
        for name, settings in (("own", SMALL), ("first", published))
    )
    assert own != first
    with pytest.raises(InputError, match="FedR shares none"):
        run(Experiment().override([*published, "federation.strategy=FedR"]), tmp_path / "fedr")
