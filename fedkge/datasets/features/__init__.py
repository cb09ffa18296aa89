"""What belongs to labels beside triples: a text or a vector for an entity or a relation; never sent."""

from fedkge.datasets.features.described import (
    attach,
    coverage_of,
    described_by,
    described_split,
    split_coverage,
    with_all_entities,
    with_features_of,
)
from fedkge.datasets.features.feature_file import FeatureFile, feature_files, find, read_features
from fedkge.datasets.features.written import write_features

__all__ = [
    "FeatureFile",
    "attach",
    "coverage_of",
    "described_by",
    "described_split",
    "feature_files",
    "find",
    "read_features",
    "split_coverage",
    "with_all_entities",
    "with_features_of",
    "write_features",
]
