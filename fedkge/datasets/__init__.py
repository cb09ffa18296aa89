"""Graphs, where they come from, how they are divided among clients, and whether a division is sound."""

from fedkge.datasets.audit import Audit, audit
from fedkge.datasets.confidential import mark, mark_split, unrestricted
from fedkge.datasets.formats import FORMATS
from fedkge.datasets.formats.pickles import write_pickle
from fedkge.datasets.graph import SPLITS, KnowledgeGraph, LabelledTriples
from fedkge.datasets.load import at_hand, load, load_graph
from fedkge.datasets.lookup import Lookup
from fedkge.datasets.partition import PARTITIONERS, partition
from fedkge.datasets.registry import DATASETS, EMBEDDED
from fedkge.datasets.split import Split
from fedkge.datasets.store import write_graph, write_split
from fedkge.datasets.synthetic import Synthetic

__all__ = [
    "DATASETS",
    "EMBEDDED",
    "FORMATS",
    "PARTITIONERS",
    "SPLITS",
    "Audit",
    "KnowledgeGraph",
    "LabelledTriples",
    "Lookup",
    "Split",
    "Synthetic",
    "at_hand",
    "audit",
    "load",
    "load_graph",
    "mark",
    "mark_split",
    "partition",
    "unrestricted",
    "write_graph",
    "write_pickle",
    "write_split",
]
