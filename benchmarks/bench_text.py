"""CPU seconds of an epoch of models that read descriptions, and what they rank held-out entities with.

Own split of FB15k-237 or WN18RR by BLP's rule, seed 0; 1,500 validation triples, so nothing is chosen by test
scores: `FEDKGE_DATA=… python benchmarks/bench_text.py BLP minilm`. The first epoch compiles kernels.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from time import process_time

import numpy as np

from fedkge.client import build_model, measure, rank, train
from fedkge.datasets import load_graph
from fedkge.datasets.features import described_by, find
from fedkge.datasets.inductive import inductive
from fedkge.experiment import ModelSettings, TrainingSettings

TEXTS = {
    "FB15k-237": ("FB15k-237-entity2wikidata.json.gz", "text/FB15k_mid2name.txt.gz"),
    "WN18RR": ("text/WN18RR-entity2text.txt.gz",),
}
SAMPLE = 1500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--dataset", default="FB15k-237", choices=TEXTS)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--margin", type=float, default=9.0)
    chosen = parser.parse_args()
    source = load_graph(chosen.dataset)
    graph = inductive(described_by(source, [find(path) for path in TEXTS[chosen.dataset]]), "0.1,0.1", 0)
    model_settings = ModelSettings(
        name=chosen.model, dim=chosen.dim, margin=chosen.margin, options={"text": chosen.text}
    )
    start = process_time()
    model = build_model(model_settings, graph, 0)
    print(f"{len(graph.train):,} train triples; texts read in {process_time() - start:.1f} CPU s")
    settings = TrainingSettings(corrupt="both", shared_negatives=True, learning_rate=1e-3)
    rng, optimizer = np.random.default_rng(0), None
    for epoch in range(chosen.epochs):
        start = process_time()
        result = train(model, graph, rng, settings, epochs=1, optimizer=optimizer)
        optimizer = result.optimizer
        print(f"epoch {epoch}: {process_time() - start:.1f} CPU s, loss {result.losses[0]:.4f}", flush=True)
    rows = np.random.default_rng(1).choice(len(graph.valid), SAMPLE, replace=False)
    metrics = measure(rank(model, replace(graph, valid=graph.valid[rows]), "valid"))
    print(", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))


if __name__ == "__main__":
    main()
