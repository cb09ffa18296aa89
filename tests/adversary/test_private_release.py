"""A server that starts runs, repeats itself and restarts clients, to get more than was paid for.

Everything holds of a table of entities, and of a model that reads texts.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fedkge.client.app import leave, resident
from fedkge.client.models import Model, build_model
from fedkge.client.participant import Participant
from fedkge.client.privacy import PrivacyAccount, train_privately
from fedkge.client.training.evaluate import evaluate
from fedkge.datasets import mark, unrestricted, write_graph
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, MessageError, RefusedError
from fedkge.exchange import Download, Table, Upload
from fedkge.experiment import DPSettings, Experiment, ModelSettings, TrainingSettings
from tests.client.conftest import random_graph

SETTINGS = TrainingSettings(batch_size=32, negatives=2, local_epochs=1, learning_rate=0.05, optimizer="SGD")
TEXTS = {"text": "hash:8"}
MODELS = {  # by name: its settings
    "TransE": ModelSettings(dim=4),
    "Fusion": ModelSettings(name="Fusion", dim=4, options=TEXTS),
    "BLP": ModelSettings(name="BLP", dim=4, options=TEXTS),
}
_run_ids = count(20_000)


@pytest.fixture(params=sorted(MODELS), autouse=True)
def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModelSettings:
    """The model of a test; BLP has no rows of entities, so a server has none to send."""
    settings = MODELS[request.param]
    names = set(request.fixturenames)
    if request.param == "BLP" and ("node" in names or request.node.originalname in NEED_ENTITY_ROWS):
        pytest.skip("no entity rows travel")
    monkeypatch.setitem(globals(), "CHOSEN", settings)
    return settings


CHOSEN = MODELS["TransE"]
NEED_ENTITY_ROWS = {
    "test_another_run_goes_on_with_what_is_left_of_the_same_budget",
    "test_a_run_may_not_solve_for_less_noise_than_the_operator_asks",
}


def with_tests(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The last triples of a graph are its test and validation triples."""
    return replace(graph, train=graph.train[:-60], test=graph.train[-60:-20], valid=graph.train[-20:])


GRAPH = mark(with_tests(replace(random_graph(1, entities=40, triples=400), name="marked")), "0.5", 0)


def opened(folder: Path, rounds: int = 10, secret: bytes = bytes(32), **dp: Any) -> PrivacyAccount:
    path = folder / "ledger.json"
    return PrivacyAccount(
        path,
        0,
        GRAPH,
        SETTINGS,
        DPSettings(**{"mode": "sound", "clip": 0.03, **dp}),
        rounds,
        secret,
        simulated=False,
    )


def fresh() -> Model:
    return build_model(CHOSEN, unrestricted(GRAPH), 0)


def trained(account: PrivacyAccount, round: int = 1, seed: int = 0) -> np.ndarray:
    model = fresh()
    account.train(model, np.random.default_rng(seed), SETTINGS, round, None)
    return np.concatenate([array.ravel() for array in model.parameters.values()]).astype(np.float64)


def planned_steps(account: PrivacyAccount) -> int:
    """Confidential steps of one round."""
    return sum(event.steps for event in account.cost(1, {}))


class Node:
    """One client as its operator deploys it, without keys, and a server that asks it for rounds."""

    def __init__(self, folder: Path, policy: str = "", graph: KnowledgeGraph = GRAPH) -> None:
        self.folder = folder
        write_graph(folder / "data", graph)
        (folder / "policy").mkdir(parents=True)
        (folder / "policy" / "policy.toml").write_text(f"own_scores = true\n{policy}")
        self.run_ids: list[int] = []

    def begin(self, run: str, *changes: str) -> Participant:
        """What the client is in a run that the server calls so."""
        asked = Experiment().override(
            [
                "privacy.secure_aggregation=false",
                "privacy.union=plain",
                "federation.strategy=FedE",
                "federation.rounds=20",
                "model.dim=4",
                f"model.name={CHOSEN.name}",
                *(f"model.options.{key}={value}" for key, value in CHOSEN.options.items()),
                "training.batch_size=32",
                "training.optimizer=SGD",
                "privacy.dp.mode=sound",
                "privacy.dp.sigma=1.0",
                *changes,
            ]
        )
        config = {"partition-id": 0, "num-partitions": 1}
        config |= {name: str(self.folder / name) for name in ("data", "state", "policy")}  # type: ignore[dict-item]
        self.run_ids.append(next(_run_ids))
        run_config = {"experiment": asked.to_json(), "run": run}
        context = Context(self.run_ids[-1], 1, config, RecordDict(), run_config)  # type: ignore[arg-type]
        participant, _ = resident(context)
        return participant

    def close(self) -> None:
        for run_id in self.run_ids:
            leave(run_id)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = Node(tmp_path / "node")
    yield found
    found.close()


