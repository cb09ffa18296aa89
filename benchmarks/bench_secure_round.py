"""What secure aggregation costs a federation: time and bytes of a FedR round, and the MRR beside plain runs.

    FEDKGE_DATA=… python benchmarks/bench_secure_round.py [--rounds 5] [--seeds 3]

Prints the share of cryptography in a FedR round on DDB14 among the FedR authors' five clients, the bytes per
round against plain float32, and the test MRR on UMLS over some seeds, with and without.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs

INLINE = ["engine.name=inline", "engine.workers=1"]
PLAIN = ["privacy.union=plain", "privacy.secure_aggregation=false"]
DDB14 = ["data.dataset=DDB14-Fed5", "data.partition=given"]
UMLS = ["model.dim=64", "training.batch_size=128", "training.negatives=64", "training.learning_rate=0.005"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for strategy in ("FedR", "FedE"):
            _rounds(Path(folder), strategy, options.rounds)
        _quality(Path(folder), options.seeds)


def _rounds(folder: Path, strategy: str, rounds: int) -> None:
    changes = [*DDB14, *INLINE, f"federation.strategy={strategy}", f"federation.rounds={rounds}"]
    changes.append(f"federation.evaluate_every={rounds}")
    runs.run(
        Experiment().override([*changes, "federation.rounds=1"]), folder / f"{strategy}-warm"
    )  # compiles
    found = {
        name: runs.run(Experiment().override([*changes, *extra]), folder / f"{strategy}-{name}")
        for name, extra in (("plain", PLAIN), ("secure", []))
    }
    speed = found["secure"].summary["speed"]
    trained, crypto = speed["seconds_training"], speed["seconds_crypto"]
    print(f"\n{strategy} on DDB14-Fed5, TransE 128, {rounds} rounds, one core")
    print(f"  training {trained / rounds:.3f} s a round, all clients; cryptography {crypto:.3f} s in the run")
    print(f"  cryptography: {crypto / (trained + crypto):.2%} of the rounds, union and set-up included")
    for name, result in found.items():
        bytes_of = result.messages.groupby(["phase", "direction"])["bytes"].sum().to_dict()
        up = _per_round(bytes_of, ("train", "up"), ("unmask", "up")) / rounds
        down = _per_round(bytes_of, ("train", "down"), ("unmask", "down")) / rounds
        once = _per_round(bytes_of, *((p, d) for p in ("union", "setup") for d in ("up", "down")))
        print(f"  {name:<6} {up:>12,.0f} B up a round {down:>12,.0f} B down {once:>12,.0f} B once")
    print(f"  rows not shared: {found['secure'].summary['privacy']['rows_not_shared']}")


def _per_round(bytes_of: dict[Any, int], *keys: tuple[str, str]) -> float:
    return sum(bytes_of.get(key, 0) for key in keys)


def _quality(folder: Path, seeds: int) -> None:
    print(f"\nFedR on UMLS, 5 clients, TransE 64, 60 rounds, seeds 0 to {seeds - 1}: test MRR")
    for name, extra in (("plain", PLAIN), ("secure", []), ("secure, all rows", ["privacy.min_holders=2"])):
        values = [
            runs.run(
                Experiment().override([*UMLS, *INLINE, "federation.rounds=60", f"seed={seed}", *extra]),
                folder / f"{name}-{seed}",
            ).test()
            for seed in range(seeds)
        ]
        spread = f"{min(values):.4f} to {max(values):.4f}"
        deviation = stdev(values) if seeds > 1 else 0.0
        print(f"  {name:<17} {mean(values):.4f} ± {deviation:.4f}   {spread}")


if __name__ == "__main__":
    main()
