"""Networks that a user names in one string: `network:edges=FILE,classes=FILE`, `network:graph=FB15k-237`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedkge.datasets.formats.container import Member, members
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.networks.edge_list import read_network
from fedkge.errors import DataError, SettingError

__all__ = ["NetworkSource"]


@dataclass(frozen=True)
class NetworkSource:
    """An edge list with or without classes, or another graph without its kinds of relations."""

    edges: str = ""  # a file with two vertices a line
    classes: str = ""  # a file with a vertex and its class a line
    graph: str = ""  # any other dataset, by name or path
    directed: int = 0  # 1: (u, v) and (v, u) are two edges

    def __post_init__(self) -> None:
        if bool(self.edges) == bool(self.graph) or (self.graph and self.classes):
            raise SettingError(
                "'network:' takes edges=FILE, with classes=FILE where there are classes, or graph=NAME; such "
                "as network:edges=friends.tsv"
            )
        if self.directed not in (0, 1):
            raise SettingError(f"network: directed={self.directed}: expected 1 for arcs, 0 for edges")

    def read(self) -> KnowledgeGraph:
        """The network of its files."""
        name = Path(self.edges).name.partition(".")[0]
        classes = _member(self.classes) if self.classes else None
        return read_network(name, _member(self.edges), classes, bool(self.directed))


def _member(path: str) -> Member:
    """The only file at a path."""
    if not Path(path).is_file():
        raise DataError(f"{path}: no such file; give the path of a text file with two columns")
    contents = members(Path(path))
    if len(contents) != 1:
        raise DataError(f"{path}: an archive of {len(contents)} files; give the path of one text file")
    return contents[0]
