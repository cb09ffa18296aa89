"""The prediction-correctness attack: a member if the target classifies the triple as true."""

from __future__ import annotations

import numpy as np

from fedkge.attacks.membership.guess import Guess, Values

__all__ = ["best_threshold", "correctness_attack"]


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
    """Guess from the target's hard labels, and from nothing else."""
    true = scores >= threshold
    return Guess(true.astype(np.float64), true)
