"""Membership inference from a View: the server, its colluders, a curious client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.attack import Attack, Protocol
from fedkge.attacks.findings import Finding
from fedkge.attacks.membership.central.signals import logistic_loss
from fedkge.attacks.membership.curve import RATES, Curve
from fedkge.attacks.membership.federated.games import Game, game_about
from fedkge.attacks.membership.federated.sight import sight_of, targets_in
from fedkge.attacks.membership.federated.view_signals import Named, signals_of
from fedkge.attacks.membership.guesses import DECISIONS, Guess, loss_attack
from fedkge.attacks.membership.scores import measures_of
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import UNKNOWN, View

__all__ = ["CHANCE", "SUBSETS", "Membership", "Played", "findings_of", "play", "with_control"]

Ids = NDArray[np.int64]

SUBSETS = {"all": "all", "seen": "entity-seen", "matched": "entity-seen without it"}
CHANCE = {"accuracy": 0.5, "precision": 0.5, "auc": 0.5, **{f"tpr@{rate:.1%}": rate for rate in RATES}}


class Membership(Attack):
    """Tell the true triples that a client trained on from those that it held out.

    The signals are the score under the rows of the last round; how far it is above the score under the mean
    of all clients' rows; and how much training raised it, averaged over the last rounds recorded. Where the
    view has no relation rows of the target, they are also fitted to the triples asked about. A control says
    what degrees alone would tell: a partition that holds out triples of frequent entities makes members
    differ before any training.
    """

    def assess(self, view: View, truth: Truth, protocol: Protocol, rng: np.random.Generator) -> list[Finding]:
        findings = []
        for target in targets_in(view):
            played = play(view, truth, target, rng)
            if isinstance(played, str):
                metric = "accuracy" if protocol == "paper" else "auc"
                findings.append(Finding.of("membership", protocol, view, target, metric, None, note=played))
                continue
            for signal, guess in with_control(played.guesses, played.game, protocol).items():
                findings += findings_of(guess, played.game, view, target, protocol, rng, signal, played.note)
        return findings


@dataclass(frozen=True)
class Played:
    """The questions that could be asked of a view, and what each signal answers."""

    game: Game
    guesses: Mapping[str, Guess]
    note: str

    def curves(self) -> dict[str, Curve]:
        """ROC curves on the triples whose parts other train triples have."""
        chosen, member = self.game.answers.matched, self.game.answers.member
        return {
            name: Curve.of(guess.certainty[chosen], member[chosen]) for name, guess in self.guesses.items()
        }


def play(view: View, truth: Truth, target: int | None, rng: np.random.Generator) -> Played | str:
    """Ask about a target's triples, or about all others'; or the reason why that is not possible."""
    sight = sight_of(view, target)
    if isinstance(sight, str):
        return sight
    colluders = {handed.client for handed in view.handed}
    others = [client for client in range(len(truth.clients)) if client not in colluders]
    game = game_about(truth, others if target is None else [target], colluders)
    asked = _named(view, truth, game)
    possible = asked.possible(sight)
    playable = game.among(possible)
    if playable.answers.member.all() or not playable.answers.member.any():
        return f"of {len(game)} triples the {view.adversary} can name no members and non-members both"
    values = signals_of(view, asked.among(possible), sight, rng)
    guesses = {signal: loss_attack(logistic_loss(value)) for signal, value in values.items()}
    return Played(playable, guesses, f"{len(playable)} of {len(game)} triples can be asked about")


def with_control(guesses: Mapping[str, Guess], game: Game, protocol: Protocol) -> dict[str, Guess]:
    """The guesses, and beside rigorous ones what the frequency of entities alone would tell."""
    control = {"control: degrees": loss_attack(game.answers.degree)} if protocol == "rigorous" else {}
    return {**guesses, **control}


def findings_of(
    guess: Guess,
    game: Game,
    view: View,
    target: int | None,
    protocol: Protocol,
    rng: np.random.Generator,
    signal: str,
    note: str,
    attack: str = "membership",
) -> list[Finding]:
    """The published figures, or the curve's on every subset."""
    return [
        Finding.of(
            attack,
            protocol,
            view,
            target,
            measure.metric,
            measure.value,
            regime=f"{signal}, {SUBSETS[measure.subset]}",
            interval=measure.interval,
            baseline=CHANCE.get(measure.metric),
            count=measure.members + measure.others,
            note=note,
        )
        for measure in measures_of(guess, game.answers, rng, ends=game.triples[:, [0, 2]])
        if (measure.metric in DECISIONS) == (protocol == "paper")
    ]


def _named(view: View, truth: Truth, game: Game) -> Named:
    """The questions in the view's own names."""
    entity = _renaming(truth.number_entities(view.entities), len(truth.entity_ids))
    relation = _renaming(truth.number_relations(view.relations), len(truth.relation_ids))
    head, kind, tail = game.triples.T
    return Named(np.stack([entity[head], entity[tail]], axis=1), relation[kind], kind)


def _renaming(numbers: Ids, size: int) -> Ids:
    """The name of each number, UNKNOWN where the view has none."""
    names = np.full(size, UNKNOWN, dtype=np.int64)
    known = numbers != UNKNOWN
    names[numbers[known]] = np.flatnonzero(known)
    return names
