"""Datasets that come with their clients."""

from __future__ import annotations

from dataclasses import dataclass

from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.partition.partitioner import Partitioner
from fedkge.datasets.split import Split
from fedkge.errors import DataError

__all__ = ["Given"]


@dataclass(frozen=True)
class Given(Partitioner):
    """The dataset is already split: folders client-0, client-1, … or 0, 1, …, or a FedE .pkl."""

    def split(self, graph: KnowledgeGraph, clients: int, seed: int, spec: str) -> Split:  # noqa: ARG002
        raise DataError(
            f"{graph.name}: partition 'given' needs a dataset that is already split "
            "(folders client-0, client-1, … or 0, 1, …, or a FedE .pkl)"
        )
