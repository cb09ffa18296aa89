"""Two-sided filtered ranking: speed against PyKEEN, which ranks the first of our triples, and equality.

Speed is measured on the initial rows; we score a question once, however many triples ask it. Equality is
checked on rows of small integers, where every sum is exact in float32 and ties abound: rounding cannot excuse
a difference. The naive ranking sorts all scores of one question at a time. PyKEEN's RotatE has another score,
so only its speed is compared.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from statistics import median
from time import process_time

import numpy as np
import torch
from peer import PEERS, realistic_ranks, with_rows

from fedkge.client.models import Model, build_model
from fedkge.client.ranking import rank
from fedkge.client.scoring import Candidates, padded
from fedkge.datasets import KnowledgeGraph, load_graph
from fedkge.experiment import ModelSettings

DIM = 128
TRIPLES = 2000  # of the test split, for our ranking
PEER_TRIPLES = 128
NAIVE_TRIPLES = 200


def main() -> None:
    torch.set_num_threads(1)
    print(f"two-sided filtered ranking, d={DIM}, triples/s a core")
    print(f"{'graph':12}{'model':10}{'fedkge':>9}{'PyKEEN':>9}{'ratio':>8}{'≠ naive':>10}{'≠ PyKEEN':>11}")
    for graph_name in ("DDB14", "FB15k-237"):
        graph = load_graph(graph_name)
        for name in PEERS:
            print(row(graph, name), flush=True)


def row(graph: KnowledgeGraph, name: str) -> str:
    model = build_model(ModelSettings(name=name, dim=DIM), graph, 0)
    peer = with_rows(model, graph)
    ours, theirs = part_of(graph, TRIPLES), graph.test[:PEER_TRIPLES]
    rank(model, part_of(graph, 10))  # compiles, and builds the lookups of answers
    rates = []
    for _ in range(3):
        start = process_time()
        rank(model, ours)
        middle = process_time()
        realistic_ranks(peer, graph, theirs)
        rates.append((len(ours.test) / (middle - start), len(theirs) / (process_time() - middle)))
    fast, slow = (median(column) for column in zip(*rates, strict=True))
    ratio = median(a / b for a, b in rates)
    put_on_a_grid(model)
    wrong = naive_mismatches(model, part_of(graph, NAIVE_TRIPLES))
    unequal = "—" if name == "RotatE" else peer_mismatches(model, graph)
    return f"{graph.name:12}{name:10}{fast:9,.0f}{slow:9,.0f}{ratio:7.0f}×{wrong:>10}{unequal:>11}"


def part_of(graph: KnowledgeGraph, count: int) -> KnowledgeGraph:
    """The first test triples; the rest stay known answers."""
    rest = np.concatenate([graph.valid, graph.test[count:]])
    return KnowledgeGraph(
        graph.name, graph.entity_labels, graph.relation_labels, graph.train, rest, graph.test[:count]
    )


def naive_mismatches(model: Model, graph: KnowledgeGraph) -> int:
    found = rank(model, graph, "test", "both").ranks()
    known = {tuple(triple) for triple in graph.triples.tolist()}
    table = Candidates(model.comparison, padded(model.entity), len(model.entity))
    wrong = 0
    for i, (h, r, t) in enumerate(graph.test.tolist()):
        relation = model.relation[r : r + 1]
        for j, query in enumerate(
            (
                model.query_tail(model.entity[h : h + 1], relation),
                model.query_head(model.entity[t : t + 1], relation),
            )
        ):
            target = h if j else t
            scores = model.comparison.sign * table.compare(query.numpy())[0]
            others = [
                scores[e]
                for e in range(graph.num_entities)
                if e != target and ((e, r, t) if j else (h, r, e)) not in known
            ]
            ahead = sorted(others, reverse=True)
            best = 1 + sum(score > scores[target] for score in ahead)
            worst = 1 + sum(score >= scores[target] for score in ahead)
            wrong += found[i, j] != (best + worst) / 2
    return wrong


def put_on_a_grid(model: Model) -> None:
    rng = np.random.default_rng(0)
    for table in model.tables.values():
        table[:] = rng.integers(-2, 3, table.shape)


def peer_mismatches(model: Model, graph: KnowledgeGraph) -> int:
    part = part_of(graph, PEER_TRIPLES)
    return int(
        (rank(model, part).ranks() != realistic_ranks(with_rows(model, graph), graph, part.test)).sum()
    )


if __name__ == "__main__":
    main()
