"""What a client releases of its network, once, and how a model is trained from nothing else.

Whatever is made of a release costs no more than the release did.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedkge.client.models.model import Model
from fedkge.client.networks.factors import Factors, aligned
from fedkge.client.training.factor_step import FactorStep
from fedkge.client.training.loop import TrainResult, Work, train, work_through
from fedkge.client.training.optimizers import State
from fedkge.client.training.threads import one_thread
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.networks.network import Edges
from fedkge.errors import SettingError
from fedkge.experiment import TrainingSettings
from fedkge.strategy import Term

__all__ = ["PrivateMatrix", "PrivateNetwork", "PrivateRows", "Released", "Rows"]

Rows = NDArray[np.float64]  # (n, k)


class Released(Protocol):
    """What was released."""

    def train(
        self,
        model: Model,
        vertices: KnowledgeGraph,
        rng: np.random.Generator,
        settings: TrainingSettings,
        epochs: int,
        optimizer: State | None,
        term: Term | None,
    ) -> TrainResult:
        """Train a model in place.

        Args:
            vertices: the network without its edges.
            epochs: how many.
            optimizer: the state of an earlier call, to go on from.
            term: of the strategy.
        """


@dataclass(frozen=True)
class PrivateNetwork:
    """Another network of the same vertices, for any model of networks."""

    edges: Edges  # (m, 2)

    def train(
        self,
        model: Model,
        vertices: KnowledgeGraph,
        rng: np.random.Generator,
        settings: TrainingSettings,
        epochs: int,
        optimizer: State | None,
        term: Term | None,
    ) -> TrainResult:
        if len(self.edges) == 0:
            return _untrained(epochs, optimizer)
        triples = np.zeros((len(self.edges), 3), dtype=np.int32)
        triples[:, [0, 2]] = self.edges
        network = replace(vertices, train=triples)
        return train(model, network, rng, settings, epochs=epochs, optimizer=optimizer, term=term)


@dataclass(frozen=True)
class PrivateMatrix:
    """What `DeepWalkMF` factorises in place of M."""

    matrix: Any  # (n, n)

    def train(
        self,
        model: Model,
        vertices: KnowledgeGraph,
        rng: np.random.Generator,
        settings: TrainingSettings,
        epochs: int,
        optimizer: State | None,
        term: Term | None,
    ) -> TrainResult:
        with one_thread():
            step = FactorStep(model, vertices, settings, optimizer, term, self.matrix)
            work = Work(step.samples, step, step.take_rate, step.state)
            return work_through(work, 0, rng, settings, epochs)


@dataclass(frozen=True)
class PrivateRows:
    """Finished rows of vertices, which are turned towards the rows of the round and not trained on."""

    rows: Rows

    def train(
        self,
        model: Model,
        vertices: KnowledgeGraph,
        rng: np.random.Generator,
        settings: TrainingSettings,
        epochs: int,
        optimizer: State | None,
        term: Term | None,
    ) -> TrainResult:
        del vertices, rng, settings
        if term is not None:
            raise SettingError(
                "privacy.dp.mode: the strategy adds a term to the loss, and rows that are released finished "
                "have none; take another strategy, such as FedE, or another mode"
            )
        rows = model.tables["entity"]
        rows[:] = aligned(Factors(self.rows, self.rows), rows.astype(np.float64)).vertices
        return _untrained(epochs, optimizer)


def _untrained(epochs: int, optimizer: State | None) -> TrainResult:
    return TrainResult((nan,) * epochs, 0, 0, 0.0, optimizer or {})
