"""What an attack says about the triples it was asked about, how it may say it, and what that is worth.

An attack gives a certainty and a yes or no for each triple. Two simple attacks are here; those that train
shadow models of their own are in `central`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DECISIONS",
    "Bools",
    "Guess",
    "Values",
    "best_threshold",
    "correctness_attack",
    "decision_figures",
    "decision_values",
    "loss_attack",
]

Values = NDArray[np.float64]
Bools = NDArray[np.bool_]

DECISIONS = ("accuracy", "f1", "precision", "recall")


@dataclass(frozen=True)
class Guess:
    """How sure it is that each triple was trained on, and its yes or no."""

    certainty: Values  # (n,) higher: more likely a member; the order is all that counts
    member: Bools  # (n,)


def loss_attack(loss: Values) -> Guess:
    """A member if its loss is at most the mean of all triples asked about (Wang et al., 2021, §3.4).

    No shadow data is used.
    """
    return Guess(-loss, loss <= loss.mean())


def best_threshold(true_scores: Values, false_scores: Values) -> float:
    """The score from which on a triple is called true, so that most of those given are called rightly.

    The model's owner chooses it, not the adversary. As in OpenKE it is one number for all relations, found on
    the owner's test triples and as many corrupted ones.
    """
    values = np.concatenate([true_scores, false_scores])
    gain = np.concatenate([np.ones(len(true_scores)), -np.ones(len(false_scores))])
    order = np.argsort(-values, kind="stable")
    rising = np.cumsum(gain[order])
    ends = np.flatnonzero(np.append(np.diff(values[order]) != 0, True))  # equal scores are called alike
    return float(values[order][ends[np.argmax(rising[ends])]])


def correctness_attack(scores: Values, threshold: float) -> Guess:
    """A member if the target calls the triple true: its hard labels, and nothing else."""
    true = scores >= threshold
    return Guess(true.astype(np.float64), true)


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
    figures = {}
    for name, values in decision_values(np.array([hits]), np.array([alarms])).items():
        by_hits, by_alarms = slopes[name]
        half = 1.96 * float(np.sqrt(by_hits**2 * hit_error + by_alarms**2 * alarm_error))
        value = float(values[0])
        figures[name] = (value, (value - half, value + half))
    return figures


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
