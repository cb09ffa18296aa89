"""Writing graphs and splits as folders of TSV files that anyone can read."""

from __future__ import annotations

from pathlib import Path

from fedkge.datasets.about import write_about
from fedkge.datasets.features import write_features
from fedkge.datasets.formats.text import write_labels, write_triples
from fedkge.datasets.graph import SPLITS, KnowledgeGraph
from fedkge.datasets.split import Split
from fedkge.errors import DataError
from fedkge.storage import staged, storage_errors

__all__ = ["is_replaceable", "write_graph", "write_split"]

_OURS = ("entities.tsv", "relations.tsv", "split.json")


def write_graph(folder: Path, graph: KnowledgeGraph) -> None:
    """`train.tsv`, `valid.tsv`, `test.tsv`, the vocabularies in order of id, and features."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        write_triples(folder / f"{split}.tsv", graph.labelled(split))
    write_labels(folder / "entities.tsv", graph.entity_labels)
    write_labels(folder / "relations.tsv", graph.relation_labels)
    write_features(folder, graph)


def write_split(folder: Path, split: Split) -> None:
    """A folder `client-N` for each client, the global numbering, and `split.json` that says what it is.

    The folder is whole or absent; an older split in its place is replaced, anything else is left alone.
    """
    if not is_replaceable(folder):
        raise DataError(f"{folder} holds something other than a split; choose another folder")
    with staged(folder) as partial:
        for number, graph in enumerate(split.clients):
            write_graph(partial / f"client-{number}", graph)
        write_labels(partial / "entities.tsv", split.entity_labels)
        write_labels(partial / "relations.tsv", split.relation_labels)
        write_about(partial / "split.json", split)


def is_replaceable(folder: Path) -> bool:
    """Whether nothing but a split that `write_split` wrote would be lost."""
    with storage_errors(folder):
        names = [entry.name for entry in folder.iterdir()] if folder.exists() else []
    written = "split.json" in names or not names
    return written and all(name in _OURS or name.startswith("client-") for name in names)
