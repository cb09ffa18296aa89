"""Graphs that the client's tests train and rank on."""

from __future__ import annotations

import numpy as np
import pytest

from fedkge.datasets.graph import KnowledgeGraph


def random_graph(seed: int, entities: int = 30, relations: int = 4, triples: int = 80) -> KnowledgeGraph:
    """Triples drawn at random, among them a loop (head = tail) and a repeated entity."""
    rng = np.random.default_rng(seed)
    rows = np.stack(
        [rng.integers(0, bound, triples) for bound in (entities, relations, entities)], axis=1
    ).astype(np.int32)
    rows[0] = (3, 1, 3)
    rows[1] = (3, 1, 4)
    cut = (triples * 6 // 8, triples * 7 // 8)
    return KnowledgeGraph(
        f"random-{seed}",
        tuple(f"e{i}" for i in range(entities)),
        tuple(f"r{i}" for i in range(relations)),
        *np.split(rows, cut),
        texts={"entity": tuple(f"thing {i % 7} {i}" for i in range(entities))},
    )


@pytest.fixture(scope="session")
def graph() -> KnowledgeGraph:
    return random_graph(0)
