"""What yes-or-no guesses are worth: accuracy, precision, recall, F1."""

from __future__ import annotations

import numpy as np

from fedkge.attacks.membership.guess import Bools, Values

__all__ = ["DECISIONS", "decision_figures", "decision_values"]

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
    slopes = {  # in the hit rate, in the alarm rate
        "accuracy": (0.5, -0.5),
        "f1": (2 * (1 + alarms) / (1 + called) ** 2, -2 * hits / (1 + called) ** 2),
        "precision": (alarms / called**2, -hits / called**2) if called else (0.0, 0.0),
        "recall": (1.0, 0.0),
    }
    found = {}
    for name, values in decision_values(np.array([hits]), np.array([alarms])).items():
        by_hits, by_alarms = slopes[name]
        half = 1.96 * float(np.sqrt(by_hits**2 * hit_error + by_alarms**2 * alarm_error))
        value = float(values[0])
        found[name] = (value, (value - half, value + half))
    return found


def decision_values(hits: Values, alarms: Values) -> dict[str, Values]:
    """The figures from the shares of members and of others that are called members."""
    called = hits + alarms
    precision = np.divide(hits, called, out=np.full_like(hits, np.nan), where=called > 0)
    return {
        "accuracy": (1 + hits - alarms) / 2,
        "f1": 2 * hits / (1 + called),
        "precision": precision,
        "recall": hits,
    }
