"""Ranking by both filters at once against ranking by one: CPU seconds of one core, in turns.

One client of a graph that is divided at random among five ranks its test triples on both sides: by its own
answers alone, and by its own and those of all five. Scores are computed once for both filters, and the own
ranks must be the same bits.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import TypeVar

import numpy as np
import torch

from fedkge.client.models import build_model
from fedkge.client.training.ranks import rank, rank_by_filter
from fedkge.client.training.truths import Truths
from fedkge.datasets import Split, load_graph, partition
from fedkge.experiment import ModelSettings

DIM = 128
CLIENTS = 5
TURNS = 5
MODELS = ("TransE", "ComplEx", "RotatE")
LEAST = 0.2  # seconds of a turn: a small graph is ranked several times
MOST = 1.3  # times the cost of one filter

Result = TypeVar("Result")


def main() -> None:
    torch.set_num_threads(1)
    print(
        f"client 0 of {CLIENTS} ranks its test triples on both sides, d={DIM}, CPU seconds, median of {TURNS}"
    )
    print(f"{'graph':12}{'model':10}{'own':>9}{'own, all':>10}{'ratio':>8}{'others':>9}")
    slow = False
    for name in ("UMLS", "FB15k-237"):
        split = partition(load_graph(name), "random", clients=CLIENTS)
        for model in MODELS:
            slow |= compare(split, name, model) > MOST
    sys.exit(f"both filters took more than {MOST} times as long as one" if slow else 0)


def compare(split: Split, name: str, model_name: str) -> float:
    graph, *others = split.clients
    model = build_model(ModelSettings(name=model_name, dim=DIM), graph, 0)
    truths = Truths.of_others(graph, others)
    rank_by_filter(model, graph, "valid", others=truths)  # compiles, and builds the lookups of answers
    start = process_time()
    rank(model, graph)
    times = int(LEAST / (process_time() - start)) + 1
    one, both = [], []
    for _ in range(TURNS):
        own_seconds, own = timed(times, lambda: rank(model, graph))
        both_seconds, filtered = timed(times, lambda: rank_by_filter(model, graph, others=truths))
        one.append(own_seconds)
        both.append(both_seconds)
        assert np.array_equal(own.better, filtered["own"].better)
        assert np.array_equal(own.equal, filtered["own"].equal)
    ratio = median(b / a for a, b in zip(one, both, strict=True))
    seconds = f"{median(one):9.4f}{median(both):10.4f}{ratio:8.2f}"
    print(f"{name:12}{model_name:10}{seconds}{len(truths.triples):9,}", flush=True)
    return ratio


def timed(times: int, work: Callable[[], Result]) -> tuple[float, Result]:
    start = process_time()
    for _ in range(times - 1):
        work()
    result = work()
    return (process_time() - start) / times, result


if __name__ == "__main__":
    main()
