"""What a format is: which files it reads, and into what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedkge.datasets.formats.container import Member
from fedkge.datasets.graph import KnowledgeGraph, LabelledTriples
from fedkge.datasets.split import Split
from fedkge.errors import SettingError

__all__ = ["Format", "GraphFiles", "Layout", "SplitFiles", "TripleFile"]


@dataclass(frozen=True)
class Layout:
    """What the user says of a table of triples."""

    columns: str | None = None  # as `Columns` reads it: 'htr', 'head,relation,tail,_,_', '0,1,2'
    header: bool | None = None  # None: look

    def refuse(self, origin: str) -> None:
        """Where the data have no columns, whatever the user says of them would be ignored."""
        if self != Layout():
            raise SettingError(
                f"{origin} has no columns that could be named; leave out --columns (data.columns in an "
                "experiment) and --header: they are for .tsv, .txt and .csv files of your own"
            )


class Format:
    """A format is one of the three kinds below; `suffixes` are the endings of its files, as '.tsv'."""

    suffixes: ClassVar[tuple[str, ...]] = ()


class TripleFile(Format):
    """A file holds labelled triples of one split: train.tsv, test.nt."""

    has_columns: ClassVar[bool] = False  # whether what the user says of columns is heard

    def read(self, member: Member, scope: str, layout: Layout) -> LabelledTriples:
        """The triples; `scope` is the split, for names that mean nothing outside of the file."""
        raise NotImplementedError


class GraphFiles(Format):
    """Files of fixed names make up a graph; the first name is the one that gives it away."""

    names: ClassVar[tuple[str, ...]]

    def recognises(self, files: Mapping[str, Member]) -> bool:
        """Whether these files, by name, are such a graph."""
        return self.names[0] in files

    def read(self, name: str, files: Mapping[str, Member]) -> KnowledgeGraph:
        """The graph of these files, by name; all but the first may be absent."""
        raise NotImplementedError


class SplitFiles(Format):
    """Some files make up a whole split, with every client in it."""

    def recognises(self, members: Sequence[Member]) -> bool:
        """Whether these files are such a split, all of them."""
        raise NotImplementedError

    def read(self, members: Sequence[Member]) -> Split:
        """The split of files that were recognised."""
        raise NotImplementedError

    def companions(self, path: Path) -> list[Path]:
        """Files that belong to a lone file and would lie beside it."""
        del path
        return []
