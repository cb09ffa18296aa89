"""Vertices near each other: LINE of first and of second order (Tang et al., 2015), skip-gram over walks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedkge.client.kernels.arrays import Floats
from fedkge.client.models.factorization import Proximity
from fedkge.client.models.stage import Stage
from fedkge.client.networks.walk_matrix import adjacency_of
from fedkge.client.networks.walks import random_walks, walk_pairs
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.networks.network import Edges, edges_of
from fedkge.errors import DataError
from fedkge.experiment import Settings, TrainingSettings

__all__ = ["FirstOrder", "SecondOrder", "SkipGram"]


class FirstOrder(Proximity):
    """LINE, first order: joined vertices are alike. Without directions, set `training.corrupt = "both"`."""


class SecondOrderOptions(Settings):
    """Which way edges go."""

    directed: bool = Field(default=False, description="whether an edge goes one way alone")


class SecondOrder(Proximity):
    """LINE, second order: joined vertices are alike if their neighbours are.

    A row is a vertex, then the same vertex as a context of others: ⟨w of the head, c of the tail⟩.
    """

    entity_width = 2
    Options = SecondOrderOptions

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return (self.query_tail(h, r) * t).sum(-1)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        del r
        vertex = h.chunk(2, dim=-1)[0]
        return torch.cat([torch.zeros_like(vertex), vertex], dim=-1)

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        del r
        context = t.chunk(2, dim=-1)[1]
        return torch.cat([context, torch.zeros_like(context)], dim=-1)

    def entity_vectors(self) -> Floats:
        return np.ascontiguousarray(self.scored.entities[:, : self.settings.dim])

    def stages(self, training: TrainingSettings) -> tuple[Stage, ...]:
        return (Stage(self, training, seen=self._seen),)

    def _seen(self, graph: KnowledgeGraph, rng: np.random.Generator) -> KnowledgeGraph:
        """An edge without direction is an arc each way."""
        del rng
        return graph if self.options.directed else replace(graph, train=both_ways(graph), confidential={})


class SkipGramOptions(SecondOrderOptions):
    """The walks of each round; each epoch passes all pairs once."""

    walks: int = Field(default=1, ge=1, description="from every vertex")
    length: int = Field(default=40, ge=2, description="vertices of a walk")
    window: int = Field(default=5, ge=1, description="steps between a vertex and its context, at most")


class SkipGram(SecondOrder):
    """DeepWalk: skip-gram with negatives on random walks (Perozzi et al., 2014)."""

    Options = SkipGramOptions
    whole_graph = True

    def _seen(self, graph: KnowledgeGraph, rng: np.random.Generator) -> KnowledgeGraph:
        options = self.options
        adjacency = adjacency_of(edges_of(graph), graph.num_entities, options.directed)
        pairs = walk_pairs(random_walks(adjacency, options.walks, options.length, rng), options.window)
        if len(pairs) == 0:
            raise DataError(f"{graph.name}: no walk leaves its vertex; SkipGram needs an edge between two")
        return replace(graph, train=_as_triples(pairs), confidential={})


def both_ways(graph: KnowledgeGraph) -> Edges:
    """The train triples and their reverse."""
    return np.concatenate([graph.train, graph.train[:, [2, 1, 0]]])


def _as_triples(pairs: Edges) -> Edges:
    return np.stack([pairs[:, 0], np.zeros(len(pairs), dtype=np.int32), pairs[:, 1]], axis=1)
