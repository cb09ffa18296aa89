"""What an attacker who sees every iterate proves about ε, for training as printed and for sound training.

Run: python benchmarks/audit_privacy.py [--canaries 2000] [--rounds 4] [--seed 0]   (about a minute)

Canary triples enter the confidential half of UMLS by fair coins; the lower bound holds with 95 % confidence.
A claim below its bound is refuted. The last rows train on all confidential triples in every step, where an
attack finds most: they show that the attacker is able.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from fedkge.attacks.privacy_audit import audit
from fedkge.datasets.confidential import mark
from fedkge.datasets.load import load
from fedkge.datasets.split import Split
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings

SIGMAS = (0.7, 1.0, 2.0, 10.0)
WAYS = (("paper", 64), ("sound", 64), ("sound", 10**9))  # mode, confidential triples in a step (paper: √N)
MODEL = ModelSettings(name="TransE", dim=16, margin=0.0)  # no margin: a canary's own score leads its gradient


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--canaries", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    table = Table("mode", "batch", "σ", "attacker", "ε", "is", "ε at least", "guessed right", "verdict")
    graph = load("UMLS")
    assert not isinstance(graph, Split)
    graph = mark(graph, "random:0.5")
    for mode, batch in WAYS:
        for sigma in SIGMAS:
            training = TrainingSettings(
                local_epochs=1,
                batch_size=batch,
                negatives=1,
                learning_rate=0.01,
                optimizer="SGD",
                loss="logistic",
            )
            dp = DPSettings(mode=mode, sigma=sigma, clip=1.0, delta=1e-5)
            for found in audit(
                graph,
                MODEL,
                training,
                dp,
                rounds=options.rounds,
                num_canaries=options.canaries,
                seed=options.seed,
            ):
                table.add_row(
                    mode,
                    "√N" if mode == "paper" else "all" if batch > len(graph.train) else str(batch),
                    f"{sigma:g}",
                    found.attacker,
                    f"{found.claimed:.2f}",
                    "claimed" if mode == "paper" else "guaranteed",
                    f"{found.bound.epsilon:.2f}",
                    f"{found.bound.correct} of {found.bound.guesses}",
                    "refuted" if found.refuted else "stands",
                )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
