"""What an attacker who sees every iterate proves about ε, for training as printed and for sound training.

Run: python benchmarks/audit_privacy.py [--active] [--scale quick|full] [--seed 0]

Canary triples enter the confidential half of UMLS by fair coins; each lower bound holds with 95 % confidence.
An ε below its bound is refuted. With --active the server also chooses the rows that it sends, and asks again.
"""

from __future__ import annotations

import argparse
from time import process_time

from rich.console import Console
from rich.table import Table

from fedkge.simulations.studies import RECIPES

_PLACES = {"dpkge-audit": ("mode", "batch", "sigma"), "dpkge-active-audit": ("mode", "server", "canaries")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--active", action="store_true", help="servers that choose rows and ask again")
    parser.add_argument("--scale", choices=("quick", "full"), default="full")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    recipe = "dpkge-active-audit" if options.active else "dpkge-audit"
    places = _PLACES[recipe]
    table = Table(*places, "attacker", "ε", "is", "ε at least", "guessed right", "verdict")
    for row in RECIPES[recipe](options.scale, options.seed).to_dict("records"):
        table.add_row(
            *(str(row[place]) for place in places),
            row["attacker"],
            f"{row['epsilon']:.2f}",
            row["epsilon_is"],
            f"{row['at_least']:.2f}",
            f"{row['correct']} of {row['guesses']}",
            row["verdict"],
        )
    Console(width=150).print(table)
    print(f"{process_time():.0f} CPU seconds")


if __name__ == "__main__":
    main()
