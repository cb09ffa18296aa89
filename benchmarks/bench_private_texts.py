"""CPU seconds that an epoch of `sound` takes over models of texts, from some steps.

Inductive FB15k-237 by BLP's rule, seed 0, every triple confidential, 16 negatives each, 128 dimensions:
`FEDKGE_DATA=… python benchmarks/bench_private_texts.py`. The first step compiles kernels, and is not counted.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from statistics import median
from time import process_time
from typing import Any

import numpy as np

from fedkge.client import build_model
from fedkge.client.privacy import mechanism_of
from fedkge.client.privacy.mechanism import TrainingSession
from fedkge.client.training.steps import KernelStep
from fedkge.client.training.threads import one_thread
from fedkge.datasets import load_graph, mark, unrestricted
from fedkge.datasets.features import attach, find
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.inductive import inductive
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings

MODELS: list[tuple[str, dict[str, Any]]] = [
    ("BLP", {"text": "minilm"}),
    ("BLP", {"text": "glove"}),
    ("Fusion", {"text": "glove"}),
    ("BOW", {"text": "glove"}),
    ("DKRL", {"text": "glove", "trainable": False}),
    ("DKRL", {"text": "glove"}),
]
STEPS = 5
SETTINGS = TrainingSettings(
    batch_size=1024, negatives=16, loss="margin-ranking", corrupt="both", learning_rate=1e-3
)
DP = DPSettings(mode="sound", clip=0.03)


def main() -> None:
    source = attach(load_graph("FB15k-237"), [find("FB15k-237-entity2wikidata.json.gz")])
    graph = mark(inductive(source, "0.1,0.1", 0), "1.0")
    print("| model | parameters | CPU seconds an epoch |\n|---|---|---|")
    for name, options in MODELS:
        count, seconds = measured(graph, name, options)
        words = ", words frozen" if options.get("trainable") is False else ""
        print(f"| `{name}`, {options['text']}{words} | {count:,} | {seconds:.0f} |", flush=True)


def measured(graph: KnowledgeGraph, name: str, options: dict[str, Any]) -> tuple[int, float]:
    """How many numbers are trained and noised, and the seconds."""
    settings = ModelSettings(name=name, dim=128, margin=1.0, options=options)
    model = build_model(settings, unrestricted(graph), 0)
    mechanism, rng = mechanism_of(DP), np.random.default_rng(0)
    with one_thread():
        plan = mechanism.plan(graph, SETTINGS)
        session = TrainingSession(model, graph, rng, SETTINGS, plan, KernelStep(model, SETTINGS), bytes(32))
        step, batches = mechanism.step(session), mechanism.batches(session).confidential()
        seconds = []
        for _ in range(1 + STEPS):
            start = process_time()
            step.confidential(next(batches))
            seconds.append(process_time() - start)
    count = sum(array.size for array in model.parameters.values())
    return count, median(seconds[1:]) * plan.confidential_steps


if __name__ == "__main__":
    main()
