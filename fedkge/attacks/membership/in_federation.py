"""Membership inference from a View: the server, its colluders, a curious client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.attack import Attack, Protocol
from fedkge.attacks.findings import Finding
from fedkge.attacks.membership import signals
from fedkge.attacks.membership.curve import RATES
from fedkge.attacks.membership.decisions import DECISIONS
from fedkge.attacks.membership.figures import Figure, figures_of
from fedkge.attacks.membership.games import Game, game_about
from fedkge.attacks.membership.guess import Bools, Guess, Values
from fedkge.attacks.membership.loss_attack import loss_attack
from fedkge.attacks.membership.relation_fit import fitted_relations
from fedkge.attacks.membership.sight import Sight, sight_of, targets_in
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import UNKNOWN, Rows, View
from fedkge.client.models import MODELS

__all__ = ["CHANCE", "SUBSETS", "Membership", "findings_of"]

Ids = NDArray[np.int64]

SUBSETS = {"all": "all", "seen": "entity-seen", "matched": "entity-seen without it"}
CHANCE = {"accuracy": 0.5, "precision": 0.5, "auc": 0.5, **{f"tpr@{rate:.1%}": rate for rate in RATES}}


class Membership(Attack):
    """Which true triples did a client train on, and which did it hold out?

    The signals are the score under the rows of the last round; how far it is above the score under the mean
    of all clients' rows; and how much training raised it, averaged over the last rounds recorded. Where the
    view has no relation rows of the target, they are also fitted to the triples asked about. A control says
    what degrees alone would tell: a partition that holds out triples of frequent entities makes members
    differ before any training.
    """

    def assess(self, view: View, truth: Truth, protocol: Protocol, rng: np.random.Generator) -> list[Finding]:
        found = []
        for target in targets_in(view):
            sight = sight_of(view, target)
            if isinstance(sight, str):
                found.append(Finding.of("membership", protocol, view, target, "auc", None, note=sight))
            else:
                found += _findings(view, truth, target, sight, protocol, rng)
        return found


def _findings(
    view: View, truth: Truth, target: int | None, sight: Sight, protocol: Protocol, rng: np.random.Generator
) -> list[Finding]:
    own = {handed.client for handed in view.handed}
    others = [client for client in range(len(truth.clients)) if client not in own]
    game = game_about(truth, others if target is None else [target], own)
    asked = _Named.of(view, truth, game)
    possible = asked.possible(sight)
    playable = game.among(possible)
    if playable.answers.member.all() or not playable.answers.member.any():
        reason = f"of {len(game)} triples the {view.adversary} can name no members and non-members both"
        return [Finding.of("membership", protocol, view, target, "auc", None, note=reason)]
    note = f"{len(playable)} of {len(game)} triples can be asked about"
    found = []
    for signal, value in _signals(view, asked.among(possible), sight, rng).items():
        guess = loss_attack(signals.logistic_loss(value))
        found += findings_of(guess, playable, view, target, protocol, rng, signal, note)
    if protocol == "rigorous":
        control = loss_attack(playable.answers.degree)
        found += findings_of(control, playable, view, target, protocol, rng, "control: degrees", note)
    return found


def findings_of(
    guess: Guess,
    game: Game,
    view: View,
    target: int | None,
    protocol: Protocol,
    rng: np.random.Generator,
    signal: str,
    note: str,
) -> list[Finding]:
    """The published figures, or the curve's on every subset."""
    figures = figures_of(guess, game.answers, rng)
    chosen = [figure for figure in figures if (figure.metric in DECISIONS) == (protocol == "paper")]
    return [_finding(figure, view, target, protocol, signal, note) for figure in chosen]


def _finding(
    figure: Figure, view: View, target: int | None, protocol: Protocol, signal: str, note: str
) -> Finding:
    return Finding.of(
        "membership",
        protocol,
        view,
        target,
        figure.metric,
        figure.value,
        regime=f"{signal}, {SUBSETS[figure.subset]}",
        interval=figure.interval,
        baseline=CHANCE.get(figure.metric),
        count=figure.members + figure.others,
        note=note,
    )


