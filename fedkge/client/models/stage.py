"""A stage of local training: some parameters of a model, trained in a way of their own.

A model with one stage is trained as the experiment's [training] says. One with several has a view of itself
for each, a model that shares its memory: its own names, its own score, its own loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import TrainingSettings

if TYPE_CHECKING:
    from fedkge.client.models.model import Model

__all__ = ["Stage"]


def _nothing(rng: np.random.Generator) -> None:
    del rng


def _itself(graph: KnowledgeGraph, rng: np.random.Generator) -> KnowledgeGraph:
    del rng
    return graph


@dataclass(frozen=True)
class Stage:
    """What is trained, how, and what is done to the model before and after."""

    model: Model  # of the memory that it moves
    training: TrainingSettings
    before_scoring: bool = False  # trained whenever the server's rows are to be scored, and not in rounds
    begin: Callable[[np.random.Generator], None] = _nothing
    end: Callable[[np.random.Generator], None] = _nothing
    seen: Callable[[KnowledgeGraph, np.random.Generator], KnowledgeGraph] = _itself  # what it is trained on

    @property
    def name(self) -> str:
        return type(self.model).__name__
