"""The cost of federating: seconds a round against the FedR authors' code, and growth with clients.

Run: python benchmarks/bench_federation.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

from fedkge.exchange import Table, Upload, decode, encode
from fedkge.experiment import Experiment
from fedkge.server.sums.open import mean_step
from fedkge.simulations.runs.run import run

AUTHORS_SECONDS = 33.0  # one round of the FedR authors' code at these settings, on a machine like this one


def summary_of(*changes: str) -> dict[str, dict[str, float]]:
    plain = (
        'privacy.union="plain"',
        "privacy.secure_aggregation=false",
    )  # bench_secure_round.py has the rest
    with tempfile.TemporaryDirectory() as folder:
        return run(Experiment().override([*plain, *changes]), Path(folder) / "run").summary


def per_round(speed: dict[str, float], rounds: int) -> float:
    return (speed["seconds_total"] - speed["seconds_setup"]) / rounds


def paper_setting(rounds: int) -> RichTable:
    """Five clients on two workers leave one idle a sixth of the time; one worker shows the engine alone."""
    table = RichTable(
        "engine", "seconds a round", "against 33 s", "engine and idle", "train triples/s a core"
    )
    for name, workers in (("inline", 2), ("ray", 1), ("ray", 2)):
        found = summary_of(
            "data.dataset=DDB14-Fed5",
            "data.partition=given",
            f"federation.rounds={rounds}",
            f"engine.name={name}",
            f"engine.workers={workers}",
        )
        speed = found["speed"]
        seconds = per_round(speed, rounds)
        share = speed["seconds_engine"] / (speed["seconds_total"] - speed["seconds_setup"])
        rate = f"{speed['train_triples_per_s']:,.0f}"
        table.add_row(
            f"{name}, {workers} workers",
            f"{seconds:.2f}",
            f"{AUTHORS_SECONDS / seconds:.1f}x",
            f"{share:.1%}",
            rate,
        )
    return table


def growth(sizes: tuple[int, ...]) -> RichTable:
    """Clients of equal size: seconds and memory should grow as their number does."""
    table = RichTable(
        "clients",
        "seconds a round",
        "per client (ms)",
        "of it engine (ms)",
        "set-up (s)",
        "driver's peak (MB)",
    )
    for clients in sizes:
        found = summary_of(
            f"data.dataset=synthetic:entities={40 * clients},relations=10,triples={100 * clients}",
            f"data.clients={clients}",
            "federation.rounds=4",
            "federation.evaluate_every=4",
            "model.dim=32",
            "training.negatives=16",
            "engine.name=ray",
            "engine.workers=2",
        )
        seconds = per_round(found["speed"], 4)
        engine = found["speed"]["seconds_engine"] / 4 / clients * 1000
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        cells = (f"{seconds:.2f}", f"{seconds / clients * 1000:.1f}", f"{engine:.1f}")
        table.add_row(str(clients), *cells, f"{found['speed']['seconds_setup']:.1f}", f"{peak:.0f}")
    return table


def large_uploads(count: int = 20, rows: int = 13_359, dim: int = 128) -> RichTable:
    """Many FedE-size uploads: the server should hold them and little more."""
    rng = np.random.default_rng(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sent = []
    for client in range(count):
        table = Table(np.arange(rows), rng.normal(size=(rows, dim)).astype(np.float32))
        sent.append(encode(Upload(1, client, {"entity": table})))
    steps = {client: decode(raw, Upload).tables["entity"] for client, raw in enumerate(sent)}
    held = {client: np.arange(rows) for client in steps}
    mean_step(rows, dim, steps, held, {client: np.ones(rows) for client in steps})
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    size = sum(map(len, sent)) / 2**20
    table = RichTable("uploads", "their bytes (MB)", "memory grew by (MB)", "copies")
    table.add_row(f"{count} x {rows:,} x {dim}", f"{size:.0f}", f"{grown:.0f}", f"{grown / size:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds and clients")
    quick = parser.parse_args().quick
    console = Console(width=120)
    console.print(large_uploads())
    console.print(growth((10, 100) if quick else (100, 1000)))
    if os.environ.get("FEDKGE_DATA"):
        console.print(paper_setting(5 if quick else 20))


if __name__ == "__main__":
    main()
