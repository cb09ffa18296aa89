"""What yes-or-no guesses are worth: accuracy, precision, recall, F1."""

from __future__ import annotations

import numpy as np

from fedkge.attacks.membership.guess import Bools

__all__ = ["DECISIONS", "decision_figures"]

DECISIONS = ("accuracy", "f1", "precision", "recall")


def decision_figures(guess: Bools, member: Bools) -> dict[str, tuple[float, tuple[float, float]]]:
    """Each figure as if members and non-members were equally many, so that guessing is 0.5 on any subset.

    On the published halves, which are equal, these are the published figures. Intervals (95 %) follow from
    the two rates by the normal approximation.
    """
    hits, alarms = float(guess[member].mean()), float(guess[~member].mean())
    hit_error = hits * (1 - hits) / member.sum()
    alarm_error = alarms * (1 - alarms) / (~member).sum()
    called = hits + alarms
    precision = hits / called if called else float("nan")
    values = {
        # value, slope in the hit rate, slope in the alarm rate
        "accuracy": ((1 + hits - alarms) / 2, 0.5, -0.5),
        "f1": (2 * hits / (1 + called), 2 * (1 + alarms) / (1 + called) ** 2, -2 * hits / (1 + called) ** 2),
        "precision": (precision, *((alarms / called**2, -hits / called**2) if called else (0.0, 0.0))),
        "recall": (hits, 1.0, 0.0),
    }
    found = {}
    for name, (value, by_hits, by_alarms) in values.items():
        half = 1.96 * float(np.sqrt(by_hits**2 * hit_error + by_alarms**2 * alarm_error))
        found[name] = (value, (value - half, value + half))
    return found
