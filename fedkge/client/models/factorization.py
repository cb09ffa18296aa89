"""DeepWalk as a factorisation: W Hᵀ ≈ M, where M says where short walks go (Yang et al., 2015)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from fedkge.client.kernels.operators import Operator
from fedkge.client.models.bilinear import Similarity
from fedkge.client.models.model import TableSpec
from fedkge.client.models.stage import Stage
from fedkge.errors import SettingError
from fedkge.experiment import ModelSettings, Settings, TrainingSettings

__all__ = ["DeepWalkMF", "FactorOptions", "Proximity"]


class Proximity(Similarity):
    """h · t: two vertices are near if their rows point the same way; a relation says nothing."""

    relation_width = 0
    operator = Operator.KEEP

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        del r
        return (h * t).sum(-1)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        del r
        return h

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        del r
        return t


class FactorOptions(Settings):
    """What is factorised, and how; the defaults are those of DPNE (Xu et al., 2018)."""

    window: int = Field(default=2, ge=1, le=10, description="t: M is the mean of P, P², … Pᵗ")
    logarithm: bool = Field(default=False, description="of n M, where that is positive, in place of M")
    directed: bool = Field(default=False, description="whether an edge goes one way alone")
    solver: Literal["exact", "als", "sgd"] = Field(
        default="exact",
        description="`exact`: singular vectors, rotated towards the rows of the round; `als`: one sweep of "
        "alternating least squares an epoch; `sgd`: gradients of `batch_size` rows of M at a time",
    )
    vertex_ridge: float = Field(default=1e-3, gt=0, description="λ")
    context_ridge: float = Field(default=1e-3, gt=0, description="μ")


class DeepWalkMF(Proximity):
    """Rows of vertices, W, and of contexts, H; the former are what is scored, and what FedE shares.

    It is trained on the network as a whole, whatever is said of negatives and losses. Contexts are each
    client's own, unless `federation.share` names them.
    """

    Options = FactorOptions
    whole_graph = True

    @classmethod
    def table_specs(cls, settings: ModelSettings) -> dict[str, TableSpec]:
        return {"entity": TableSpec("entity", settings.dim), "context": TableSpec("entity", settings.dim)}

    @classmethod
    def check(cls, settings: ModelSettings, training: TrainingSettings) -> None:
        super().check(settings, training)
        if training.type != "negatives":
            raise SettingError(
                f'training.type = "{training.type}": DeepWalkMF factorises a matrix in its own way, by '
                "model.options.solver; leave training.type out"
            )

    def stages(self, training: TrainingSettings) -> tuple[Stage, ...]:
        self.check(self.settings, training)
        return (Stage(self, training.model_copy(update={"type": "factorization"})),)
