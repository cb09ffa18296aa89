"""The contract of a DP mode: what it promises, takes where nothing is given, costs, and refuses."""

from __future__ import annotations

from abc import ABC
from math import ceil
from typing import ClassVar

import numpy as np
import torch

from fedkge.client.models.model import Model
from fedkge.client.privacy.accountant import Accountant, Event, Spent, sigma_for
from fedkge.client.privacy.epoch_plan import EpochPlan, Stretch
from fedkge.client.training.optimizers import State
from fedkge.datasets import unrestricted
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, SettingError
from fedkge.experiment import DPSettings, ModelSettings, NoOptions, Settings, TrainingSettings, options_of

__all__ = ["DPMode", "num_confidential"]

_VALIDATED = "validation scores, and so the choice of the best round and the stop: confidential triples enter"


class DPMode(ABC):
    """What a value of `privacy.dp.mode` promises of confidential triples, takes, costs and refuses.

    Mechanisms clip and noise the steps of training; releases of networks noise the data, once.
    """

    Options: ClassVar[type[Settings]] = NoOptions  # the schema of [privacy.dp.options]
    summary: ClassVar[str]  # what is done to confidential triples, within a sentence of a report
    guaranteed: ClassVar[bool]  # else its ε is a claim, and `doubts` say why
    hides_counts: ClassVar[bool] = True  # whether confidential triples filter, count, choose and tell nothing
    takes_row_encoders: ClassVar[bool] = False  # whether it trains models that make each row by itself
    without_encoders: ClassVar[str] = "it moves rows of entities"  # why it does not
    accountant: ClassVar[Accountant] = "prv"
    default_clip: ClassVar[float | None] = None  # None: the bound is not known beforehand
    released_once: ClassVar[bool] = False  # whether all rounds, and all runs alike, share one release
    unit: ClassVar[str] = "triple"  # what ε is per
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
        return float(max(num_confidential(graph), 2) ** -1.1)

    # What it costs.

    def plan(self, graph: KnowledgeGraph, settings: TrainingSettings) -> EpochPlan:
        """One epoch; by default as many confidential steps as pass over the confidential triples once."""
        confidential = num_confidential(graph)
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

    def cost(self, plan: EpochPlan, stretch: Stretch, memory: State) -> tuple[Spent, ...]:
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
        del model
        self.plan(graph, settings)  # refuses what cannot be planned
        self.check_delta(graph)
        if settings.device != "cpu":
            raise SettingError('training.device: private training runs on the processor; set it to "cpu"')

    def check_options(self, model: type[Model], settings: ModelSettings) -> None:  # noqa: B027  (some take any)
        """Refuse options of a model that it cannot serve."""

    def check_delta(self, graph: KnowledgeGraph) -> str:
        """What is wrong with δ, if it is not below 1 / |C|: an error where ε is guaranteed."""
        confidential, delta = num_confidential(graph), self.delta(graph)
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


def num_confidential(graph: KnowledgeGraph) -> int:
    """How many train triples are."""
    return int(np.count_nonzero(graph.marks("train")))
