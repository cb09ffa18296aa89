"""Loading and indexing: FB15k-237 against PyKEEN, and 10 million synthetic triples against memory.

Run: python benchmarks/bench_datasets.py
"""

from __future__ import annotations

import os
import resource
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedkge.datasets import audit, load_graph, partition

REPEATS = 3


def best_of(work: Callable[[], object]) -> float:
    """The shortest of a few runs: the machine is noisy, and noise only adds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def load_and_index(name: str) -> None:
    graph = load_graph(name)
    graph.true_tails, graph.true_heads  # noqa: B018 - building them is the work


def with_pykeen(folder: Path) -> None:
    from pykeen.triples import TriplesFactory

    train = TriplesFactory.from_path(folder / "train.txt")
    for split in ("valid", "test"):
        TriplesFactory.from_path(
            folder / f"{split}.txt", entity_to_id=train.entity_to_id, relation_to_id=train.relation_to_id
        )


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    table = Table("work", "seconds", "against the peer", "peak memory (GB)")
    synthetic = "synthetic:entities=1000000,relations=100,triples=10000000"
    start = time.perf_counter()
    graph = load_graph(synthetic)
    made = time.perf_counter() - start
    table.add_row("10 M synthetic triples: make", f"{made:.1f}", "", f"{peak_gb():.1f}")
    seconds = best_of(lambda: (graph.__dict__.pop("true_tails", None), graph.true_tails))
    table.add_row("10 M synthetic triples: index tails", f"{seconds:.1f}", "", f"{peak_gb():.1f}")
    if os.environ.get("FEDKGE_DATA"):
        ours = best_of(lambda: load_and_index("FB15k-237"))
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(Path(os.environ["FEDKGE_DATA"]) / "FB15k-237.tar.gz") as archive:
                archive.extractall(folder, filter="data")
            with_pykeen(Path(folder))
            theirs = best_of(lambda: with_pykeen(Path(folder)))
        fb15k = load_graph("FB15k-237")
        divide = best_of(lambda: partition(fb15k, "fedr", clients=5))
        split = partition(fb15k, "fedr", clients=5)
        check = best_of(lambda: audit(split))
        table.add_row(
            "FB15k-237: load, verify, index both ways", f"{ours:.2f}", f"{theirs / ours:.1f}x PyKEEN", ""
        )
        table.add_row("FB15k-237 by PyKEEN: load only", f"{theirs:.2f}", "", "")
        table.add_row("FB15k-237: divide among 5 by FedR's rule", f"{divide:.2f}", "", "")
        table.add_row("FB15k-237: audit that split", f"{check:.2f}", "", "")
    Console().print(table)


if __name__ == "__main__":
    main()
