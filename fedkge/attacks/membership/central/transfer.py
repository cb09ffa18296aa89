"""The transfer attack: a small network learns on a shadow model which scores members get."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedkge.attacks.membership.guesses import Bools, Guess, Values
from fedkge.client.training.threads import one_thread

__all__ = ["TransferAttack"]

_HIDDEN = 64
_STEPS = 300
_RATE = 1e-2


@dataclass(frozen=True)
class TransferAttack:
    """A classifier of scores, fitted on a shadow model (Wang et al., 2021, §3.3).

    Scores are shifted and scaled by what the shadow shows, the target's by the same numbers.
    """

    network: nn.Module
    centre: float
    spread: float

    @classmethod
    def fit(cls, scores: Values, member: Bools, seed: int) -> TransferAttack:
        """Learn from the shadow model's scores and the shadow's own membership."""
        centre, spread = float(scores.mean()), float(scores.std()) or 1.0
        with one_thread(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = nn.Sequential(
                nn.Linear(1, _HIDDEN),
                nn.ReLU(),
                nn.Linear(_HIDDEN, _HIDDEN),
                nn.ReLU(),
                nn.Linear(_HIDDEN, 1),
            )
            _train(network, _column(scores, centre, spread), torch.from_numpy(member).float(), seed)
        return cls(network, centre, spread)

    def guess(self, scores: Values) -> Guess:
        """A member where the network says one half or more."""
        with one_thread(), torch.no_grad():
            logit = self.network(_column(scores, self.centre, self.spread))[:, 0].double().numpy()
        return Guess(logit, logit >= 0)


def _column(scores: Values, centre: float, spread: float) -> Tensor:
    return torch.from_numpy((scores - centre) / spread).float()[:, None]


def _train(network: nn.Module, inputs: Tensor, labels: Tensor, seed: int) -> None:
    """Adam on batches; the shadow may have more members than others, and counts them alike."""
    optimizer = torch.optim.Adam(network.parameters(), lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _STEPS)
    share = float(labels.mean())
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor((1 - share) / max(share, 1e-9)))
    generator = torch.Generator().manual_seed(seed)
    size = min(1024, len(inputs))
    for _ in range(_STEPS):
        batch = torch.randint(len(inputs), (size,), generator=generator)
        optimizer.zero_grad()
        loss(network(inputs[batch])[:, 0], labels[batch]).backward()
        optimizer.step()
        schedule.step()
