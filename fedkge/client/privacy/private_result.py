"""What one call of private training did."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedkge.client.privacy.accountant import Spent
from fedkge.client.training.loop import TrainResult
from fedkge.client.training.optimizers import State

__all__ = ["PrivateResult"]


@dataclass(frozen=True)
class PrivateResult(TrainResult):
    """What private training did; `losses` are safe to tell where the mechanism hides counts."""

    events: tuple[Spent, ...] = ()  # what it cost; nothing if confidential triples were spared
    clip: float = 0.0  # the bound in force, the last one where it looks at each batch
    noise: str = "none"
    why: str = ""  # why noise is not what was asked for
    confidential_losses: tuple[float, ...] = ()  # of each epoch; never to be told
    memory: State = field(default_factory=dict)  # of the mechanism: pass it to the next call
