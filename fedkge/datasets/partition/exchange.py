"""Listed companies by the stock exchange of their codes, as Wang et al. (2021) divide FinKG."""

from __future__ import annotations

import numpy as np

from fedkge.datasets.formats.companies import COMPANY
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.partition.partitioner import Rows, by_frequency, divided
from fedkge.datasets.split import Split
from fedkge.errors import DataError
from fedkge.seeding import draw

__all__ = ["by_exchange", "exchanges"]

_SHANGHAI = (COMPANY + "6", COMPANY + "9")  # codes of Shenzhen start with 0, 2 or 3
_SEED = 0


def by_exchange(graph: KnowledgeGraph) -> Split:
    """Shanghai, then Shenzhen; of each, FedR's rule holds some statements out."""
    rng = draw(_SEED, 2)
    assignment = exchanges(graph)
    parts = [by_frequency(graph, rows, rng.shuffle) for rows in assignment]
    return divided(graph, assignment, parts, "given", _SEED)


def exchanges(graph: KnowledgeGraph) -> tuple[Rows, Rows]:
    """Rows of `graph.triples` of either exchange: each statement is of one company."""
    is_company = np.array([label.startswith(COMPANY) for label in graph.entity_labels])
    in_shanghai = np.array([label.startswith(_SHANGHAI) for label in graph.entity_labels])
    ends = graph.triples[:, [0, 2]]  # (n, 2)
    if not (is_company[ends].sum(axis=1) == 1).all():
        raise DataError(
            f"{graph.name}: exchanges divide statements of one company each, whose label starts with "
            f"'{COMPANY}'; give StockKG, or a graph like it"
        )
    shanghai = in_shanghai[ends].any(axis=1)
    return np.flatnonzero(shanghai), np.flatnonzero(~shanghai)
