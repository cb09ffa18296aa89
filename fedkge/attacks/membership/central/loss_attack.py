"""The prediction-loss attack: a member if its loss is at most the mean loss of all triples asked about."""

from __future__ import annotations

from fedkge.attacks.membership.guess import Guess, Values

__all__ = ["loss_attack"]


def loss_attack(loss: Values) -> Guess:
    """Guess from the losses of the queried set alone; no shadow data is used (Wang et al., 2021, §3.4)."""
    return Guess(-loss, loss <= loss.mean())
