"""A round of federated NoGE against a plain torch version: CPU seconds of one thread, peak memory.

A round is three epochs of KvsAll at every client, as the FedR authors' code sets them: d=128, 1024 questions
a batch, Adam, dropout ½, smoothing. The torch version builds a dense target for each batch, and keeps all
scores. Of FB15k-237 one client of five is taken.

Run: python benchmarks/bench_noge.py [DDB14] [FB15k-237]
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import resource
import sys
from collections import defaultdict
from time import process_time

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, dropout

from fedkge.client.models import build_model
from fedkge.client.models.cooccurrence import cooccurrence
from fedkge.client.training.loop import train
from fedkge.datasets import KnowledgeGraph, load_graph, partition
from fedkge.experiment import ModelSettings, TrainingSettings

CLIENTS, DIM, EPOCHS, BATCH = 5, 128, 3, 1024
SETTINGS = TrainingSettings(
    type="KvsAll",
    local_epochs=EPOCHS,
    batch_size=BATCH,
    learning_rate=0.01,
    label_smoothing=0.1,
    label_spread="one",
    max_gradient_norm=0.5,
)
PARTITIONS = {"DDB14": "fedr-legacy", "FB15k-237": "fedr"}
MOST = 8.0  # seconds of a round on DDB14
MOST_MB = 2048.0  # of a process with one client


def main() -> None:
    torch.set_num_threads(1)
    chosen = sys.argv[1:] or ["DDB14"]
    print(
        f"NoGE, {CLIENTS} clients, d={DIM}, {EPOCHS} epochs, {BATCH} questions a batch, CPU seconds, 1 thread"
    )
    print(
        f"{'graph':12}{'clients':>8}{'fedkge':>9}{'torch':>9}{'ratio':>8}{'peak MB':>9}{'loss':>9}"
        f"{'torch':>9}"
    )
    missed = False
    for name in chosen:
        clients = partition(load_graph(name), PARTITIONS[name], CLIENTS, 0).clients
        missed |= compare(name, clients if name == "DDB14" else clients[:1])
    sys.exit(f"a round took more than {MOST:g} seconds, or {MOST_MB:g} MB" if missed else 0)


def compare(name: str, clients: tuple[KnowledgeGraph, ...]) -> bool:
    ours(clients[0], 1)  # compiles
    found = [ours(graph, EPOCHS) for graph in clients]
    seconds, losses = (sum(part) for part in zip(*found, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # before torch's version asks for more
    plain = [theirs(graph, EPOCHS) for graph in clients]
    torch_seconds, torch_losses = (sum(part) for part in zip(*plain, strict=True))
    numbers = f"{seconds:9.1f}{torch_seconds:9.1f}{torch_seconds / seconds:8.1f}{peak:9.0f}"
    means = f"{losses / len(clients):9.3f}{torch_losses / len(clients):9.3f}"
    print(f"{name:12}{len(clients):8}{numbers}{means}", flush=True)
    return (name == "DDB14" and seconds > MOST) or peak > MOST_MB


def ours(graph: KnowledgeGraph, epochs: int) -> tuple[float, float]:
    """Seconds, and the loss of the last epoch."""
    model = build_model(ModelSettings(name="NoGE", dim=DIM), graph, 0)
    start = process_time()
    result = train(model, graph, np.random.default_rng(0), SETTINGS, epochs=epochs)
    return process_time() - start, result.losses[-1]


class DenseNoGE(nn.Module):
    """The model as its paper describes it, one line for each equation."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        super().__init__()
        self.num_entities = graph.num_entities
        self.adjacency = cooccurrence(graph).tensor()
        count = graph.num_entities + graph.num_relations
        self.nodes = nn.Parameter(torch.randn(count, DIM) * 0.02)
        self.layer = nn.Parameter(torch.empty(DIM, DIM).uniform_(-(DIM**-0.5), DIM**-0.5))
        self.norm = nn.BatchNorm1d(DIM)

    def forward(self, heads: Tensor, relations: Tensor) -> Tensor:
        rows = torch.tanh(self.norm(torch.sparse.mm(self.adjacency, self.nodes @ self.layer)))
        a, b, c, d = rows[heads].chunk(4, dim=1)
        r = rows[self.num_entities + relations].chunk(4, dim=1)
        length = torch.sqrt(sum(part**2 for part in r))
        p, q, u, v = (part / length for part in r)
        product = torch.cat(
            [
                a * p - b * q - c * u - d * v,
                a * q + b * p + c * v - d * u,
                a * u - b * v + c * p + d * q,
                a * v + b * u - c * q + d * p,
            ],
            dim=1,
        )
        return dropout(product, 0.5) @ rows[: self.num_entities].T


def theirs(graph: KnowledgeGraph, epochs: int) -> tuple[float, float]:
    torch.manual_seed(0)
    model, rng = DenseNoGE(graph), np.random.default_rng(0)
    start = process_time()
    optimizer = torch.optim.Adam(model.parameters(), lr=SETTINGS.learning_rate)
    answers = defaultdict(list)
    for head, relation, tail in graph.train.tolist():
        answers[head, relation].append(tail)
    questions = np.array(list(answers))
    total = 0.0
    for _ in range(epochs):
        total = 0.0
        rng.shuffle(questions)
        for batch in (questions[i : i + BATCH] for i in range(0, len(questions), BATCH)):
            target = torch.zeros(len(batch), graph.num_entities)
            for row, (head, relation) in enumerate(batch.tolist()):
                target[row, answers[head, relation]] = 1.0
            target = 0.9 * target + 1 / graph.num_entities
            ids = torch.from_numpy(batch)
            loss = binary_cross_entropy_with_logits(model(ids[:, 0], ids[:, 1]), target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), SETTINGS.max_gradient_norm)
            optimizer.step()
            total += loss.item() * len(batch)
    return process_time() - start, total / len(questions)


if __name__ == "__main__":
    main()
