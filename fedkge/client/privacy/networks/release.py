"""DP modes that release a network once, with noise, and train a model from the release in every round."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import nan
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from fedkge.client.models.factorization import DeepWalkMF
from fedkge.client.models.model import Model
from fedkge.client.networks.walk_matrix import adjacency_of, walk_matrix
from fedkge.client.privacy.accountant import Spent
from fedkge.client.privacy.epoch_plan import EpochPlan, Stretch
from fedkge.client.privacy.mode import DPMode, num_confidential
from fedkge.client.privacy.networks.dpne import DPNE, AbsoluteDPNE, NoisyWalks
from fedkge.client.privacy.networks.edge_mechanism import EdgeRelease
from fedkge.client.privacy.networks.private_edges import GaussianEdges, RandomisedResponse, TopEdges
from fedkge.client.privacy.networks.private_vertices import GaussianVertices
from fedkge.client.privacy.normals import Keystream, derived
from fedkge.client.privacy.private_result import PrivateResult
from fedkge.client.training.optimizers import State
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.networks.network import edges_of, is_network
from fedkge.errors import SettingError
from fedkge.experiment import DPSettings, ModelSettings, Settings, TrainingSettings
from fedkge.strategy import Term

__all__ = [
    "AbsoluteDPNEMode",
    "DPNEMode",
    "GaussianEdgesMode",
    "GaussianVerticesMode",
    "NoisyWalksMode",
    "RandomisedResponseMode",
    "Release",
    "TopEdgesMode",
]

MOST_DENSE = 20_000  # vertices, whose pairs take 3 GB


@dataclass(frozen=True)
class ReleasePlan(EpochPlan):
    """One epoch of a run that releases once, and the δ in force."""

    delta: float


class Release(DPMode):
    """Hides every edge of a client's network; `target_epsilon` says how well.

    The noise of a release comes from a key that is kept with its charge, so that rounds, resumed runs and
    other runs on the same network make the same release again, and pay for it once.
    """

    kind: ClassVar[type[EdgeRelease]]
    released_once = True
    adjacency = "a client's network, and the same with one edge taken out; vertices stay"
    unit = "edge"
    assumed = (
        "assumed to be public: a client's vertices, and how many edges it has",
        "ε is per edge, and of all releases in the client's ledger (a simulation's has one): the edges of a "
        "vertex add up, and so does an edge that several clients hold",
        "the rows of the release alone are covered: whatever reads true classes or edges afterwards is not",
        "test scores: in a simulation over confidential edges too, without noise; in a deployment they are "
        "over unrestricted edges alone, and there are none",
    )

    def __init__(self, dp: DPSettings) -> None:
        super().__init__(dp)
        if dp.target_epsilon is None:
            raise SettingError(
                f'privacy.dp.target_epsilon: missing; mode "{dp.mode}" noises a network once, by its ε: set '
                "it, such as 8.0"
            )
        self.target = dp.target_epsilon

    # What it costs.

    def mechanism(self, delta: float) -> EdgeRelease:
        """What draws the noise."""
        options = self.options.model_dump()
        if any(field.name == "failure" for field in fields(self.kind)):
            options["failure"] = delta
        return self.kind(self.target, **options)

    def plan(self, graph: KnowledgeGraph, settings: TrainingSettings) -> ReleasePlan:
        """Every epoch goes on from the one release of all edges."""
        epoch = super().plan(graph, settings)
        size = epoch.num_confidential
        return ReleasePlan(epoch.num_unrestricted, size, 1, size, 1, self.delta(graph))

    def default_delta(self, graph: KnowledgeGraph) -> float:
        """0 where there is none, else below 1 / edges and 1 / vertices."""
        if not any(field.name == "failure" for field in fields(self.kind)):
            return 0.0
        return float(max(num_confidential(graph), graph.num_entities, 2) ** -1.1)

    def cost(self, plan: EpochPlan, stretch: Stretch, memory: State) -> tuple[Spent, ...]:
        """That of the release, whichever epochs are asked for: the account knows whether it was made."""
        del stretch, memory
        assert isinstance(plan, ReleasePlan)
        return (self.mechanism(plan.delta).cost,) if plan.confidential_steps else ()

    def sigma_within(self, target: float, plan: EpochPlan, epochs: int, delta: float) -> float:
        """The deviation of the noise on an edge, over its sensitivity: it follows from ε."""
        del target, plan, epochs
        return self.mechanism(delta).deviation

    def complete(self, plan: EpochPlan, stretch: Stretch) -> bool:
        """From the first epoch on."""
        del plan, stretch
        return True

    def words(self, model: ModelSettings, graph: KnowledgeGraph) -> list[str]:
        """All that decides what is released, beside the edges and the key."""
        about = [repr(self.mechanism(self.delta(graph))), str(graph.num_entities)]
        return [*about, model.model_dump_json()] if self.kind.learns else about

    # What it refuses.

    def check(self, model: type[Model], graph: KnowledgeGraph, settings: TrainingSettings) -> None:
        mode = f'privacy.dp.mode: "{self.dp.mode}"'
        if not is_network(graph):
            raise SettingError(
                f"{mode} hides edges that have no kinds, and {graph.name} has {graph.num_relations} "
                'relations; take mode "hubs" or "sound", or leave the relations out: data.dataset = '
                '"network:graph=NAME"'
            )
        super().check(model, graph, settings)
        self._check_model(model, mode)
        if not graph.marks("train").all():
            raise SettingError(
                f"data.confidential: {num_confidential(graph):,} of {len(graph.train):,} edges of "
                f'{graph.name} are confidential, and mode "{self.dp.mode}" hides all or none; set it to 1.0'
            )
        if self.kind.dense and graph.num_entities > MOST_DENSE:
            raise SettingError(
                f"{mode} noises every pair of vertices, and {graph.name} has {graph.num_entities:,} vertices "
                f'where {MOST_DENSE:,} fit into memory; take "randomised-response" or "top-edges"'
            )
        default = DPSettings()
        for name in ("sigma", "clip", "percentile", "noise"):
            if getattr(self.dp, name) != getattr(default, name):
                raise SettingError(
                    f'privacy.dp.{name}: mode "{self.dp.mode}" noises a network once, by '
                    f"privacy.dp.target_epsilon alone; leave {name} out"
                )

    def _check_model(self, model: type[Model], mode: str) -> None:
        if self.kind.form == "network" and model.has_encoder:
            raise SettingError(
                f"{mode}: {model.__name__} has an encoder, which is made before edges are released; take "
                "DeepWalkMF, LINE-1, LINE-2 or SkipGram"
            )
        if self.kind.form != "network" and not issubclass(model, DeepWalkMF):
            raise SettingError(
                f"{mode} releases a matrix or rows, which {model.__name__} cannot be trained from; set "
                'model.name = "DeepWalkMF", or take mode "top-edges", which releases edges'
            )

    def check_options(self, model: type[Model], settings: ModelSettings) -> None:
        del model
        if settings.name != "DeepWalkMF":
            return
        options = DeepWalkMF.options_of(settings)
        if getattr(options, "directed", False):
            raise SettingError(
                f'model.options.directed: mode "{self.dp.mode}" hides edges without directions; leave it out'
            )
        solver = getattr(options, "solver", "exact")
        if self.kind.form == "rows" and solver != "exact":
            raise SettingError(
                f'model.options.solver = "{solver}": mode "{self.dp.mode}" releases finished rows; leave it '
                "out"
            )
        for name in ("window", "logarithm"):
            if self.kind.form == "matrix" and not self.kind.learns and name in settings.options:
                raise SettingError(
                    f'model.options.{name}: mode "{self.dp.mode}" releases the network itself with noise, '
                    "which has negative numbers and no walks, and that is factorised; leave it out, or take "
                    '"top-edges"'
                )

    def check_model(self, model: Model, graph: KnowledgeGraph) -> None:
        """Nothing of a model is made of edges before they are released."""

    # What it does.

    def train(
        self,
        model: Model,
        graph: KnowledgeGraph,
        rng: np.random.Generator,
        settings: TrainingSettings,
        secret: bytes,
        epochs: int,
        optimizer: State | None,
        term: Term | None,
        spare: bool,
    ) -> PrivateResult:
        """Some epochs from the release that the secret makes; `spare`: none, and the model stays."""
        if spare:
            return PrivateResult((nan,) * epochs, 0, 0, 0.0, optimizer or {})
        start = perf_counter()
        mechanism = self.mechanism(self.delta(graph))
        adjacency = adjacency_of(edges_of(graph), graph.num_entities)
        stream = Keystream(derived(secret, "release"))
        dim = model.entity_vectors().shape[1]
        released = mechanism.release(adjacency, _walks(model), dim, stream)
        result = released.train(model, _vertices(graph), rng, settings, epochs, optimizer, term)
        return PrivateResult(
            losses=result.losses,
            steps=result.steps,
            triples=len(graph.train) * epochs,  # how many there are is public
            seconds=perf_counter() - start,
            optimizer=result.optimizer,
            events=(mechanism.cost,),
            noise="once, on the network",
        )


def _walks(model: Model) -> Any:
    """What the model factorises where nothing is private."""
    options = model.options if isinstance(model, DeepWalkMF) else None
    return lambda adjacency: walk_matrix(
        adjacency, getattr(options, "window", 2), getattr(options, "logarithm", False)
    )


def _vertices(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The network without an edge."""
    none = np.empty((0, 3), dtype=np.int32)
    return replace(graph, train=none, valid=none, test=none, confidential={})


