"""A step of matrix factorisation: the matrix is the client's whole network, and so is a sweep."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.client.models.factorization import DeepWalkMF, FactorOptions
from fedkge.client.models.model import Model
from fedkge.client.networks.factors import (
    Factors,
    Ridge,
    aligned,
    alternate,
    factors_of,
    gradients,
    objective,
)
from fedkge.client.networks.walk_matrix import adjacency_of, walk_matrix
from fedkge.client.training.optimizers import State
from fedkge.client.training.steps import ParameterStep
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.networks.network import edges_of
from fedkge.errors import SettingError
from fedkge.experiment import TrainingSettings
from fedkge.strategy import Term

__all__ = ["FactorStep"]


class FactorStep(ParameterStep):
    """Moves W and H by the solver of the model's options; the loss is the objective by vertex, before it.

    Args:
        matrix: what is factorised (n, n); left out: where walks on the graph go.
    """

    def __init__(
        self,
        model: Model,
        graph: KnowledgeGraph,
        settings: TrainingSettings,
        optimizer: State | None = None,
        term: Term | None = None,
        matrix: Any = None,
    ) -> None:
        super().__init__(model, settings, optimizer, term)
        assert isinstance(model, DeepWalkMF)  # whose stage asks for it
        self.options = model.options
        if term is not None and self.options.solver != "sgd":
            raise SettingError(
                f'model.options.solver = "{self.options.solver}": the strategy adds a term to the loss, '
                'which only gradients can follow; set it to "sgd"'
            )
        self.matrix = _walks(self.options, graph) if matrix is None else matrix
        self.ridge = Ridge(self.options.vertex_ridge, self.options.context_ridge)
        self.samples = graph.num_entities if self.options.solver == "sgd" else 1  # of an epoch

    def __call__(self, places: NDArray[np.int64]) -> float:
        """Move the parameters; return the objective before the move, over the number of vertices."""
        factors = self._factors()
        loss = objective(self.matrix, factors, self.ridge) / len(factors.vertices)
        if self.options.solver == "sgd":
            self._descend(factors, np.sort(places))
        elif self.options.solver == "als":
            self._put(alternate(self.matrix, factors.vertices, self.ridge))
        else:
            found = factors_of(self.matrix, factors.vertices.shape[1], self.ridge)
            self._put(aligned(found, factors.vertices))
        return loss

    def _factors(self) -> Factors:
        tables = self.model.tables
        return Factors(tables["entity"].astype(np.float64), tables["context"].astype(np.float64))

    def _put(self, factors: Factors) -> None:
        for name, rows in zip(("entity", "context"), factors, strict=True):
            self.model.tables[name][:] = rows

    def _descend(self, factors: Factors, rows: NDArray[np.int64]) -> None:
        self.optimizer.begin_step()
        slopes = gradients(self.matrix, factors, rows, self.ridge)
        every = np.arange(len(factors.contexts), dtype=np.int32)
        self.apply("entity", rows.astype(np.int32), slopes.vertices.astype(np.float32))
        self.apply("context", every, slopes.contexts.astype(np.float32))


def _walks(options: FactorOptions, graph: KnowledgeGraph) -> Any:
    adjacency = adjacency_of(edges_of(graph), graph.num_entities, options.directed)
    return walk_matrix(adjacency, options.window, options.logarithm)
