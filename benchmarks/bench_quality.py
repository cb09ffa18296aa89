"""Quality of centralised training: MRR beside the literature's, each run a file in experiments/.

Run: python benchmarks/bench_quality.py [--out FOLDER] [FILES…]   (the large graphs take 5 to 25 minutes each)
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs

FILES = Path(__file__).parent.parent / "experiments"
LITERATURE = {  # two-sided filtered test MRR
    ("FB15k-237", "TransE"): "0.294 (Nguyen et al., 2018)",
    ("FB15k-237", "RotatE"): "0.338 (Sun et al., 2019; d=1000)",
    ("WN18RR", "TransE"): "0.226 (Nguyen et al., 2018)",
    ("WN18RR", "RotatE"): "0.476 (Sun et al., 2019; d=500)",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", type=Path, help="by default every central-*.toml")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/quality"), help="runs found here are not run again"
    )
    options = parser.parse_args()
    table = Table(
        "graph", "model", "d", "epochs", "minutes", "test MRR", "95 %", "Hits@10", "literature's MRR"
    )
    for path in options.files or sorted(FILES.glob("central-*.toml")):
        table.add_row(*row(Experiment.load(path), options.out / path.stem))
    Console(width=130).print(table)


def row(experiment: Experiment, folder: Path) -> list[str]:
    result = runs.result_of(folder) if (folder / "summary.json").exists() else runs.run(experiment, folder)
    found, speed = result.summary["utility"]["test"], result.summary["speed"]
    epochs = result.summary["communication"]["rounds"] * experiment.training.local_epochs
    low, high = found["mrr"]["interval"]
    graph, model = experiment.data.dataset, experiment.model.name
    return [
        graph,
        model,
        str(experiment.model.dim),
        str(epochs),
        f"{speed['seconds_total'] / 60:.1f}",
        f"{found['mrr']['value']:.4f}",
        f"{low:.4f}–{high:.4f}",
        f"{found['hits@10']['value']:.4f}",
        LITERATURE.get((graph, model), "—"),
    ]


if __name__ == "__main__":
    main()
