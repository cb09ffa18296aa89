"""Features as files beside a graph's triples, from which loading the folder takes them again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from fedkge.datasets.formats.text import write_pairs
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.networks.edge_list import CLASSES, EDGES

__all__ = ["write_features"]


def write_features(folder: Path, graph: KnowledgeGraph) -> None:
    """`entity-texts.tsv` and `entity-features.npz`, and the same of relations, where there are some.

    The classes of vertices are in `entity-classes.tsv`, and what a network's edge list had in `network.json`.
    """
    if graph.edge_list is not None:
        (folder / EDGES).write_text(json.dumps(asdict(graph.edge_list)), encoding="utf-8")
    if graph.classes:
        classes = zip(graph.entity_labels, graph.classes, strict=True)
        write_pairs(folder / CLASSES, [pair for pair in classes if pair[1]])
    for kind, texts in graph.texts.items():
        pairs = [pair for pair in zip(graph.labels[kind], texts, strict=True) if pair[1]]
        write_pairs(folder / f"{kind}-texts.tsv", pairs)
    for kind, rows in graph.features.items():
        labels = np.array(graph.labels[kind], dtype=np.str_)
        np.savez(folder / f"{kind}-features.npz", labels=labels, rows=rows)
