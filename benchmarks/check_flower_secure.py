"""A run under Flower's own runtime with private set union, secure aggregation and signed survivors.

Run, from the root of the repository: PYTHONPATH=. python benchmarks/check_flower_secure.py

Three SuperNodes on loopback, each with its own data and identity. The result must equal the inline engine's
bit for bit. Flower starts a process per message, so this takes minutes: too long for the tests.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from fedkge.client.keyring import create_identity
from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs
from tests.simulations.superlink import run_on_loopback

CLIENTS = 3
PATIENCE = 3600.0
SMALL = [
    f"data.clients={CLIENTS}",
    "model.dim=8",
    "training.negatives=4",
    "training.learning_rate=0.01",
    "federation.rounds=1",
    "federation.evaluate_every=1",
    "privacy.consistency=true",
    "engine.name=inline",
]


def make_keys(folder: Path) -> list[Path]:
    """An identity per client, and the same roster beside each."""
    folders = [folder / f"keys-{client}" for client in range(CLIENTS)]
    for own in folders:
        own.mkdir(parents=True)
    roster = "".join(f"{create_identity(own).hex()}\n" for own in folders)
    for own in folders:
        (own / "roster.txt").write_text(roster)
    return folders


def main() -> None:
    work = Path(tempfile.mkdtemp(prefix="fedkge-flower-"))
    experiment = Experiment().override(SMALL)
    inline = runs.run(experiment, work / "inline").summary
    start = time.monotonic()
    data = [work / "inline" / "data" / f"client-{client}" for client in range(CLIENTS)]
    flower = run_on_loopback(experiment, data, work, keys=make_keys(work), patience=PATIENCE)
    assert flower["result_hash"] == inline["result_hash"], f"the results differ; see {work}"
    assert flower["privacy"] == inline["privacy"], f"the server learned something else; see {work}"
    print(f"the same result_hash, {flower['result_hash'][:16]}…, after {time.monotonic() - start:.0f} s")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
