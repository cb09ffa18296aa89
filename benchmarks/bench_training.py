"""Training throughput: kernels alone, end to end, and PyKEEN on the same work, in one run.

Seconds are of the processor, one thread, so that other programs on the machine count less; two threads are
timed by the clock. PyKEEN's negatives are unfiltered (its default), ours leave known answers out.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np
import torch

from fedkge.client.gradients import Objective
from fedkge.client.kernels import both_gradients, compare_pairs
from fedkge.client.losses import find_loss, slopes
from fedkge.client.models import build_model
from fedkge.client.negatives import NegativeSampler
from fedkge.client.pairs import group, in_order
from fedkge.client.training import KernelStep, train
from fedkge.datasets import KnowledgeGraph, load_graph
from fedkge.experiment import ModelSettings, TrainingSettings

SETTINGS = TrainingSettings()  # 256 negatives, batches of 512, Adam
DIM = 128
BATCHES = 30
PEER_BATCHES = {"TransE": 4, "DistMult": 4, "ComplEx": 1, "RotatE": 2}
REPEATS = 3
THREAD_REPEATS = 9  # the clock sees whatever else the machine does


def main() -> None:
    if sys.argv[1:] == ["--memory"]:
        print(peak_memory())
        return
    torch.set_num_threads(1)
    graph = load_graph("FB15k-237")
    print(
        f"FB15k-237, d={DIM}, batch {SETTINGS.batch_size}, {SETTINGS.negatives} negatives, triples/s a core"
    )
    print(
        f"{'model':10}{'kernels':>10}{'training':>10}{'share':>8}{'PyKEEN':>10}{'ratio':>8}{'2 threads':>11}"
    )
    for name in PEER_BATCHES:
        print(row(name, graph), flush=True)
    memory = subprocess.run(
        [sys.executable, __file__, "--memory"], capture_output=True, text=True, check=True
    )
    print(f"peak memory of a process that trains TransE on FB15k-237 at d={DIM}: {memory.stdout.strip()} MB")


def row(name: str, graph: KnowledgeGraph) -> str:
    from peer import PeerTraining

    peer = PeerTraining(name, graph, DIM, SETTINGS.batch_size, SETTINGS.negatives)
    peer_triples = PEER_BATCHES[name] * SETTINGS.batch_size
    kernels, steps = kernels_alone(name, graph), end_to_end(name, graph)
    rates = [
        (
            rate(kernels, BATCHES * SETTINGS.batch_size),
            rate(steps, BATCHES * SETTINGS.batch_size),
            rate(lambda: peer.run(peer_triples), peer_triples),
        )
        for _ in range(1 + REPEATS)
    ][1:]  # the first compiles and warms up
    kernel, ours, theirs = (median(column) for column in zip(*rates, strict=True))
    share = median(b / a for a, b, _ in rates)
    ratio = median(b / c for _, b, c in rates)
    return (
        f"{name:10}{kernel:10,.0f}{ours:10,.0f}{share:8.0%}{theirs:10,.0f}{ratio:7.0f}×"
        f"{two_threads(name, graph):10.2f}×"
    )


def rate(work: Callable[[], None], triples: int) -> float:
    start = process_time()
    work()
    return triples / (process_time() - start)


def kernels_alone(name: str, graph: KnowledgeGraph) -> Callable[[], None]:
    """Scores, loss and every gradient of candidates and queries: no sampling, no optimiser."""
    model = build_model(ModelSettings(name=name, dim=DIM), graph, 0)
    batch = NegativeSampler(graph, SETTINGS).batch(np.arange(SETTINGS.batch_size), np.random.default_rng(0))
    table, kind = model.tables["entity"], int(model.comparison)
    queries = table[batch.anchors]
    objective = Objective(find_loss(SETTINGS.loss), 10.0, 1.0)
    pairs = group(batch.candidates, len(table))
    compared = np.empty(batch.candidates.shape, dtype=np.float32)
    coefficients, at_query = np.empty_like(compared), np.empty_like(queries)
    losses, scale = np.empty(len(queries), dtype=np.float32), np.ones(len(queries), dtype=np.float32)
    every, at_rows = np.arange(len(table), dtype=np.int32), np.empty_like(table)
    numbers = np.float32(objective.margin), np.float32(objective.temperature)

    def work() -> None:
        for _ in range(BATCHES):
            compare_pairs(kind, queries, table, pairs, compared)
            slopes(kind, int(objective.loss), *numbers, compared, scale, coefficients, losses)
            ordered = in_order(coefficients, pairs)
            at_query[:] = 0
            both_gradients(kind, queries, table, ordered, pairs, every, at_query, at_rows)

    return work


def end_to_end(name: str, graph: KnowledgeGraph) -> Callable[[], None]:
    """Sampling, gradients and Adam, batch after batch."""
    model = build_model(ModelSettings(name=name, dim=DIM), graph, 0)
    step, sampler = KernelStep(model, SETTINGS), NegativeSampler(graph, SETTINGS)
    rng = np.random.default_rng(0)

    def work() -> None:
        for _ in range(BATCHES):
            step(sampler.batch(rng.integers(0, len(graph.train), SETTINGS.batch_size), rng))

    return work


def two_threads(name: str, graph: KnowledgeGraph) -> float:
    """Triples a second of two clients in two threads, over those of one, by the clock."""
    part = KnowledgeGraph(
        graph.name, graph.entity_labels, graph.relation_labels, graph.train[:20480], graph.valid, graph.test
    )
    models = [build_model(ModelSettings(name=name, dim=DIM), graph, seed) for seed in range(2)]

    def client(i: int) -> None:
        train(models[i], part, np.random.default_rng(i), SETTINGS, epochs=1)

    gains = []
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(client, range(2)))  # the threads' memory comes from the system once
        for _ in range(THREAD_REPEATS):
            start = perf_counter()
            client(0)
            alone = perf_counter() - start
            start = perf_counter()
            list(pool.map(client, range(2)))
            gains.append(2 * alone / (perf_counter() - start))
    return median(gains)


def peak_memory() -> int:
    graph = load_graph("FB15k-237")
    train(build_model(ModelSettings(dim=DIM), graph, 0), graph, np.random.default_rng(0), SETTINGS, epochs=1)
    # Not getrusage: its maximum begins with that of the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


if __name__ == "__main__":
    main()
