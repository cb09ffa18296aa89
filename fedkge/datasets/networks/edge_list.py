"""Reading networks: two labels a line, and beside them a file with the class of each vertex."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from fedkge.datasets.formats.container import Member, read_text
from fedkge.datasets.formats.file_format import GraphFiles
from fedkge.datasets.formats.text import ESCAPED, unescaped
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.networks.edge_counts import EdgeCounts
from fedkge.datasets.networks.network import network_of
from fedkge.errors import DataError

__all__ = ["CLASSES", "EDGES", "Arcs", "EdgeList", "classes_beside", "counts_beside", "read_network"]

CLASSES = "entity-classes.tsv"  # beside the triples of a graph that fedkge wrote
EDGES = "network.json"  # beside them, if the graph is a network: what its edge list had


class EdgeList(GraphFiles):
    """An undirected network: edges.tsv, and the class of every vertex in classes.tsv."""

    names = ("edges.tsv", "classes.tsv")
    directed: ClassVar[bool] = False

    def read(self, name: str, files: Mapping[str, Member]) -> KnowledgeGraph:
        edges, classes = (files.get(name) for name in self.names)
        assert edges is not None  # it is what the format is recognised by
        return read_network(name, edges, classes, self.directed)


class Arcs(EdgeList):
    """A directed network: arcs.tsv in place of edges.tsv."""

    names = ("arcs.tsv", "classes.tsv")
    directed = True


def read_network(
    name: str, edges: Member, classes: Member | None = None, directed: bool = False
) -> KnowledgeGraph:
    """A network of two files; a vertex that only the file of classes names has no edge.

    Args:
        name: of the graph.
        edges: two labels a line.
        classes: a label and its class a line; where it is given, it must name every vertex of the edges.
        directed: whether (u, v) and (v, u) are two edges.
    """
    pairs = _pairs(edges, "two vertices")
    if not pairs:
        raise DataError(f"{edges.origin}: no edge in it; give two vertices a line")
    class_of = {} if classes is None else _classes(classes)
    numbers = {label: number for number, label in enumerate(class_of)}
    for pair in pairs:
        for label in pair:
            numbers.setdefault(label, len(numbers))
    if classes is not None:
        _refuse_missing(classes, edges, class_of, numbers)
    ends = np.array([[numbers[head], numbers[tail]] for head, tail in pairs], dtype=np.int64)
    network = network_of(name, tuple(numbers), ends, directed, tuple(class_of.values()))
    if len(network.train) == 0:
        raise DataError(f"{edges.origin}: every line joins a vertex with itself; a network has an edge")
    return network


def classes_beside(graph: KnowledgeGraph, contents: Sequence[Member]) -> tuple[str, ...]:
    """The class of each vertex of a graph, from the file that fedkge wrote beside its triples."""
    files = [member for member in contents if member.name.rpartition("/")[2] == CLASSES]
    if not files:
        return ()
    class_of = _classes(files[0])
    return tuple(class_of.get(label, "") for label in graph.entity_labels)


def counts_beside(contents: Sequence[Member]) -> EdgeCounts | None:
    """What the edge list of a graph had, from the file that fedkge wrote beside its triples."""
    files = [member for member in contents if member.name.rpartition("/")[2] == EDGES]
    if not files:
        return None
    try:
        content = json.loads(read_text(files[0]))
        counts = [int(content[key]) for key in ("rows", "self_loops", "repeated")]
        return EdgeCounts(bool(content["directed"]), *counts)
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{files[0].origin}: not what fedkge writes of a network ({error!r}); write the split again, or "
            "delete the file: then nobody knows whether edges have directions"
        ) from error


def _classes(member: Member) -> dict[str, str]:
    class_of: dict[str, str] = {}
    for label, kind in _pairs(member, "a vertex and its class"):
        if class_of.setdefault(label, kind) != kind:
            raise DataError(
                f"{member.origin}: vertex '{label}' has classes '{class_of[label]}' and '{kind}'; keep one"
            )
    return class_of


def _refuse_missing(
    classes: Member, edges: Member, class_of: Mapping[str, str], numbers: Mapping[str, int]
) -> None:
    missing = [label for label in numbers if label not in class_of]
    if missing:
        raise DataError(
            f"{classes.origin}: no class for {len(missing):,} of the {len(numbers):,} vertices of "
            f"{edges.origin}, such as '{missing[0]}'; add a line for each, or leave the file out"
        )


def _pairs(member: Member, wanted: str) -> list[tuple[str, str]]:
    """Two columns, by tabs or, where there is none in the line, by spaces; lines with # are comments."""
    lines = read_text(member).replace("\r\n", "\n").split("\n")
    escaped = lines[0] == ESCAPED
    pairs = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = line.split("\t") if "\t" in line else line.split()
        if len(cells) != 2:
            raise DataError(
                f"{member.origin}, line {number}: expected {wanted}, separated by a tab or a space; found "
                f"{len(cells)} columns"
            )
        head, tail = (unescaped(cell) if escaped else cell for cell in cells)
        pairs.append((head, tail))
    return pairs
