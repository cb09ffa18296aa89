"""Relational tables to knowledge graphs, by R2RML mappings (W3C, 2012)."""

from fedkge.datasets.mapping.mapped_source import MappedSource, found
from fedkge.datasets.mapping.mapping import Mapping
from fedkge.datasets.mapping.materialization import BASE, materialize
from fedkge.datasets.mapping.report import Report
from fedkge.datasets.mapping.sample import Draw
from fedkge.datasets.mapping.shipped.catalogue import SHIPPED, mapping_of
from fedkge.datasets.mapping.source import open_source
from fedkge.datasets.mapping.written import marks_beside, write_mapped

__all__ = [
    "BASE",
    "SHIPPED",
    "Draw",
    "MappedSource",
    "Mapping",
    "Report",
    "found",
    "mapping_of",
    "marks_beside",
    "materialize",
    "open_source",
    "write_mapped",
]
