"""KB-GAT on one of three clients of DDB14, in CPU seconds: ours, and torch as one would write it.

The torch version makes every edge's message of a row of three, A [x_t ; x_h ; g], and every output of ConvKB;
both have autograd and Adam. Ratios of alternating turns on one thread.

Run: python benchmarks/bench_kbgat.py
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable
from statistics import median
from time import process_time

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import dropout, elu, leaky_relu, normalize, softplus

from fedkge.client.models import build_model
from fedkge.client.models.convolution import ConvKB
from fedkge.client.models.graph_attention import GraphAttention
from fedkge.client.training.loop import build_step
from fedkge.client.training.negatives import NegativeSampler
from fedkge.client.training.ranks import rank
from fedkge.datasets import KnowledgeGraph, load_graph, partition
from fedkge.experiment import ModelSettings, TrainingSettings

DIM, FILTERS, TURNS = 50, 50, 5
ENCODER = TrainingSettings(
    batch_size=10**6, negatives=2, loss="margin-ranking", corrupt="both", learning_rate=1e-3
)
DECODER = TrainingSettings(batch_size=128, negatives=40, loss="binary-cross-entropy", corrupt="both")
QUERIES = 8


def main() -> None:
    torch.set_num_threads(1)
    graph = partition(load_graph("DDB14"), "fedr-legacy", 3, 0).clients[1]
    encoder = GraphAttention.build(ModelSettings(dim=DIM, margin=5.0), graph, 0)
    paths = int((encoder["second"] >= 0).sum())
    print(f"{graph.num_entities:,} entities, {len(graph.train):,} edges, {paths:,} paths; CPU seconds")
    print(f"{'':38}{'ours':>10}{'torch':>10}{'ratio':>8}")
    report("an epoch of KB-GAT, full batch", our_epoch(encoder, graph), torch_epoch(encoder, graph))
    decoder = build_model(ModelSettings(name="ConvKB", dim=DIM, options={"filters": FILTERS}), graph, 0)
    assert isinstance(decoder, ConvKB)
    report("a step of ConvKB, 128 × 41", our_step(decoder, graph), torch_step(decoder, graph))
    rank(decoder, graph, "valid", "tail")  # compiles
    start, queries = process_time(), len(np.unique(graph.test[:, :2], axis=0))
    rank(decoder, graph, "test", "tail")
    ours = (process_time() - start) / queries
    theirs = seconds(torch_queries(decoder, graph)) / QUERIES
    print(f"{'a query of ConvKB against all entities':38}{ours:10.4f}{theirs:10.4f}{theirs / ours:7.0f}×")


def report(name: str, ours: Callable[[], object], theirs: Callable[[], object]) -> None:
    ours(), theirs()
    times = [(seconds(ours), seconds(theirs)) for _ in range(TURNS)]
    first, second = (median(column) for column in zip(*times, strict=True))
    print(f"{name:38}{first:10.4f}{second:10.4f}{median(b / a for a, b in times):7.1f}×", flush=True)


def seconds(work: Callable[[], object]) -> float:
    start = process_time()
    work()
    return process_time() - start


def our_epoch(model: GraphAttention, graph: KnowledgeGraph) -> Callable[[], object]:
    rng, sampler = np.random.default_rng(0), NegativeSampler(graph, ENCODER)
    step = build_step(model, ENCODER, rng=rng)
    return lambda: step(sampler.batch(np.arange(len(graph.train)), rng))


def torch_epoch(model: GraphAttention, graph: KnowledgeGraph) -> Callable[[], object]:
    starts, senders, first, second = (model[name].long() for name in ("starts", "senders", "first", "second"))
    receivers = torch.repeat_interleave(torch.arange(len(starts) - 1), starts.diff())
    rng, sampler = np.random.default_rng(0), NegativeSampler(graph, ENCODER)
    leaves = {name: model[name].clone().requires_grad_() for name in model.parameters}
    adam = torch.optim.Adam(leaves.values(), lr=1e-3)

    def layer(x: Tensor, g: Tensor, a: Tensor, weight: Tensor) -> Tensor:
        along = g[first] + torch.where((second >= 0)[:, None], g[second.clamp(min=0)], 0)
        messages = torch.cat([x[receivers], x[senders], along], dim=1) @ a[0]  # (e, d)
        raised = torch.exp(-leaky_relu(messages @ weight[0, 0], 0.2))
        total = torch.zeros(len(x)).index_add(0, receivers, raised).clamp(min=1e-12)
        weighed = messages * dropout(raised, 0.3)[:, None]
        return torch.zeros_like(x).index_add(0, receivers, weighed) / total[:, None]

    def epoch() -> None:
        x, g = normalize(leaves["entity"], dim=1), leaves["relation"]
        hidden = dropout(elu(layer(x, g, leaves["messages"], leaves["attention"])), 0.3)
        relations = g @ leaves["relation_map"]
        out = elu(layer(hidden, relations, leaves["last_messages"], leaves["last_attention"]))
        rows = normalize(x @ leaves["entity_map"] + out, dim=1)
        batch = sampler.batch(np.arange(len(graph.train)), rng)
        anchors, kinds, offered = (torch.from_numpy(ids.astype(np.int64)) for ids in batch[:3])
        sign = torch.where(torch.arange(len(anchors)) < batch.num_tails, 1.0, -1.0)[:, None]
        moved = rows[anchors] + sign * relations[kinds]  # h + r, or t − r
        scores = -(moved[:, None] - rows[offered]).abs().sum(-1)
        loss = torch.relu(5 + scores[:, 1:] - scores[:, :1]).mean()
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()

    return epoch


def our_step(model: ConvKB, graph: KnowledgeGraph) -> Callable[[], object]:
    rng, sampler = np.random.default_rng(0), NegativeSampler(graph, DECODER)
    step = build_step(model, DECODER, rng=rng)
    return lambda: step(sampler.batch(rng.integers(0, len(graph.train), 128), rng))


def torch_step(model: ConvKB, graph: KnowledgeGraph) -> Callable[[], object]:
    rng, sampler = np.random.default_rng(0), NegativeSampler(graph, DECODER)
    leaves = {name: model[name].clone().requires_grad_() for name in model.parameters}
    adam = torch.optim.Adam(leaves.values(), lr=1e-3)

    def step() -> None:
        batch = sampler.batch(rng.integers(0, len(graph.train), 128), rng)
        anchors, kinds, offered = (torch.from_numpy(ids.astype(np.int64)) for ids in batch[:3])
        rows = leaves["entity"]
        kept, c = rows[anchors][:, None].expand(-1, offered.shape[1], -1), rows[offered]
        is_tail = (torch.arange(len(anchors)) < batch.num_tails)[:, None, None]
        h, t = torch.where(is_tail, kept, c), torch.where(is_tail, c, kept)
        scores = all_outputs(leaves, h, leaves["relation"][kinds][:, None].expand_as(h), t)
        loss = (softplus(-scores[:, 0]) + softplus(scores[:, 1:]).sum(1)).mean() / 41
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()

    return step


def torch_queries(model: ConvKB, graph: KnowledgeGraph) -> Callable[[], object]:
    leaves = {name: model[name] for name in model.parameters}

    def work() -> None:
        rows = leaves["entity"]
        for head, relation, _ in graph.test[:QUERIES].tolist():
            h, r = rows[head].expand_as(rows), leaves["relation"][relation].expand_as(rows)
            with torch.no_grad():
                all_outputs(leaves, h, r, rows).argsort()

    return work


def all_outputs(leaves: dict[str, Tensor], h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    outputs = torch.relu(torch.stack([h, r, t], dim=-1) @ leaves["filters"] + leaves["filter_bias"])
    return (outputs * leaves["dense"]).sum((-1, -2)) + leaves["offset"]


if __name__ == "__main__":
    main()
