"""Training throughput: kernels alone, end to end, and PyKEEN on the same work, in one run.

Seconds are of the processor, one thread, so that other programs on the machine count less. A round of two
clients of DDB14, each with its own entities, is timed by the clock, in turns: one after the other, in two
threads, and in two processes, which share no lock and so say what the machine can give. What other programs
take is only ever added, so a gain is that of the shortest times; in brackets the median of all turns, and
below what a loop gains that needs no memory. PyKEEN's negatives are unfiltered (its default), ours leave
known answers out.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np
import torch

from fedkge.client.kernels.compiled import compiled
from fedkge.client.kernels.fused import ROWS
from fedkge.client.kernels.gradients import Objective
from fedkge.client.kernels.losses import find_loss, slopes
from fedkge.client.kernels.pairwise import add_both_gradients, compare_all
from fedkge.client.kernels.scatter import group, in_order
from fedkge.client.models import build_model
from fedkge.client.training.loop import train
from fedkge.client.training.negatives import NegativeSampler
from fedkge.client.training.steps import KernelStep
from fedkge.datasets import KnowledgeGraph, load_graph, partition
from fedkge.experiment import ModelSettings, TrainingSettings

SETTINGS = TrainingSettings()  # 256 negatives, batches of 512, Adam
DIM = 128
BATCHES = 30
PEER_BATCHES = {"TransE": 4, "DistMult": 4, "ComplEx": 1, "RotatE": 2}
REPEATS = 3
THREAD_REPEATS = 21
SPINS = 100_000_000


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
        f"{'model':10}{'kernels':>10}{'training':>10}{'share':>8}{'PyKEEN':>10}{'ratio':>8}"
        f"{'2 threads':>16}{'2 processes':>16}"
    )
    for name in PEER_BATCHES:
        print(row(name, graph), flush=True)
    print(f"{'arithmetic alone':56}{''.join(gains(None))}")
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
        f"{name:10}{kernel:10,.0f}{ours:10,.0f}{share:8.0%}{theirs:10,.0f}{ratio:7.0f}×{''.join(gains(name))}"
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
    pairs, scale = group(batch.candidates, len(table)), model.scale.numpy()[batch.relations]
    passes = _passes(kind)

    def work() -> None:
        for _ in range(BATCHES):
            passes(int(objective.loss), objective.margin, objective.temperature, scale, queries, table, pairs)

    return work


def _passes(kind: int) -> Callable[..., float]:
    """For batches that lack no candidate."""

    @compiled
    def passes(loss, margin, temperature, scale, queries, table, pairs):
        compared = np.empty((len(queries), len(pairs.places) // len(queries)), dtype=np.float32)
        coefficients, losses = np.empty_like(compared), np.empty(len(queries), dtype=np.float32)
        compare_all(kind, queries, table, pairs, compared.reshape(compared.size))
        numbers = np.float32(margin), np.float32(temperature)
        slopes(kind, loss, *numbers, compared, scale, coefficients, losses)
        rows, ordered = np.arange(len(table)).astype(np.int32), in_order(coefficients, pairs)
        at_queries, at_rows = np.zeros_like(queries), np.empty((ROWS, table.shape[1]), dtype=np.float32)
        for start in range(0, len(rows), ROWS):
            block = rows[start : start + ROWS]
            add_both_gradients(kind, queries, table, ordered, pairs, block, at_queries, at_rows)
        return at_queries[0, 0] + at_rows[0, 0]

    return passes


def end_to_end(name: str, graph: KnowledgeGraph) -> Callable[[], None]:
    """Sampling, gradients and Adam, batch after batch."""
    model = build_model(ModelSettings(name=name, dim=DIM), graph, 0)
    step, sampler = KernelStep(model, SETTINGS), NegativeSampler(graph, SETTINGS)
    rng = np.random.default_rng(0)

    def work() -> None:
        for _ in range(BATCHES):
            step(sampler.batch(rng.integers(0, len(graph.train), SETTINGS.batch_size), rng))

    return work


def two_clients(name: str | None) -> Callable[[int], object]:
    """The local epochs of client 0 or 1, each with a model of its own; arithmetic without a name."""
    if name is None:
        return lambda _: spin(SPINS)
    clients = partition(load_graph("DDB14"), "fedr", 5, 0).clients[:2]
    models = [build_model(ModelSettings(name=name, dim=DIM), each, i) for i, each in enumerate(clients)]
    return lambda i: train(models[i], clients[i], np.random.default_rng(i), SETTINGS)


def gains(name: str | None) -> list[str]:
    """What two clients take one after the other over what they take at once, in threads and in processes."""
    work = two_clients(name)
    context = get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    processes = [
        context.Process(target=serve, args=(pipe, name, i), daemon=True) for i, (_, pipe) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    ends = [end for end, _ in pipes]

    def in_turn() -> None:
        for i in range(2):
            work(i)

    def in_processes() -> None:
        for end in ends:
            end.send(True)
        for end in ends:
            end.recv()

    with ThreadPoolExecutor(2) as pool:
        works = (in_turn, lambda: list(pool.map(work, range(2))), in_processes)
        times = [[clocked(each) for each in works] for _ in range(1 + THREAD_REPEATS)][1:]
    for process in processes:
        process.terminate()
    alone, *both = zip(*times, strict=True)
    return [
        f"{min(alone) / min(column):8.2f}× ({median(a / b for a, b in zip(alone, column, strict=True)):.2f})"
        for column in both
    ]


def clocked(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def serve(pipe: Connection, name: str | None, client: int) -> None:
    """Work whenever asked."""
    torch.set_num_threads(1)
    work = two_clients(name)
    while pipe.recv():
        work(client)
        pipe.send(True)


@compiled
def spin(steps: int) -> float:
    """Arithmetic that stays in registers."""
    x = 1.0
    for i in range(steps):
        x = x * 0.999999 + i
    return x


def peak_memory() -> int:
    graph = load_graph("FB15k-237")
    train(build_model(ModelSettings(dim=DIM), graph, 0), graph, np.random.default_rng(0), SETTINGS, epochs=1)
    # Not getrusage: its maximum begins with that of the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


if __name__ == "__main__":
    main()
