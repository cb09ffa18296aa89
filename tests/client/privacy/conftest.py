"""A graph with confidential triples, and single triples out of batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedkge.client.training.negatives import Batch
from fedkge.datasets import mark
from fedkge.datasets.graph import KnowledgeGraph
from tests.client.conftest import random_graph


def single(batch: Batch, i: int) -> Batch:
    """Triple i of a batch, alone."""
    return Batch(
        batch.anchors[i : i + 1],
        batch.relations[i : i + 1],
        batch.candidates[i : i + 1].copy(),
        int(i < batch.num_tails),
    )


@pytest.fixture(scope="session")
def marked() -> KnowledgeGraph:
    """400 triples over 40 entities, half of them confidential."""
    return mark(replace(random_graph(1, entities=40, triples=400), name="marked"), "0.5", 0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
