"""Tables that a user names in one string as a dataset: `mapped:source=FOLDER,mapping=eicu`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedkge.datasets.graph import KnowledgeGraph, LabelledTriples
from fedkge.datasets.mapping.materialization import materialize
from fedkge.datasets.mapping.report import Report
from fedkge.datasets.mapping.sample import Draw
from fedkge.datasets.mapping.shipped.catalogue import mapping_of
from fedkge.datasets.mapping.source import open_source
from fedkge.errors import SettingError

__all__ = ["MappedSource", "found"]


@dataclass(frozen=True)
class MappedSource:
    """A database and the mapping that makes a graph of it."""

    source: str = ""  # a folder, also below FEDKGE_DATA, a database file or a URL
    mapping: str = ""  # a shipped one, or the path of an R2RML document
    sample: str = ""  # a share of the patients, or a month
    seed: int = 0  # of the sample
    types: int = 1  # 0: without triples of rdf:type
    published: int = 0  # 1: the mapping as it was published, its defects included

    def __post_init__(self) -> None:
        if not self.source or not self.mapping:
            raise SettingError(
                "'mapped:' takes source=FOLDER_OR_URL and mapping=NAME_OR_FILE; such as "
                "mapped:source=medical/eicu-demo,mapping=eicu"
            )
        for name in ("types", "published"):
            if getattr(self, name) not in (0, 1):
                raise SettingError(f"mapped: {name}={getattr(self, name)}: expected 0 or 1")

    def read(self) -> KnowledgeGraph:
        """The links of the graph, all of them in its train split, with their marks."""
        mapping = mapping_of(self.mapping, bool(self.published))
        source = open_source(found(self.source))
        draw = Draw.parse(self.sample, self.seed) if self.sample else None
        report = Report(mapping.name, source.name)
        batches = materialize(mapping, source, report, draw, bool(self.types))
        rows = [row for batch in batches for row in batch if not row[2].startswith('"')]
        heads, relations, tails = zip(*rows, strict=True) if rows else ((), (), ())
        marks = np.array([relation in mapping.confidential for relation in relations], dtype=bool)
        triples = LabelledTriples(heads, relations, tails, marks if mapping.confidential else None)
        name = Path(self.source).name if "://" not in self.source else self.mapping
        return KnowledgeGraph.from_labels(name, {"train": triples})


def found(source: str) -> str:
    """A source as the user names it, also below the folder FEDKGE_DATA."""
    below = Path(os.environ.get("FEDKGE_DATA") or ".", source)
    return str(below) if "://" not in source and not Path(source).exists() and below.exists() else source