def joined(participant: Participant) -> Upload:
    strategy = participant.strategy
    said = {"strategy": "FedE", "shared": [*strategy.shared], "verbs": strategy.verbs()}
    upload = participant.join(Download(0, metadata=said))
    for name, labels in upload.metadata["labels"].items():
        ids = np.random.default_rng(0).permutation(len(labels)).astype(np.int32)
        blank = np.empty((len(ids), 0), dtype=np.float32)
        participant.assign(Download(0, {name: Table(ids, blank)}))
    return upload


def asked(participant: Participant, round: int, **tables: Table) -> Upload:
    return participant.train(Download(round, tables, {"keep": [], "settled": 0}))


def broadcast(participant: Participant, value: float) -> Table:
    rows = np.zeros_like(participant.reference["entity"])
    rows[3, 1] = value
    return Table(np.arange(len(rows), dtype=np.int32), rows)


def steps_of(participant: Participant) -> int:
    assert participant.account is not None
    return participant.account.ledger.steps


@pytest.mark.parametrize("value", [np.nan, np.inf, 1.1e6, -3e38])
def test_rows_that_no_training_makes_are_refused_in_the_open_too(node: Node, value: float) -> None:
    """Finding 1: finite rows of ±3e38 were taken, and made scores that are no numbers."""
    participant = node.begin("one")
    joined(participant)
    with pytest.raises(MessageError, match="are not numbers up to 1e\\+06 of this table's width"):
        asked(participant, 1, entity=broadcast(participant, value))
    assert steps_of(participant) == 0
    asked(participant, 1, entity=broadcast(participant, 9e5))
    assert steps_of(participant) > 0


def test_another_run_goes_on_with_what_is_left_of_the_same_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 2: every run had a new ledger, so that whoever named a new run had a new budget.

    Nor has one who trains on a confidential triple more than the run before.
    """
    probe = Node(tmp_path / "probe")
    participant = probe.begin("any")
    joined(participant)
    asked(participant, 1)
    cost, steps = participant.account.spent(), steps_of(participant)  # type: ignore[union-attr]
    probe.close()
    node = Node(tmp_path / "node", f"epsilon = {cost * 1.05}")
    spared: list[bool] = []

    def noted(*args: Any, spare: bool, **options: Any) -> Any:
        spared.append(spare)
        return train_privately(*args, spare=spare, **options)

    monkeypatch.setattr("fedkge.client.privacy.account.train_privately", noted)
    for number, run in enumerate(("one", "two", "three")):
        write_graph(node.folder / "data", replace(GRAPH, train=np.roll(GRAPH.train, number, axis=0)))
        participant = node.begin(run, f"privacy.dp.budget={cost * 1.05}")
        joined(participant)
        for round in (1, 2):
            asked(participant, round)
        assert steps_of(participant) == steps  # of the first round of the first run
        assert participant.account.spent() <= cost * 1.05  # type: ignore[union-attr]
    assert spared == [False, True, True, True, True, True]
    node.close()


def test_a_run_may_not_solve_for_less_noise_than_the_operator_asks(tmp_path: Path) -> None:
    """Finding 2: with a target in place of σ, the policy's least noise was not looked at."""
    node = Node(tmp_path / "node", "sigma = 2.0")
    with pytest.raises(RefusedError, match=r"`sigma = 2\.0`, and the run has σ = "):
        node.begin("one", "privacy.dp.target_epsilon=50.0")
    node.close()


def test_a_server_reads_no_confidential_triple_from_test_scores(node: Node) -> None:
    """Finding 4: scores without noise, over confidential triples and filtered by them, told 60 of 60."""
    participant = node.begin("one")
    joined(participant)
    asked(participant, 1)
    participant.evaluate(Download(1, {"entity": broadcast(participant, 0.0)}))
    told = participant.test(Download(1, metadata={"best": 1})).metadata
    public = unrestricted(GRAPH)
    for split in ("test", "valid"):
        expected = evaluate(participant.model, public, split, participant.experiment.evaluation)
        assert told[split]["count"] == len(public[split]) < len(GRAPH[split])
        assert told[split]["sums"]["mrr"] == pytest.approx(
            expected.metrics["mrr"] * len(public[split]), rel=1e-9
        )


def test_weights_by_triples_count_no_confidential_ones(node: Node) -> None:
    """A run that weighs rows by their triples asked every client for counts without noise."""
    participant = node.begin("one", "federation.weighting=triples")
    weights = joined(participant).tables["entity"].weights
    assert weights is not None
    public = unrestricted(GRAPH).train
    counts = np.bincount(public[:, [0, 2]].ravel(), minlength=GRAPH.num_entities)
    assert sorted(weights) == sorted(np.maximum(counts, 1))


