"""What privacy costs a training step: sound mode, the same step without privacy, and Opacus, in one run.

TransE with L1, d = 128, the same batches for all, seconds of the processor on one thread. Opacus' hooks hold
a gradient of the whole vocabulary for every triple (B × V × d floats: 4 GB for the first line), so they get
few triples, and their time is a straight line through two such sizes; ghost clipping gets the whole batch.
Opacus' noise is torch's, which is faster than its secure mode.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time

import numpy as np
import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping
from torch import Tensor, nn

from fedkge.client.kernels.losses import Loss, loss_per_triple
from fedkge.client.models import build_model
from fedkge.client.privacy.noise import choose_noise
from fedkge.client.privacy.normals import Keystream
from fedkge.client.privacy.sound import SoundStep
from fedkge.client.training.negatives import Batch, NegativeSampler
from fedkge.client.training.steps import KernelStep
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings

MODEL = ModelSettings(dim=128)
RELATIONS, TRIPLES = 237, 60_000
SIGMA, CLIP = 1.0, 1.0
BATCHES = 10
HOOK_TRIPLES = (4, 16)  # 120 MB of gradients at 14,541 entities


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    entities: int
    batch: int
    negatives: int
    optimizer: str
    noise: str
    at_most: float  # times the step without privacy
    repeats: int  # all in turns, since the machine is faster at one time than at another

    @property
    def settings(self) -> TrainingSettings:
        return TrainingSettings(
            batch_size=self.batch, negatives=self.negatives, optimizer=self.optimizer, filter_negatives=False
        )


CASES = (
    Case(14_541, 521, 1, "SGD", "lazy", 2, 25),
    Case(4_462, 512, 256, "Adam", "dense", 2, 3),
    Case(14_541, 512, 256, "Adam", "dense", 3, 3),
)


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    print(f"TransE L1, d={MODEL.dim}, milliseconds of one core for a confidential step (medians)")
    print(
        f"{'entities':>9}{'batch':>7}{'neg.':>6}{'optimizer':>11}{'noise':>7}{'plain':>9}{'sound':>9}"
        f"{'times':>7}{'target':>8}{'ghost':>9}{'ours':>7}{'hooks':>10}{'ours':>8}"
    )
    for case in CASES:
        print(row(case), flush=True)
    print("targets: sound at most 2 × plain (3 × in the last line); at least 20 × ghost and 100 × hooks")
    print(f"hooks ran on {HOOK_TRIPLES} triples; the line through both gives the batch's time")


def row(case: Case) -> str:
    graph = random_graph(case.entities)
    batches = draw(graph, case)
    plain, sound = plain_step(graph, case), sound_step(graph, case)
    ghost, hooks = ghost_step(graph, case), hook_step(graph, case)
    timed(plain, batches), timed(sound, batches), timed(ghost, batches[:1])  # compiles, and warms up
    turns = [
        (timed(plain, batches), timed(sound, batches), timed(ghost, batches[:2])) for _ in range(case.repeats)
    ]
    d = median(extrapolated(hooks, batches[0]) for _ in range(3))
    a, b, c = (median(column) for column in zip(*turns, strict=True))
    times, faster = (median(turn[i + 1] / turn[i] for turn in turns) for i in range(2))
    return (
        f"{case.entities:9,}{case.batch:7}{case.negatives:6}{case.optimizer:>11}{case.noise:>7}{a:9.2f}{b:9.2f}"
        f"{times:6.2f}×{case.at_most:7.0f}×{c:9.1f}{faster:6.0f}×{d:10,.0f}{d / b:7,.0f}×"
    )


def extrapolated(step: Callable[[Batch], object], batch: Batch) -> float:
    """What a step would take for the whole batch, from two small ones."""
    few, more = HOOK_TRIPLES
    first, second = timed(step, [cut(batch, few)] * 2), timed(step, [cut(batch, more)] * 2)
    return first + (second - first) * (len(batch.anchors) - few) / (more - few)


def timed(step: Callable[[Batch], object], batches: Sequence[Batch]) -> float:
    """Milliseconds per step."""
    start = process_time()
    for batch in batches:
        step(batch)
    return 1e3 * (process_time() - start) / len(batches)


def random_graph(entities: int) -> KnowledgeGraph:
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, bound, TRIPLES) for bound in (entities, RELATIONS, entities)]
    labels = (tuple(f"{kind}{i}" for i in range(n)) for kind, n in (("e", entities), ("r", RELATIONS)))
    none = np.empty((0, 3), dtype=np.int32)
    return KnowledgeGraph("random", *labels, np.stack(columns, axis=1).astype(np.int32), none, none)


def draw(graph: KnowledgeGraph, case: Case) -> list[Batch]:
    rng = np.random.default_rng(1)
    sampler = NegativeSampler(graph, case.settings)
    return [sampler.batch(rng.permutation(TRIPLES)[: case.batch], rng) for _ in range(BATCHES)]


def cut(batch: Batch, count: int) -> Batch:
    return Batch(batch.anchors[:count], batch.relations[:count], batch.candidates[:count], count)


def plain_step(graph: KnowledgeGraph, case: Case) -> Callable[[Batch], float]:
    return KernelStep(build_model(MODEL, graph, 0), case.settings)


def sound_step(graph: KnowledgeGraph, case: Case) -> Callable[[Batch], float]:
    model = build_model(MODEL, graph, 0)
    kernel = KernelStep(model, case.settings)
    dp = DPSettings(mode="sound", noise=case.noise)  # type: ignore[arg-type]
    noise, why = choose_noise(dp, case.settings, kernel.optimizer, Keystream(bytes(32)), model.tables)
    assert not why
    return SoundStep(kernel, noise, SIGMA, CLIP, case.batch).confidential


class PeerModel(nn.Module):
    """TransE over two embeddings; one look-up of all entities, as ghost clipping needs it."""

    def __init__(self, entities: int) -> None:
        super().__init__()
        self.entity = nn.Embedding(entities, MODEL.dim)
        self.relation = nn.Embedding(RELATIONS, MODEL.dim)
        for table in (self.entity, self.relation):
            nn.init.uniform_(table.weight, -0.1, 0.1)

    def forward(self, ids: Tensor, relations: Tensor) -> Tensor:
        rows = self.entity(ids)  # (b, 2 + n, d): anchor, target, negatives
        query = rows[:, :1] + self.relation(relations)  # (b, 1, d)
        return MODEL.margin - (query - rows[:, 1:]).abs().sum(-1)


def losses(model: nn.Module, batch: Batch) -> Tensor:
    ids = torch.from_numpy(
        np.concatenate([batch.anchors[:, None], batch.candidates], axis=1).astype(np.int64)
    )
    scores = model(ids, torch.from_numpy(batch.relations.astype(np.int64))[:, None])
    return loss_per_triple(Loss.SELF_ADVERSARIAL, scores, MODEL.margin, 1.0)


def torch_optimizer(model: nn.Module, case: Case) -> torch.optim.Optimizer:
    kind = torch.optim.SGD if case.optimizer == "SGD" else torch.optim.Adam
    return kind(model.parameters(), lr=1e-3)


def ghost_step(graph: KnowledgeGraph, case: Case) -> Callable[[Batch], None]:
    model = GradSampleModuleFastGradientClipping(
        PeerModel(graph.num_entities), max_grad_norm=CLIP, use_ghost_clipping=True, loss_reduction="mean"
    )
    optimizer = DPOptimizerFastGradientClipping(
        torch_optimizer(model, case),
        noise_multiplier=SIGMA,
        max_grad_norm=CLIP,
        expected_batch_size=case.batch,
        loss_reduction="mean",
    )

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        DPTensorFastGradientClipping(model, optimizer, losses(model, batch), "mean").backward()
        optimizer.step()

    return step


def hook_step(graph: KnowledgeGraph, case: Case) -> Callable[[Batch], None]:
    model = GradSampleModule(PeerModel(graph.num_entities), loss_reduction="mean")
    optimizer = DPOptimizer(
        torch_optimizer(model, case),
        noise_multiplier=SIGMA,
        max_grad_norm=CLIP,
        expected_batch_size=case.batch,
        loss_reduction="mean",
    )

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        losses(model, batch).mean().backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
