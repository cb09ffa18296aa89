"""What the phase of `hubs` costs: FB15k-237, predicates of /people and /medicine confidential, TransE d = 50.

Run: FEDKGE_DATA=… python benchmarks/bench_hubs.py   (about two minutes)

The last 12 of 60 epochs as `privacy-utility` trains them, in seconds of the processor on one thread, beside
the same epochs on unrestricted triples alone. Rows begin anew: what they are does not change the work.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from time import process_time

import numpy as np

from fedkge.client.models import build_model
from fedkge.client.privacy import mechanism_of, train_privately
from fedkge.client.privacy.epoch_plan import Stretch
from fedkge.client.training.loop import train
from fedkge.datasets import mark, unrestricted
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.load import load
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings

MODEL = ModelSettings(name="TransE", dim=50, margin=3.0)
TRAINING = TrainingSettings(
    batch_size=521, negatives=1, learning_rate=2.0, optimizer="SGD", loss="margin-ranking", corrupt="both"
)
PHASE = Stretch(48, 12, 60)


def main() -> None:
    graph = load("FB15k-237")
    assert isinstance(graph, KnowledgeGraph)
    marked = mark(graph, "predicates:/people/*,/medicine/*")
    timed(marked, Stretch(59, 1, 60))  # compiles
    private, events = timed(marked, PHASE)
    began = process_time()
    public = unrestricted(marked)
    train(build_model(MODEL, public, 0), public, np.random.default_rng(0), TRAINING, epochs=PHASE.count)
    plain = process_time() - began
    confidential = int(marked.marks("train").sum())
    print(f"{confidential:,} confidential triples, {events} noisy sums over all of them")
    print(f"the phase of hubs {private:.1f} CPU s, the same epochs without it {plain:.1f} CPU s")


def timed(graph: KnowledgeGraph, stretch: Stretch) -> tuple[float, int]:
    dp = DPSettings(mode="hubs", target_epsilon=1.0)
    mechanism = mechanism_of(dp)
    delta, plan = mechanism.delta(graph), mechanism.plan(graph, TRAINING)
    sigma = mechanism.sigma_within(1.0, plan, stretch.total, delta)
    dp = dp.model_copy(update={"sigma": sigma})
    model = build_model(MODEL, unrestricted(graph), 0)
    began = process_time()
    result = train_privately(model, graph, np.random.default_rng(0), TRAINING, dp, bytes(32), stretch=stretch)
    return process_time() - began, sum(event.steps for event in result.events)


if __name__ == "__main__":
    main()