class RandomisedResponseMode(Release):
    """Randomised response on every pair of vertices: ε of every pair by itself, nobody is trusted."""

    kind = RandomisedResponse
    summary = RandomisedResponse.summary
    guaranteed = True


class TopEdgesOptions(Settings):
    """The settings of `top-edges`."""

    count_share: float = Field(
        default=0.1, gt=0, lt=1, description="the share of ε that says how many edges there are"
    )


class TopEdgesMode(Release):
    """Laplace noise on every pair, the largest are edges (TmF): a network for any model of networks."""

    kind = TopEdges
    Options = TopEdgesOptions
    summary = TopEdges.summary
    guaranteed = True


class GaussianEdgesMode(Release):
    """Normal noise on every pair of vertices."""

    kind = GaussianEdges
    summary = GaussianEdges.summary
    guaranteed = True


class GaussianVerticesOptions(Settings):
    """The settings of `gaussian-vertices`."""

    degree: int | None = Field(
        default=None, ge=1, description="edges that a vertex weighs at most; left out: by how many vertices"
    )


class GaussianVerticesMode(Release):
    """Normal noise on every pair, for all edges of a vertex at once; vertices with many edges weigh less."""

    kind = GaussianVertices
    Options = GaussianVerticesOptions
    summary = GaussianVertices.summary
    guaranteed = True
    adjacency = "a client's network, and the same with all edges of one vertex taken out; vertices stay"
    unit = "vertex"
    assumed = (
        Release.assumed[0],
        "ε is per vertex and client, and of all releases in the client's ledger (a simulation's has one): a "
        "vertex whose edges are with several clients has ε of each",
        *Release.assumed[2:],
    )


class DPNEMode(Release):
    """DPNE as printed (Xu et al., 2018), with the linear noise term of its theorem: a claim."""

    kind = DPNE
    summary = DPNE.summary
    guaranteed = False
    doubts = tuple(f"why a claim: {doubt}" for doubt in DPNE.doubts)


class AbsoluteDPNEMode(Release):
    """DPNE with the absolute noise term of its experiments: a claim, and it protects nothing."""

    kind = AbsoluteDPNE
    summary = AbsoluteDPNE.summary
    guaranteed = False
    doubts = tuple(f"why a claim: {doubt}" for doubt in AbsoluteDPNE.doubts)


class NoisyWalksMode(Release):
    """dpM, DPNE's baseline: Laplace noise on every entry of the matrix of walks, too little: a claim."""

    kind = NoisyWalks
    summary = NoisyWalks.summary
    guaranteed = False
    doubts = tuple(f"why a claim: {doubt}" for doubt in NoisyWalks.doubts)