@dataclass(frozen=True)
class _Named:
    """The triples asked about, in the view's names."""

    entities: Ids  # (n, 2) head and tail
    relations: Ids  # (n,) names in the view, or UNKNOWN
    kinds: Ids  # (n,) which triples have the same relation; the question says so much

    @classmethod
    def of(cls, view: View, truth: Truth, game: Game) -> _Named:
        entity = _renaming(truth.number_entities(view.entities), len(truth.entity_ids))
        relation = _renaming(truth.number_relations(view.relations), len(truth.relation_ids))
        head, kind, tail = game.triples.T
        return cls(np.stack([entity[head], entity[tail]], axis=1), relation[kind], kind)

    def possible(self, sight: Sight) -> Bools:
        """Which triples have rows for all their parts, in every step."""
        fine = np.ones(len(self.kinds), dtype=bool)
        for rows in [
            sight.entity,
            *filter(None, [sight.mean]),
            *(rows for step in sight.steps for rows in step),
        ]:
            fine &= (_places(rows, self.entities) != UNKNOWN).all(axis=1)
        if sight.relation is not None:
            fine &= _places(sight.relation, self.relations) != UNKNOWN
        return fine

    def among(self, chosen: Bools) -> _Named:
        return _Named(self.entities[chosen], self.relations[chosen], self.kinds[chosen])

    def scores(self, view: View, entity: Rows, relation: NDArray[np.float32], places: Ids) -> Values:
        """Under some entity rows; `places` are the relations' rows."""
        head, tail = _places(entity, self.entities).T
        scale = np.ones(len(relation), dtype=np.float32)
        model = MODELS[view.model.name](view.model, _plain(entity.values), _plain(relation), scale)
        return signals.scores(model, np.stack([head, places, tail], axis=1))


def _signals(view: View, asked: _Named, sight: Sight, rng: np.random.Generator) -> dict[str, Values]:
    """Every signal, under the relation rows of the view and under fitted ones."""
    found: dict[str, Values] = {}
    if sight.relation is not None:
        places = _places(sight.relation, asked.relations)
        found |= _compared(view, asked, sight, sight.relation.values, places)
    if sight.foreign:
        kinds, places = np.unique(asked.kinds, return_inverse=True)
        head, tail = _places(sight.entity, asked.entities).T
        triples = np.stack([head, places, tail], axis=1).astype(np.int32)
        rows = fitted_relations(view.model, _plain(sight.entity.values), triples, len(kinds), rng)
        fitted = _compared(view, asked, sight, rows, places)
        found |= {f"{name} (fitted relations)": value for name, value in fitted.items()}
    return found


def _compared(
    view: View, asked: _Named, sight: Sight, relation: NDArray[np.float32], places: Ids
) -> dict[str, Values]:
    """The score, and what it is beside other entity rows."""
    found = {"score": asked.scores(view, sight.entity, relation, places)}
    if sight.mean is not None:
        found["score above the mean's"] = found["score"] - asked.scores(view, sight.mean, relation, places)
    if sight.steps:
        gains = [
            asked.scores(view, stop, relation, places) - asked.scores(view, start, relation, places)
            for start, stop in sight.steps
        ]
        found["gain"] = np.mean(gains, axis=0)
    return found


def _renaming(numbers: Ids, size: int) -> Ids:
    """The name of each number, UNKNOWN where the view has none."""
    names = np.full(size, UNKNOWN, dtype=np.int64)
    known = numbers != UNKNOWN
    names[numbers[known]] = np.flatnonzero(known)
    return names


def _places(rows: Rows, names: Ids) -> Ids:
    """The row of each name, all at once."""
    size = int(max(names.max(initial=0), rows.names.max(initial=0))) + 2  # the last place is UNKNOWN's
    places = np.full(size, UNKNOWN, dtype=np.int64)
    named = rows.names != UNKNOWN
    places[rows.names[named]] = np.flatnonzero(named)
    return places[names]


def _plain(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)
