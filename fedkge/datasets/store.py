"""Writing graphs and splits as folders of TSV files that anyone can read."""

from __future__ import annotations

import json
from pathlib import Path

from fedkge.datasets.graph import SPLITS, KnowledgeGraph
from fedkge.datasets.split import Split
from fedkge.datasets.text import write_labels, write_triples

__all__ = ["write_graph", "write_split"]


def write_graph(folder: Path, graph: KnowledgeGraph) -> None:
    """`train.tsv`, `valid.tsv`, `test.tsv`, and the vocabularies in order of id."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        write_triples(folder / f"{split}.tsv", graph.labelled(split))
    write_labels(folder / "entities.tsv", graph.entity_labels)
    write_labels(folder / "relations.tsv", graph.relation_labels)


def write_split(folder: Path, split: Split) -> None:
    """A folder `client-N` for each client, the global numbering, and `split.json` that says what it is."""
    for number, graph in enumerate(split.clients):
        write_graph(folder / f"client-{number}", graph)
    write_labels(folder / "entities.tsv", split.entity_labels)
    write_labels(folder / "relations.tsv", split.relation_labels)
    about = {
        "name": split.name,
        "partition": split.partition,
        "seed": split.seed,
        "clients": split.num_clients,
        "triples": sum(graph.num_triples for graph in split.clients),
        "unassigned": split.unassigned,
        "held_out_unseen": split.unseen,
        "content_hash": split.content_hash,
    }
    (folder / "split.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
