"""The contract of a DP mechanism: what its ε is worth, what it refuses, which batches it draws, its step.

A mechanism of another package is registered by an entry point of the group `fedkge.mechanisms`; its name is
what `privacy.dp.mode` says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.gradients import EntitySums, RelationSums, TripleGradients
from fedkge.client.models.model import Model
from fedkge.client.privacy.epoch_plan import EpochPlan, Stretch
from fedkge.client.privacy.mode import DPMode
from fedkge.client.privacy.normals import Keystream, derived
from fedkge.client.training.loop import shuffled
from fedkge.client.training.negatives import Batch, NegativeSampler
from fedkge.client.training.optimizers import State
from fedkge.client.training.steps import KernelStep
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
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


class Mechanism(DPMode):
    """How a client trains on its confidential triples by steps, and what its ε is worth.

    Subclass it, or one that exists, and override what differs.
    """

    def check(self, model: type[Model], graph: KnowledgeGraph, settings: TrainingSettings) -> None:
        """Refuse settings that would not protect, or that private training does not reach."""
        super().check(model, graph, settings)
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
                "LINE-1, whose edges count one by one, a mode that releases a network once, such as "
                '"randomised-response" (docs/networks.md), or set privacy.dp.mode = "off"'
            )
        if model.stages is not Model.stages:
            raise SettingError(
                "privacy.dp.mode: the model is trained in stages of its own, such as on an arc each way of "
                "every edge, which private training leaves out: it would train another model. Take "
                'LINE-1, a mode that releases a network once, such as "top-edges" (docs/networks.md), or set '
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


def mechanism_of(dp: DPSettings) -> DPMode:
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


MECHANISMS: Registry[type[DPMode]] = Registry(
    "DP mode",
    "fedkge.mechanisms",
    {
        "hubs": "fedkge.client.privacy.hubs:Hubs",
        "sound": "fedkge.client.privacy.sound:Sound",
        "paper": "fedkge.client.privacy.as_printed.paper:Paper",
        "sgm": "fedkge.client.privacy.as_printed.sgm:SGM",
        "randomised-response": "fedkge.client.privacy.networks.release:RandomisedResponseMode",
        "top-edges": "fedkge.client.privacy.networks.release:TopEdgesMode",
        "gaussian-edges": "fedkge.client.privacy.networks.release:GaussianEdgesMode",
        "gaussian-vertices": "fedkge.client.privacy.networks.release:GaussianVerticesMode",
        "dpne": "fedkge.client.privacy.networks.release:DPNEMode",
        "dpne-absolute": "fedkge.client.privacy.networks.release:AbsoluteDPNEMode",
        "dpm": "fedkge.client.privacy.networks.release:NoisyWalksMode",
    },
)
