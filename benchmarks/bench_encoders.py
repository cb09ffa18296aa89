"""Training of models with graph encoders: seconds of the processor for an epoch, and PyKEEN on the same work.

One thread each. An epoch is that of FB15k-237's 272,115 triples at the time of a batch: the median of three
of ours, and one of PyKEEN's, whose first batch of a process is not counted. Both have Adam, the same loss,
the same decoder, and no dropout of messages. All rows take some minutes of the processor.

Run: python benchmarks/bench_encoders.py [R-GCN] [CompGCN]
     python benchmarks/bench_encoders.py quality [UMLS] [FB15k-237]   (test MRR beside the shallow decoder)
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch

from fedkge.client.models import build_model
from fedkge.client.training.evaluate import evaluate
from fedkge.client.training.loop import train
from fedkge.client.training.negatives import NegativeSampler
from fedkge.client.training.steps import KernelStep
from fedkge.datasets import KnowledgeGraph, load_graph
from fedkge.experiment import EvaluationSettings, ModelSettings, TrainingSettings

DIM = 128
SIZES = {"FedR's": (512, 256), "large": (4096, 32)}  # batch, negatives
REPEATS = 3  # of ours
PROTOCOL = EvaluationSettings(sides="both", candidates="all", filter="own")
NO_DROPOUT = {"R-GCN": {"edge_dropout": 0.0, "self_dropout": 0.0}, "CompGCN": {"dropout": 0.0}}
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("R-GCN", {"layers": 1, "bases": 4}),
    ("R-GCN", {"layers": 2, "bases": 4}),
    ("CompGCN", {"layers": 1, "composition": "subtract"}),
    ("CompGCN", {"layers": 1, "composition": "multiply"}),
    ("CompGCN", {"layers": 1, "composition": "circular"}),
    ("CompGCN", {"layers": 2, "composition": "multiply"}),
)


# Epochs, batch, negatives, dimension, learning rates; what has the best MRR of so many validation triples, at
# most, is tested.
QUALITY = {"UMLS": (60, 512, 64, 64, (0.01, 0.003)), "FB15k-237": (6, 4096, 64, 64, (0.01,))}
VALIDATED = 2000
LEARNERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("DistMult", {}),
    ("R-GCN", {"decoder": "DistMult"}),
    ("CompGCN", {"decoder": "DistMult"}),
    ("TransE", {}),
    ("R-GCN", {"decoder": "TransE"}),
    ("CompGCN", {"decoder": "TransE", "composition": "subtract"}),
)


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["quality"]:
        for name in sys.argv[2:] or QUALITY:
            quality(name)
        return
    graph = load_graph("FB15k-237")
    print(f"FB15k-237, d={DIM}, DistMult as decoder, CPU seconds for an epoch; PyKEEN's from one batch")
    print(
        f"{'model':10}{'options':40}{'batch × negatives':>20}{'encoding':>10}{'epoch':>10}{'PyKEEN':>10}"
        f"{'ratio':>8}"
    )
    chosen = sys.argv[1:] or ["R-GCN", "CompGCN"]
    their_steps("CompGCN", {"layers": 1, "composition": "subtract"}, graph, 512, 32)()  # imports, warms up
    for name, options in [case for case in CASES if case[0] in chosen]:
        for batch, negatives in SIZES.values():
            print(row(name, options, graph, batch, negatives), flush=True)


def row(name: str, options: dict[str, Any], graph: KnowledgeGraph, batch: int, negatives: int) -> str:
    ours, encoding = our_steps(name, options, graph, batch, negatives)
    ours(), encoding()  # compiles and warms up
    times = [[seconds(encoding), seconds(ours)] for _ in range(REPEATS)]
    theirs = seconds(their_steps(name, options, graph, batch, negatives))
    batches = len(graph.train) / batch
    columns = [*(median(column) * batches for column in zip(*times, strict=True)), theirs * batches]
    ratio = columns[2] / columns[1]
    described = ", ".join(f"{key} {value}" for key, value in options.items())
    numbers = "".join(f"{column:10,.0f}" for column in columns)
    return f"{name:10}{described:40}{f'{batch} × {negatives}':>20}{numbers}{ratio:7.0f}×"


def quality(dataset: str) -> None:
    """Central training with equal dimension, batch, negatives and learning rates to choose from."""
    graph, (epochs, batch, negatives, dim, rates) = load_graph(dataset), QUALITY[dataset]
    print(f"{dataset}, d={dim}, batch {batch}, {negatives} negatives, at most {epochs} epochs, test MRR")
    print(f"{'model':10}{'options':50}{'rate':>8}{'epoch':>8}{'MRR':>8}{'CPU s':>8}")
    for name, options in LEARNERS:
        chosen, start = ModelSettings(name=name, dim=dim, options=options), process_time()
        trials = []
        for rate in rates:
            training = TrainingSettings(
                batch_size=batch, negatives=negatives, learning_rate=rate, corrupt="both"
            )
            trials += [(*trial, rate) for trial in trained(chosen, graph, training, epochs)]
        _, epoch, parameters, rate = max(trials, key=lambda trial: trial[0])
        model = type(build_model(chosen, graph, 0)).restore(chosen, graph, parameters)
        test = evaluate(model, graph, "test", PROTOCOL).metrics["mrr"]
        described = ", ".join(f"{key} {value}" for key, value in options.items())
        spent = process_time() - start
        print(f"{name:10}{described:50}{rate:8g}{epoch:8}{test:8.3f}{spent:8.0f}", flush=True)


def trained(
    chosen: ModelSettings, graph: KnowledgeGraph, training: TrainingSettings, epochs: int
) -> Iterator[tuple[float, int, dict[str, np.ndarray]]]:
    """Six times on the way: validation MRR, epoch, and all that was trained."""
    model, rng, state = build_model(chosen, graph, 0), np.random.default_rng(0), None
    few, step = replace(graph, valid=graph.valid[:VALIDATED]), max(1, epochs // 6)
    for epoch in range(step, epochs + 1, step):
        state = train(model, graph, rng, training, epochs=step, optimizer=state).optimizer
        kept = {name: array.copy() for name, array in {**model.parameters, **model.state_buffers}.items()}
        yield evaluate(model, few, "valid", PROTOCOL).metrics["mrr"], epoch, kept


def seconds(work: Callable[[], object]) -> float:
    start = process_time()
    work()
    return process_time() - start


def our_steps(
    name: str, options: dict[str, Any], graph: KnowledgeGraph, batch: int, negatives: int
) -> tuple[Callable[[], object], Callable[[], object]]:
    """A batch, and what encoding takes in it, forwards and backwards."""
    settings = TrainingSettings(batch_size=batch, negatives=negatives, corrupt="both")
    chosen = ModelSettings(name=name, dim=DIM, options={**options, **NO_DROPOUT[name]})
    model = build_model(chosen, graph, 0)
    step, sampler = KernelStep(model, settings), NegativeSampler(graph, settings)
    rng = np.random.default_rng(0)

    def work() -> None:
        step(sampler.batch(rng.integers(0, len(graph.train), batch), rng))

    def encoding() -> None:
        leaves = {each: model[each].detach().requires_grad_() for each in model.parameters}
        encoded = model.bind(leaves).encode()
        torch.autograd.grad(encoded, list(leaves.values()), [torch.ones_like(rows) for rows in encoded])

    return work, encoding


def their_steps(
    name: str, options: dict[str, Any], graph: KnowledgeGraph, batch: int, negatives: int
) -> Callable[[], object]:
    from peer import PeerEncoder  # takes seconds to import

    peer = PeerEncoder(name, options, graph, DIM, batch, negatives)
    return lambda: peer.run(batch)


if __name__ == "__main__":
    main()
