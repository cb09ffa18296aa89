"""Two-sided filtered ranking: speed against PyKEEN, which ranks the first of our triples, and equality.

Speed is measured on the initial rows; we score a question once, however many triples ask it. The naive
ranking counts all float64 scores of one question at a time. On the initial rows it excuses candidates whose
score is the target's to within float32 rounding; on a grid of small integers, where every sum is exact in
float32 and ties abound, it excuses nothing. PyKEEN's RotatE has another score: only its speed is compared.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from statistics import median
from time import process_time

import numpy as np
import torch
from peer import PEERS, realistic_ranks, with_rows

from fedkge.client.kernels.comparisons import Comparison, compare
from fedkge.client.models import Model, build_model
from fedkge.client.training.ranks import rank
from fedkge.datasets import KnowledgeGraph, load_graph
from fedkge.experiment import ModelSettings

DIM = 128
TRIPLES = 2000  # of the test split, for our ranking
PEER_TRIPLES = 128
NAIVE_TRIPLES = 200
ROUNDING = 1e-6  # of the largest score of a question


def main() -> None:
    torch.set_num_threads(1)
    print(f"two-sided filtered ranking, d={DIM}, triples/s a core")
    titles = f"{'fedkge':>9}{'PyKEEN':>9}{'ratio':>8}{'≠ naive':>10}{'on grid':>10}{'≠ PyKEEN':>11}"
    print(f"{'graph':12}{'model':10}{titles}")
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
    part = part_of(graph, NAIVE_TRIPLES)
    rounded = naive_mismatches(model, part, ROUNDING)
    put_on_a_grid(model)
    wrong = naive_mismatches(model, part, 0)
    unequal = "—" if name == "RotatE" else peer_mismatches(model, graph)
    return (
        f"{graph.name:12}{name:10}{fast:9,.0f}{slow:9,.0f}{ratio:7.0f}×{rounded:>10}{wrong:>10}{unequal:>11}"
    )


def part_of(graph: KnowledgeGraph, count: int) -> KnowledgeGraph:
    """The first test triples; the rest stay known answers."""
    rest = np.concatenate([graph.valid, graph.test[count:]])
    return KnowledgeGraph(
        graph.name, graph.entity_labels, graph.relation_labels, graph.train, rest, graph.test[:count]
    )


def naive_mismatches(model: Model, graph: KnowledgeGraph, rounding: float) -> int:
    """Ranks that sorting the scores in float64 does not give, whichever way scores so near to it fall."""
    found = rank(model, graph, "test", "both").ranks()
    known = {tuple(triple) for triple in graph.triples.tolist()}
    rows = model.entity.double()
    wrong = 0
    for i, (h, r, t) in enumerate(graph.test.tolist()):
        relation = model.relation[r : r + 1].double()
        queries = (model.query_tail(rows[h : h + 1], relation), model.query_head(rows[t : t + 1], relation))
        for j, query in enumerate(queries):
            target = h if j else t
            scores = (model.comparison.sign * compare(model.comparison, query, rows)).tolist()
            others = [
                scores[e]
                for e in range(graph.num_entities)
                if e != target and ((e, r, t) if j else (h, r, e)) not in known
            ]
            near = rounding * max(map(abs, scores))
            best = 1 + sum(score > scores[target] + near for score in others)
            worst = 1 + sum(score >= scores[target] - near for score in others)
            right = best <= found[i, j] <= worst if rounding else found[i, j] == (best + worst) / 2
            wrong += not right
    return wrong


def put_on_a_grid(model: Model) -> None:
    rng = np.random.default_rng(0)
    for table in model.tables.values():
        table[:] = rng.integers(-2, 3, table.shape)
    if model.comparison is Comparison.MODULUS:  # a modulus is exact on either axis, a turn by nothing too
        real, imaginary = np.split(model.tables["entity"], 2, axis=1)
        real[:, ::2], imaginary[:, 1::2], model.tables["relation"][:] = 0, 0, 0


def peer_mismatches(model: Model, graph: KnowledgeGraph) -> int:
    part = part_of(graph, PEER_TRIPLES)
    return int(
        (rank(model, part).ranks() != realistic_ranks(with_rows(model, graph), graph, part.test)).sum()
    )


if __name__ == "__main__":
    main()
