"""What an attacker who sees every iterate proves about ε, for training as printed and for sound training.

Run: python benchmarks/audit_privacy.py [--scale quick|full] [--seed 0]   (full: about a minute)

Canary triples enter the confidential half of UMLS by fair coins; each lower bound holds with 95 % confidence.
An ε below its bound is refuted.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from fedkge.simulations.studies import RECIPES


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", choices=("quick", "full"), default="full")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    table = Table("mode", "batch", "σ", "attacker", "ε", "is", "ε at least", "guessed right", "verdict")
    for row in RECIPES["dpkge-audit"](options.scale, options.seed).to_dict("records"):
        table.add_row(
            row["mode"],
            row["batch"],
            f"{row['sigma']:g}",
            row["attacker"],
            f"{row['epsilon']:.2f}",
            row["epsilon_is"],
            f"{row['at_least']:.2f}",
            f"{row['correct']} of {row['guesses']}",
            row["verdict"],
        )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
