"""DP-SGD over edges: LINE of first order on the kernels, every edge clipped with its negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedkge.client.models import build_model
from fedkge.client.privacy.mechanism import mechanism_of
from fedkge.client.privacy.networks.edge_mechanism import EdgeMechanism, Rows
from fedkge.client.privacy.normals import SECRET_BYTES, Keystream
from fedkge.client.privacy.training import train_privately
from fedkge.datasets import mark
from fedkge.datasets.networks.network import network_of
from fedkge.errors import SettingError
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings

__all__ = ["PrivateDescent"]


@dataclass(frozen=True)
class PrivateDescent(EdgeMechanism):
    """The mechanism `sound` with every edge confidential; σ is such that all steps stay within ε."""

    name: ClassVar[str] = "DP-SGD"
    guaranteed: ClassVar[bool] = True
    assumed: ClassVar[tuple[str, ...]] = (
        "the vertices, and so how many there are, are public",
        "how many edges there are is public: it decides the sampling rate",
    )
    failure: float = 1e-5
    epochs: int = 20

    @property
    def delta(self) -> float:
        return self.failure

    def settings(self, epsilon_sigma: float) -> DPSettings:
        return DPSettings(mode="sound", sigma=epsilon_sigma, delta=self.failure, clip=1.0)

    def rows(self, adjacency: Any, dim: int, stream: Keystream) -> Rows:
        size = adjacency.shape[0]
        head, tail = adjacency.nonzero()
        upper = head < tail
        pairs = np.stack([head[upper], tail[upper]], axis=1)
        if self.failure * len(pairs) >= 1:
            raise SettingError(
                f"{self.name}: failure = {self.failure:g} is not below 1 / {len(pairs)} edges: publishing "
                f"one of them at random would pass; set failure = {len(pairs) ** -1.1:.3g} or less"
            )
        graph = mark(network_of("private", [str(vertex) for vertex in range(size)], pairs), "1.0", 0)
        training = TrainingSettings(
            optimizer="SGD",
            learning_rate=0.5,
            loss="logistic",
            negatives=5,
            filter_negatives=False,
            corrupt="both",
            batch_size=max(1, len(pairs) // 4),
        )
        mechanism = mechanism_of(self.settings(1.0))
        plan = mechanism.plan(graph, training)
        sigma = mechanism.sigma_within(self.epsilon, plan, self.epochs, self.failure)
        model = build_model(ModelSettings(name="LINE-1", dim=dim), mechanism.public(graph), 0)
        secret = np.floor(stream.uniforms(SECRET_BYTES) * 256).clip(0, 255).astype(np.uint8).tobytes()
        rng = np.random.default_rng(0)  # of what is public
        train_privately(model, graph, rng, training, self.settings(sigma), secret, epochs=self.epochs)
        return model.entity_vectors().astype(np.float64)