def test_two_processes_on_one_ledger_both_pay(tmp_path: Path) -> None:
    """Finding 5: six releases left one charge, and no budget held."""
    first, second = opened(tmp_path), opened(tmp_path)
    for round in (1, 2, 3):
        trained(first, round)
        trained(second, round, seed=1)
    assert opened(tmp_path).ledger.steps == 6 * planned_steps(first)
    budget = first.spent() * 0.6
    accounts = [opened(tmp_path / "two", budget=budget) for _ in range(2)]
    for round in range(1, 7):
        for seed, account in enumerate(accounts):
            trained(account, round, seed)
    assert opened(tmp_path / "two").spent() <= budget


@pytest.mark.parametrize("noise", ["lazy", "dense"])
def test_a_restart_with_another_seed_does_not_cancel_noise(tmp_path: Path, noise: str) -> None:
    """Finding 6: the digest of a release had no seed, so that other batches met the very same noise."""
    account = opened(tmp_path, sigma=50.0, noise=noise)
    first, steps = trained(account, seed=0), account.ledger.steps
    second = trained(opened(tmp_path, sigma=50.0, noise=noise), seed=1)
    assert opened(tmp_path).ledger.steps == 2 * steps
    deviation = SETTINGS.learning_rate * 50.0 * 0.03 / 32 * np.sqrt(steps)
    assert np.std(second - first) > 1.2 * deviation  # √2 of it, and not what batches differ by


def test_a_target_is_a_budget(tmp_path: Path) -> None:
    """Finding 7: σ was solved for two rounds, and twelve were trained: ε was 2.65 of 1."""
    account = opened(tmp_path, rounds=2, target_epsilon=1.0)
    for round in range(1, 13):
        trained(account, round)
    assert account.ledger.steps == 2 * planned_steps(account)  # those that were planned
    assert account.spent() <= 1.0
    tighter = opened(tmp_path / "tighter", rounds=2, target_epsilon=1.0, budget=0.5)
    assert tighter.report()["budget"] == 0.5


def test_labels_leave_in_no_order_that_triples_gave_them(node: Node) -> None:
    """Finding 9: of consecutive labels, 24 % were joined by a triple."""
    participant = node.begin("one")
    labels = joined(participant).metadata["labels"]
    assert [*labels["entity"]] != [*GRAPH.entity_labels]
    assert all([*each] == sorted(each) for each in labels.values())
    ids = asked(participant, 1).tables["entity"].ids
    assert len(ids) == GRAPH.num_entities
    assert (np.diff(ids) > 0).all()


def test_what_is_assigned_to_sorted_labels_reaches_their_own_rows(node: Node) -> None:
    participant = node.begin("one")
    labels = joined(participant).metadata["labels"]["entity"]
    ids = np.random.default_rng(0).permutation(len(labels))
    own = participant.holdings["entity"].rows
    assert {label: int(row) for label, row in zip(labels, ids, strict=True)} == {
        label: int(row) for label, row in zip(participant.graph.entity_labels, own, strict=True)
    }


def test_a_client_without_its_secret_gives_the_same_release_again(tmp_path: Path) -> None:
    """Finding 10: after dp.secret was lost, five releases of other noise cost as much as one."""
    first = trained(opened(tmp_path, secret=bytes(32)))
    steps = opened(tmp_path).ledger.steps
    for lost in range(1, 5):
        np.testing.assert_array_equal(trained(opened(tmp_path, secret=bytes([lost]) * 32)), first)
    assert opened(tmp_path).ledger.steps == steps


def test_two_clients_with_the_same_data_draw_different_noise(tmp_path: Path) -> None:
    """Keys are the operating system's: no secret that two have in common makes noise that cancels."""
    releases = [trained(opened(tmp_path / name, sigma=50.0)) for name in ("one", "other")]
    assert np.std(releases[0] - releases[1]) > 0


def test_a_ledger_that_was_put_back_or_taken_away_stops_training(tmp_path: Path) -> None:
    account = opened(tmp_path)
    trained(account, 1)
    path = tmp_path / "ledger.json"
    shutil.copy(path, tmp_path / "copy")
    trained(account, 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    shutil.copy(tmp_path / "copy", path)
    with pytest.raises(DataError, match="an old copy, or none, of a privacy ledger: 2 entries where 4"):
        opened(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match="must not be trained on again: restore the file"):
        opened(tmp_path)


def test_a_charge_is_on_the_disk_before_its_release_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 10: a power cut after the answer must not undo the charge, nor the file's name."""
    synced: list[str] = []
    real = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    account = opened(tmp_path)
    model = fresh()
    model.tables["relation"][:] = np.nan  # it fails, after it was charged
    with pytest.raises(Exception, match=r"finite|loss"):
        account.train(model, np.random.default_rng(0), SETTINGS, 1, None)
    assert str(tmp_path) in synced
    assert any("ledger.json" in place for place in synced)
