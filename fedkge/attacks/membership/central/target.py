"""One target under every central attack: train it, train its shadows, ask, guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedkge.attacks.membership.central import signals
from fedkge.attacks.membership.central.halves import Questions, questions
from fedkge.attacks.membership.central.lira import lira
from fedkge.attacks.membership.central.rmia import likelihood_ratios, rmia
from fedkge.attacks.membership.central.shadows import Bars, Shadows, rehearse
from fedkge.attacks.membership.central.transfer import TransferAttack
from fedkge.attacks.membership.guesses import Guess, Values, best_threshold, correctness_attack, loss_attack
from fedkge.client.kernels.arrays import Ids
from fedkge.client.models import Model, build_model
from fedkge.client.training.loop import train
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import ModelSettings, TrainingSettings
from fedkge.seeding import draw

__all__ = [
    "Asked",
    "Shadowed",
    "TrainingRecipe",
    "ask",
    "published_attacks",
    "shadow_attacks",
    "train_shadows",
]

_TRAIN, _QUESTIONS, _CORRUPT, _SHADOWS = range(4)


@dataclass(frozen=True)
class TrainingRecipe:
    """How target and shadows are trained: the adversary trains as the target does."""

    model: ModelSettings
    training: TrainingSettings
    epochs: int
    seed: int = 0

    def fit(self, half: KnowledgeGraph, number: int) -> Model:
        """Model number `number`: its first rows, batches and negatives are its own."""
        model = build_model(self.model, half, self.seed * 1000 + number)
        train(model, half, draw(self.seed, _TRAIN, number), self.training, epochs=self.epochs)
        return model


@dataclass(frozen=True)
class Asked:
    """A trained half, the triples asked about, and what the model said."""

    questions: Questions
    scores: Values  # (n,)
    margin_loss: Values  # (n,)
    threshold: float  # from this score on its owner calls a triple true
    likelihood: Values  # (n,) log


def ask(half: KnowledgeGraph, recipe: TrainingRecipe, number: int) -> Asked:
    """Train on the members of a half and ask about all its triples."""
    model = recipe.fit(half, number)
    asked = questions(half, draw(recipe.seed, _QUESTIONS, number))
    false = draw(recipe.seed, _CORRUPT, number)
    owners = signals.corrupted(half.test, half.num_entities, draw(recipe.seed, _CORRUPT, number, 1))
    threshold = best_threshold(signals.scores(model, half.test), signals.scores(model, owners))
    scores = signals.scores(model, asked.triples)
    likelihood = signals.log_likelihood(model, scores)
    margin_loss = signals.margin_loss(model, asked.triples, recipe.training.negatives, false)
    return Asked(asked, scores, margin_loss, threshold, likelihood)


def published_attacks(target: Asked, shadow: Asked, seed: int = 0) -> dict[str, Guess]:
    """The attacks of Wang et al. (2021); the shadow's members are the adversary's own."""
    transfer = TransferAttack.fit(shadow.scores, shadow.questions.answers.member, seed)
    return {
        "transfer": transfer.guess(target.scores),
        "loss (logistic)": loss_attack(signals.logistic_loss(target.scores)),
        "loss (margin)": loss_attack(target.margin_loss),
        "correctness": correctness_attack(target.scores, target.threshold),
    }


@dataclass(frozen=True)
class Shadowed:
    """Shadow models of a set of triples: their scores and their log-likelihoods."""

    scores: Shadows
    likelihood: Shadows


def train_shadows(
    half: KnowledgeGraph, asked: Ids, recipe: TrainingRecipe, count: int, number: int
) -> Shadowed:
    """Train shadow models on halves of the triples asked about; which are members is not looked at."""
    likelihoods = []

    def query(chosen: Ids, k: int) -> Values:
        graph = KnowledgeGraph.from_ids(
            half.name, half.entity_labels, half.relation_labels, {"train": chosen}
        )
        model = recipe.fit(graph, number + k)
        scores = signals.scores(model, asked)
        likelihoods.append(signals.log_likelihood(model, scores))
        return scores

    scores = Shadows.train(asked, count, query, draw(recipe.seed, _SHADOWS, number))
    return Shadowed(scores, Shadows(np.stack(likelihoods), scores.included))


def shadow_attacks(target: Asked, shadowed: Shadowed) -> Mapping[str, tuple[Guess, Bars]]:
    """LiRA and RMIA, with bars from the shadows alone."""
    guesses = {}
    for name, statistic, signal, shadows in (
        ("LiRA", lira, target.scores, shadowed.scores),
        ("RMIA", _relative, target.likelihood, shadowed.likelihood),
    ):
        bars = rehearse(statistic, shadows)
        guesses[name] = bars.guess(statistic(signal, shadows)), bars
    return guesses


def _relative(signal: Values, shadows: Shadows) -> Values:
    """RMIA among the triples asked about: they are each other's population."""
    return rmia(signal, shadows, likelihood_ratios(signal, shadows))
