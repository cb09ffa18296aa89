"""The contract of a DP mechanism: what its ε is worth, what it refuses, which batches it draws, its step.

A mechanism of another package is registered by an entry point of the group `fedkge.mechanisms`; its name is
what `privacy.dp.mode` says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.gradients import EntitySums, RelationSums, TripleGradients
from fedkge.client.models.model import Model
from fedkge.client.privacy.accountant import Accountant, Event, sigma_for
from fedkge.client.privacy.epoch_plan import EpochPlan, Stretch
from fedkge.client.privacy.normals import Keystream, derived
from fedkge.client.training.loop import shuffled
from fedkge.client.training.negatives import Batch, NegativeSampler
from fedkge.client.training.optimizers import State
from fedkge.client.training.steps import KernelStep
from fedkge.datasets import unrestricted
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, SettingError
from fedkge.experiment import DPSettings, ModelSettings, NoOptions, Settings, TrainingSettings, options_of
from fedkge.plugins import Registry

__all__ = [
    "MECHANISMS",
    "Batches",
    "Mechanism",
    "PrivateStep",
    "TrainingSession",
    "mechanism_of",
    "row_sums",
    "walk",
]

BLOCK = 2**16  # floats of a gradient held at once: they stay in the cache until they are noised and applied
_VALIDATED = "validation scores, and so the choice of the best round and the stop: confidential triples enter"

Sums = EntitySums | RelationSums


class TrainingSession:
    """What one call of private training has, and randomness that only the secret gives.

    Attributes:
        choices: decides which confidential triples a step takes.
        hidden: for whatever depends on which triples were taken, such as their negatives.
        noise: the stream that noise is drawn from.
        stretch: which epochs of the run this call trains.
        memory: what the mechanism kept of earlier calls; empty at the first.
    """

    def __init__(
        self,
        model: Model,
        graph: KnowledgeGraph,
        rng: np.random.Generator,
        settings: TrainingSettings,
        plan: EpochPlan,
        kernel: KernelStep,
        secret: bytes,
        stretch: Stretch | None = None,
        memory: State | None = None,
    ) -> None:
        self.stretch, self.memory = stretch or Stretch.whole(settings.local_epochs), memory or {}
        self.model, self.graph, self.rng, self.settings = model, graph, rng, settings
        self.plan, self.kernel = plan, kernel
        self.choices = Keystream(derived(secret, "choices"))
        self.hidden = np.random.default_rng(np.frombuffer(derived(secret, "negatives"), dtype=np.uint32))
        self.noise = Keystream(derived(secret, "noise"))


@dataclass(frozen=True)
class Batches:
    """What gives the batches of an epoch; each call begins one."""

    unrestricted: Callable[[], Iterator[Batch]]
    confidential: Callable[[], Iterator[Batch]]


class PrivateStep(ABC):
    """What a mechanism makes of one batch: plain on unrestricted triples, its own on confidential ones."""

    bound: float  # the clipping bound in force
    noise_name: str
    why: str = ""  # why noise is not what was asked for

    def __init__(self, kernel: KernelStep) -> None:
        self.kernel = kernel

    @abstractmethod
    def confidential(self, batch: Batch) -> float:
        """Move the model; return the mean loss of the batch, which is as private as the batch."""

    def unrestricted(self, batch: Batch) -> float:
        """An ordinary step."""
        return self.kernel(batch)

    def finish(self) -> None:  # noqa: B027  (most have nothing to do)
        """The model is about to be released."""

    def memory(self) -> State:
        """What the next call of training needs to know; it must be as private as the model."""
        return {}

    def move(self, name: str, sums: Sums | None, every: bool, noise: Callable[[Ids, Floats], None]) -> None:
        """Take gradients of a table to its rows, block by block, and after the noise the strategy's term.

        Args:
            name: of the table.
            sums: of the gradients of a batch; None: they are all zero.
            every: whether every row moves, or only those that the batch touched.
            noise: adds noise to gradients (r, w) of some rows (r,), in place.
        """
        table = self.kernel.model.tables[name]
        touched = sums.touched() if sums else np.empty(0, dtype=np.int32)
        rows = np.arange(len(table), dtype=np.int32) if every else touched
        step = max(1, BLOCK // table.shape[1])
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            gradient = sums.rows(block) if sums else np.zeros((len(block), table.shape[1]), np.float32)
            noise(block, gradient)
            self.apply(name, block, gradient)

    def apply(self, name: str, rows: Ids, gradient: Floats) -> None:
        """Move rows of a table against their noised gradients (r, w)."""
        self.kernel.apply(name, rows, gradient)


class Mechanism(ABC):
    """How a client trains on its confidential triples, and what its ε is worth.

    Subclass it, or one that exists, and override what differs.
    """

    Options: ClassVar[type[Settings]] = NoOptions  # the schema of [privacy.dp.options]
    summary: ClassVar[str]  # what is done to confidential triples, within a sentence of a report
    guaranteed: ClassVar[bool]  # else its ε is a claim, and `doubts` say why
    hides_counts: ClassVar[bool] = True  # whether confidential triples filter, count, choose and tell nothing
    takes_row_encoders: ClassVar[bool] = False  # whether it trains models that make each row by itself
    without_encoders: ClassVar[str] = "it moves rows of entities"  # why it does not
    accountant: ClassVar[Accountant] = "prv"
    default_clip: ClassVar[float | None] = None  # None: the bound is not known beforehand
    adjacency: ClassVar[str] = "a client's triples, and the same with one confidential triple taken out"
    assumed: ClassVar[tuple[str, ...]] = (
        "assumed to be public: the vocabulary (every row of it is noised), and how many triples are "
        "confidential",
        "ε is per triple, and of all runs in the client's ledger (a simulation's has one): several triples "
        "of one person add up, and so do a triple that is listed twice or held by several clients",
        "test scores: in a simulation over confidential triples too, without noise; in a deployment they are "
        "over unrestricted triples alone, and no confidential one filters them",
    )
    doubts: ClassVar[tuple[str, ...]] = ()  # why its ε is only a claim

    def __init__(self, dp: DPSettings) -> None:
        self.dp = dp
        self.options = options_of(dp.options, self.Options, "privacy.dp.options", dp.mode)

    # What it promises.

    @classmethod
    def standing(cls, simulated: bool = False) -> str:
        """What its ε is worth; in a simulation, secrets come from the seed."""
        if not cls.guaranteed:
            return "claimed"
        if simulated:
            return "guaranteed if the client secrets are secret; in this simulation they come from the seed"
        return "guaranteed"

    @property
    def outside(self) -> list[str]:
        """What is assumed, what reaches confidential triples without noise, and why ε is only a claim."""
        validated = not self.hides_counts or self.dp.validation == "all"
        return [*self.assumed, *([_VALIDATED] if validated else []), *self.doubts]

    def public(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        """The triples that may be counted without noise."""
        return unrestricted(graph) if self.hides_counts else graph

    # What it takes where nothing is given.

    @property
    def bound(self) -> float | None:
        """The clipping bound that is known beforehand."""
        return self.default_clip if self.dp.clip is None else self.dp.clip

    def delta(self, graph: KnowledgeGraph) -> float:
        """The δ in force: as given, or by the mechanism's rule."""
        return self.default_delta(graph) if self.dp.delta is None else self.dp.delta

    def default_delta(self, graph: KnowledgeGraph) -> float:
        """|C|^−1.1 over the confidential triples C."""
        return float(max(_num_confidential(graph), 2) ** -1.1)

    # What it costs.

    def plan(self, graph: KnowledgeGraph, settings: TrainingSettings) -> EpochPlan:
        """One epoch; by default as many confidential steps as pass over the confidential triples once."""
        confidential = _num_confidential(graph)
        if confidential == 0:
            raise DataError(
                f'{graph.name}: no confidential triples, but privacy.dp.mode = "{self.dp.mode}"; mark some '
                'with data.confidential, or set privacy.dp.mode = "off"'
            )
        unrestricted = len(graph.train) - confidential
        sizes = self.batch_sizes(unrestricted, confidential, settings)
        return EpochPlan(unrestricted, confidential, *sizes, -(-confidential // sizes[1]))

    def batch_sizes(
        self, unrestricted: int, confidential: int, settings: TrainingSettings
    ) -> tuple[int, int]:
        """How many of the unrestricted and of the confidential triples are in a step, by expectation."""
        del unrestricted
        return settings.batch_size, min(settings.batch_size, confidential)

    @property
    def phase(self) -> float:
        """The share of a run's epochs, its last ones, that reach confidential triples."""
        return 1.0

    def first_epoch(self, total: int) -> int:
        """The epoch of a run, of so many in all, that first reaches confidential triples."""
        return total - max(1, ceil(self.phase * total))

    def steps_in(self, plan: EpochPlan, epoch: int, total: int) -> int:
        """How many confidential steps one epoch of a run has."""
        return plan.confidential_steps if epoch >= self.first_epoch(total) else 0

    def steps_of(self, plan: EpochPlan, stretch: Stretch) -> int:
        return sum(self.steps_in(plan, epoch, stretch.total) for epoch in stretch.epochs)

    def cost(self, plan: EpochPlan, stretch: Stretch, memory: State) -> tuple[Event, ...]:
        """What some epochs spend, after what the memory of earlier ones says."""
        del memory
        steps = self.steps_of(plan, stretch)
        return (Event(self.dp.sigma, plan.rate, steps),) if steps else ()

    def sigma_within(self, target: float, plan: EpochPlan, epochs: int, delta: float) -> float:
        """The `privacy.dp.sigma` by which a run of so many epochs stays below ε = target."""
        steps = self.steps_of(plan, Stretch.whole(epochs))
        return sigma_for(target, delta, plan.rate, steps) if steps else self.dp.sigma

    def complete(self, plan: EpochPlan, stretch: Stretch) -> bool:
        """Whether a run that ends here has trained on confidential triples as it should.

        Where unrestricted triples are trained on first, only the end of a run has taken all steps.
        """
        ends = stretch.first + stretch.count >= stretch.total
        return plan.confidential_steps == 0 or self.first_epoch(stretch.total) == 0 or ends

    # What it refuses.

    def check(self, model: type[Model], graph: KnowledgeGraph, settings: TrainingSettings) -> None:
        """Refuse settings that would not protect, or that private training does not reach."""
        self.plan(graph, settings)  # refuses what cannot be planned
        self.check_delta(graph)
        if settings.device != "cpu":
            raise SettingError('training.device: private training runs on the processor; set it to "cpu"')
        if settings.negatives_from == "batch" and self.guaranteed:
            raise SettingError(
                'training.negatives_from: with "batch" negatives are entities of other triples, so that '
                f'clipping each does not bound one triple; mode "{self.dp.mode}" draws them from the '
                'vocabulary: set it to "own", or take mode "sgm", whose ε is a claim'
            )
        if model.has_encoder:
            self.check_encoder(model)
        if model.whole_graph:
            raise SettingError(
                f"privacy.dp.mode: {model.__name__} is trained on the network as a whole, where one edge "
                "changes what many others say, so that clipping its own gradient does not bound it; take "
                "LINE-1, whose edges count one by one, a mechanism for networks (docs/networks.md), or set "
                'privacy.dp.mode = "off"'
            )
        if settings.type != "negatives" or settings.max_gradient_norm is not None:
            raise SettingError(
                'privacy.dp.mode: not yet with training.type = "KvsAll" or training.max_gradient_norm, where '
                "the gradient of a batch is none of single triples; leave them out, or set "
                'privacy.dp.mode = "off"'
            )
        if settings.weight_decay > 0 or settings.decay_every is not None:
            raise SettingError(
                "privacy.dp.mode: not yet with training.weight_decay or training.decay_every: bounds, and "
                "what lazy noise owes, are reckoned for rows that gradients alone move, at one rate; leave "
                'them out, or set privacy.dp.mode = "off"'
            )
        if not model.has_query:
            raise SettingError(
                f"privacy.dp.mode: not yet for {model.__name__}, which has a score but no query: gradients "
                "of single triples come from the kernels; give it query_tail and query_head, or set "
                'privacy.dp.mode = "off"'
            )

    def check_options(self, model: type[Model], settings: ModelSettings) -> None:
        """Refuse options of the model that private training does not reach."""
        options = model.options_of(settings).model_dump()
        dropouts = [name for name, share in options.items() if name.endswith("dropout") and share]
        if dropouts:
            raise SettingError(
                f"model.options.{dropouts[0]}: not yet under differential privacy: the gradient of a triple "
                "is taken by itself, of the model as it is scored, where nothing is dropped; set it to 0, or "
                'set privacy.dp.mode = "off"'
            )

    def check_encoder(self, model: type[Model]) -> None:
        """Refuse one through which a triple reaches more than its own gradient."""
        if not model.row_wise or model.has_state:
            raise SettingError(
                f"privacy.dp.mode: {model.__name__} has an encoder, through which one triple reaches many "
                "rows: as an edge it also changes the gradients of other triples, so that clipping its own "
                "does not bound it. Sound would be a frozen encoder whose features are public, as the models "
                "of texts have it, noise on sums over a bounded number of neighbours (GAP, Sajadmanesh et "
                "al., 2023), or noise for as many gradients as a bounded degree lets a triple change; the "
                "latter two are not built. Take a model without an encoder or one of texts, or set "
                'privacy.dp.mode = "off"'
            )
        if not self.takes_row_encoders:
            raise SettingError(
                f'privacy.dp.mode: "{self.dp.mode}" is not supported for {model.__name__}, whose entity rows '
                f'come out of weights that all triples share; {self.without_encoders}; use mode = "sound"'
            )

    def check_delta(self, graph: KnowledgeGraph) -> str:
        """What is wrong with δ, if it is not below 1 / |C|: an error where ε is guaranteed."""
        confidential, delta = _num_confidential(graph), self.delta(graph)
        if delta * confidential < 1:
            return ""
        problem = (
            f"privacy.dp.delta: {delta:g} is not below 1 / {confidential} confidential triples: publishing "
            "one of them at random would pass"
        )
        if self.guaranteed:
            raise SettingError(f"{problem}; set privacy.dp.delta = {confidential**-1.1:.3g} or less")
        return problem

    def check_model(self, model: Model, graph: KnowledgeGraph) -> None:
        """TransM weighs relations by counts of triples: confidential ones must not enter."""
        self.check_options(type(model), model.settings)
        counted = type(model).relation_scale(self.public(graph))
        if self.hides_counts and not np.array_equal(model.scale.numpy(), counted):
            raise SettingError(
                f"the relation weights of {model.settings.name} count confidential triples; build the "
                "model from the unrestricted ones: build_model(settings, unrestricted(graph), seed)"
            )
        if self.hides_counts and model.has_encoder:
            self._check_buffers(model, graph)

    def _check_buffers(self, model: Model, graph: KnowledgeGraph) -> None:
        """What an encoder made of the graph beforehand must be what public triples make of it."""
        public = self.public(graph)
        if model.prepared_of is not None and np.array_equal(model.prepared_of, public.train):
            return
        for name, buffer in model.prepare(public).items():
            if not torch.equal(model.buffers[name], buffer):
                raise SettingError(
                    f"'{name}' of {model.settings.name} is made of confidential triples; build the model "
                    "from the unrestricted ones: build_model(settings, unrestricted(graph), seed)"
                )

    # What it does.

    def order(self, session: TrainingSession, epoch: int) -> Iterator[bool]:
        """Whether each step of an epoch of the run is confidential."""
        steps = self.steps_in(session.plan, epoch, session.stretch.total)
        return replace(session.plan, confidential_steps=steps).order(session.rng)

    @abstractmethod
    def batches(self, session: TrainingSession) -> Batches:
        """How the batches of an epoch are drawn, and their negatives."""

    @abstractmethod
    def step(self, session: TrainingSession) -> PrivateStep:
        """What one call of training does with its batches."""


def mechanism_of(dp: DPSettings) -> Mechanism:
    """The mechanism that settings name, with its options checked; `off` is none."""
    return MECHANISMS[dp.mode](dp)


def walk(
    sampler: NegativeSampler, triples: NDArray[np.int64], size: int, rng: np.random.Generator
) -> Iterator[Batch]:
    """Batches in which each of these triples of a sampler, given by number, is once, in random order."""
    for part in shuffled(len(triples), size, rng):
        yield sampler.batch(triples[part], rng)


def row_sums(model: Model, gradients: TripleGradients) -> dict[str, Sums]:
    """The gradients of a batch by table; a model without an encoder has these two, or the first alone."""
    entities = gradients.entity_sums(model.entity.numpy(), careful=True)
    sums: dict[str, Sums] = {model.entity_table: entities}
    if model.relation_table in model.tables:
        sums[model.relation_table] = gradients.relation_sums(len(model.relation), careful=True)
    return sums


def confidential_part(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The confidential train triples alone."""
    return replace(graph, train=graph.train[graph.marks("train")], confidential={})


def _num_confidential(graph: KnowledgeGraph) -> int:
    return int(np.count_nonzero(graph.marks("train")))


MECHANISMS: Registry[type[Mechanism]] = Registry(
    "DP mode",
    "fedkge.mechanisms",
    {
        "hubs": "fedkge.client.privacy.hubs:Hubs",
        "sound": "fedkge.client.privacy.sound:Sound",
        "paper": "fedkge.client.privacy.as_printed.paper:Paper",
        "sgm": "fedkge.client.privacy.as_printed.sgm:SGM",
    },
)
