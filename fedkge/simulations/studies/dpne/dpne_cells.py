"""One embedding of the DPNE studies: which network, mechanism, width, budget and run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from scipy.sparse import csr_matrix

from fedkge.client.networks.factors import Factors, factors_of
from fedkge.client.networks.tasks import Score, classify_vertices, predict_links
from fedkge.client.networks.walk_matrix import adjacency_of, walk_matrix
from fedkge.client.privacy.networks.dpne import DPNE, AbsoluteDPNE, DescendedDPNE, NoisyWalks, unit_contexts
from fedkge.client.privacy.networks.edge_mechanism import EdgeMechanism, Rows
from fedkge.client.privacy.networks.private_descent import PrivateDescent
from fedkge.client.privacy.networks.private_edges import GaussianEdges, RandomisedResponse, TopEdges
from fedkge.client.privacy.normals import Keystream
from fedkge.datasets import KnowledgeGraph, load_graph
from fedkge.datasets.networks.network import Edges, edges_of
from fedkge.seeding import draw
from fedkge.simulations.studies.cells import Key, Row
from fedkge.simulations.studies.published import Published

__all__ = ["MECHANISMS_OF_EDGES", "NUMBERS", "Embedding", "class_rows", "link_rows"]

NUMBERS = Published.beside(__file__)
_DRAW = 0xD94E  # tells these draws from others with the same seed
_HIDDEN = 0.1  # of the edges, where they are hidden from the embedding
_LEARNT = 0.5  # of the hidden ones: there are a tenth as many
_NONE = "non-private"

MECHANISMS_OF_EDGES: Mapping[str, Callable[[float], EdgeMechanism]] = {
    "DPNE, |term|": AbsoluteDPNE,
    "DPNE, |term|, γ = 0.015": DescendedDPNE,
    "DPNE, |term|, γ = 0.0015": lambda epsilon: DescendedDPNE(epsilon, learning_rate=0.0015),
    "DPNE, linear": DPNE,
    "dpM": NoisyWalks,
    "randomised response": RandomisedResponse,
    "top edges": TopEdges,
    "Gaussian": GaussianEdges,
    "DP-SGD": PrivateDescent,
}
_PRINTED = {"DPNE, |term|": "DPNE", "dpM": "dpM", _NONE: _NONE}  # |term| is what the authors ran
_WIDTHS = {"DP-SGD": 16}  # where the paper's would drown in noise


@dataclass(frozen=True)
class Embedding:
    """What is embedded, and how; `runs` differ in all that is drawn."""

    dataset: str
    mechanism: str
    dim: int
    epsilon: float | None
    runs: int

    @property
    def keys(self) -> dict[str, Key]:
        """What tells its cell from others."""
        return {
            "dataset": self.dataset,
            "mechanism": self.mechanism,
            "dim": self.dim,
            "epsilon": self.epsilon,
        }

    @property
    def standing(self) -> str:
        """What its ε is worth."""
        if self.epsilon is None:
            return "none"
        return MECHANISMS_OF_EDGES[self.mechanism](self.epsilon).standing

    def published(self, table: str) -> float | None:
        """The paper's accuracy."""
        printed = _PRINTED.get(self.mechanism)
        keys = {**self.keys, "mechanism": printed}
        return None if printed is None else NUMBERS.get(table, "accuracy", **keys)

    def rows(self, run: int, hidden: bool = False) -> Rows:
        """The rows of one run; `hidden` is whether a tenth of the edges is kept from it."""
        network = _Network.of(self.dataset, run if hidden else None)
        if self.epsilon is None:
            return network.factors(self.dim).vertices
        mechanism = MECHANISMS_OF_EDGES[self.mechanism](self.epsilon)
        secret = blake2b(f"{self}/{run}/{hidden}".encode(), digest_size=32).digest()
        if isinstance(mechanism, DPNE):
            return mechanism.given(network.walks, network.contexts(self.dim), Keystream(secret))
        dim = _WIDTHS.get(self.mechanism, self.dim)
        return mechanism.rows(network.adjacency, dim, Keystream(secret))


class _Network:
    """A network with what several embeddings of it need; part of its edges may be hidden."""

    def __init__(self, graph: KnowledgeGraph, edges: Edges, tested: Edges) -> None:
        self.graph, self.tested = graph, tested
        self.adjacency: csr_matrix = adjacency_of(edges, graph.num_entities)
        self.walks = walk_matrix(self.adjacency)
        self._factors: dict[int, Factors] = {}
        self._contexts: dict[int, Rows] = {}

    @staticmethod
    @lru_cache(maxsize=12)
    def of(dataset: str, run: int | None) -> _Network:
        """The whole network, or without the edges that a run hides."""
        graph = load_graph(dataset)
        edges = edges_of(graph)
        if run is None:
            return _Network(graph, edges, edges)
        order = draw(run, _DRAW, 1).permutation(len(edges))
        hidden = round(_HIDDEN * len(edges))
        return _Network(graph, edges[order[hidden:]], edges[order[:hidden]])

    def factors(self, dim: int) -> Factors:
        if dim not in self._factors:
            self._factors[dim] = factors_of(self.walks, dim)
        return self._factors[dim]

    def contexts(self, dim: int) -> Rows:
        if dim not in self._contexts:
            self._contexts[dim] = unit_contexts(self.walks, dim).contexts
        return self._contexts[dim]


def class_rows(embedding: Embedding, table: str) -> Iterator[Row]:
    """Vertex classification with a tenth of the vertices to learn from."""
    graph = _Network.of(embedding.dataset, None).graph
    drawn = [embedding.rows(run) for run in range(embedding.runs)]
    for scaling in ("unit rows", "raw"):
        scores = [
            classify_vertices(rows, graph.classes, draw(run, _DRAW), scaling, repeats=1)
            for run, rows in enumerate(drawn)
        ]
        yield from _lines(embedding, table, {"scaling": scaling}, scores, len(graph.classes) * 9 // 10)


def link_rows(embedding: Embedding, table: str) -> Iterator[Row]:
    """Link prediction, of edges that the embedding saw, as published, and of edges that it did not."""
    every = edges_of(_Network.of(embedding.dataset, None).graph)
    for edges, hidden, scalings, learnt in (
        ("seen", False, ("standardised", "raw"), 0.1),
        ("held out", True, ("standardised",), _LEARNT),
    ):
        drawn = [embedding.rows(run, hidden) for run in range(embedding.runs)]
        for scaling in scalings:
            scores = []
            for run, rows in enumerate(drawn):
                tested = _Network.of(embedding.dataset, run if hidden else None).tested
                rng = draw(run, _DRAW)
                scores.append(predict_links(rows, tested, every, rng, scaling, learnt, repeats=1))
            count = round(2 * (1 - learnt) * len(tested))
            yield from _lines(embedding, table, {"edges": edges, "scaling": scaling}, scores, count)


def _lines(
    embedding: Embedding,
    table: str,
    keys: Mapping[str, str],
    scores: Sequence[Mapping[str, Score]],
    tested: int,
) -> Iterator[dict[str, Any]]:
    for metric in scores[0]:
        score = Score.of([run[metric].value for run in scores], tested)
        printed = metric == "accuracy" and keys.get("edges") != "held out"
        yield {
            **keys,
            "metric": metric,
            "epsilon_is": embedding.standing,
            "measured": score.value,
            "low": score.low,
            "high": score.high,
            "published": embedding.published(table) if printed else None,
        }
