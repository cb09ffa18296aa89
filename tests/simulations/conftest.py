"""A small federation that runs in a second, and one Ray for all tests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedkge.experiment import Experiment
from fedkge.simulations.runs import engines
from fedkge.simulations.runs.run import RunResult, run

TINY = [
    "data.clients=3",
    "model.dim=8",
    "training.negatives=4",
    "training.batch_size=256",
    "training.learning_rate=0.01",
    "federation.rounds=4",
    "federation.evaluate_every=2",
    "engine.name=inline",
]
PLAIN = ["privacy.union=plain", "privacy.secure_aggregation=false"]


@pytest.fixture
def tiny() -> Callable[..., Experiment]:
    """A small experiment in the clear, with changes such as 'federation.strategy=FedE'."""
    return lambda *changes: Experiment().override([*TINY, *PLAIN, *changes])


@pytest.fixture
def secret() -> Callable[..., Experiment]:
    """The same under private set union and secure aggregation."""
    return lambda *changes: Experiment().override([*TINY, *changes])


@pytest.fixture(scope="session")
def ray_running() -> Iterator[Any]:
    """A Ray of two cores and little memory, shut down at the end."""
    import ray

    ray.init(
        num_cpus=4,
        object_store_memory=120 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    yield ray
    ray.shutdown()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[engines.Envelope, bytes | None]]:
    """Everything that a grid carries, both ways."""
    seen: list[tuple[engines.Envelope, bytes | None]] = []
    deliver = engines.InlineGrid.deliver

    def recorded(self: Any, envelopes: list[engines.Envelope], timeout: float | None) -> Iterator[Any]:
        by_node = {envelope.node: envelope for envelope in envelopes}
        for node, answer in deliver(self, envelopes, timeout):
            seen.append((by_node[node], answer[0]))
            yield node, answer

    monkeypatch.setattr(engines.InlineGrid, "deliver", recorded)
    return seen


SMALLEST = "data.dataset=synthetic:entities=40,relations=4,triples=160"


@pytest.fixture(scope="session")
def smallest() -> Experiment:
    """Forty entities, two rounds: for tests of what surrounds a run."""
    return Experiment().override([*TINY, *PLAIN, SMALLEST, "federation.rounds=2"])


@pytest.fixture(scope="session")
def finished(smallest: Experiment, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run that ended; look, and change nothing."""
    return run(smallest, tmp_path_factory.mktemp("finished"))
