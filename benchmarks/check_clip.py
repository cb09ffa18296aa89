"""The clipping bound of `sound` private training: test MRR of short federations by model, graph and bound.

Run: python benchmarks/check_clip.py

Three clients, FedE, half of the statements confidential, σ = 1, ten rounds; one seed. The default of
`privacy.dp.clip` was picked from such a table by hand, on test scores: they do not show how well it does.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path
from tempfile import TemporaryDirectory

from fedkge import Experiment, run

GRAPHS = ("UMLS", "DDB14")
MODELS = ("TransE", "DistMult", "RotatE")
CLIPS = (None, 0.01, 0.03, 0.1, 0.3, 1.0)  # None: no differential privacy
SETTINGS = (
    "data.clients=3",
    "data.confidential=0.5",
    "model.dim=64",
    "training.negatives=32",
    "training.learning_rate=0.003",
    "federation.strategy=FedE",
    "federation.rounds=10",
    "federation.evaluate_every=5",
    "privacy.union=plain",
    "privacy.secure_aggregation=false",
    "engine.name=inline",
)


def main() -> None:
    print(f"{'graph':8}{'model':10}" + "".join(f"{'no DP' if clip is None else clip:>8}" for clip in CLIPS))
    for graph in GRAPHS:
        for model in MODELS:
            print(f"{graph:8}{model:10}", end="")
            for clip in CLIPS:
                print(f"{score(graph, model, clip):8.4f}", end="", flush=True)
            print()


def score(graph: str, model: str, clip: float | None) -> float:
    noise = [] if clip is None else ["privacy.dp.mode=sound", f"privacy.dp.clip={clip}"]
    wishes = [*SETTINGS, f"data.dataset={graph}", f"model.name={model}", *noise]
    with TemporaryDirectory() as folder:
        result = run(Experiment().override(wishes), Path(folder) / "run")
    return float(result.summary["utility"]["test"]["mrr"]["value"])


if __name__ == "__main__":
    main()
