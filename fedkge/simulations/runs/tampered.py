"""A federation with one malicious client: does tampering with a round tell it what the others train on?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedkge.attacks.attack import Protocol
from fedkge.attacks.behaviours.tampering import Tampering, apart
from fedkge.attacks.findings import Finding
from fedkge.attacks.membership.central.loss_attack import loss_attack
from fedkge.attacks.membership.federated.games import Game, game_about
from fedkge.attacks.membership.federated.in_federation import findings_of
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import Snapshot, View
from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.seeding import draw
from fedkge.simulations.runs.run import divide, run
from fedkge.strategy import STRATEGIES

__all__ = ["tamper"]

_ASK = 11  # tells the draw of questions from the other draws of a seed


def tamper(
    experiment: Experiment,
    folder: Path,
    client: int,
    round: int,
    strength: float = 0.3,
    protocol: Protocol = "rigorous",
) -> list[Finding]:
    """Run an experiment with one client that tampers with a round, and score what it learns."""
    _check(experiment, client, round)
    split = divide(experiment)
    truth = Truth(split.clients)
    game = _questions(truth, client, draw(experiment.seed, _ASK, client))
    plan = Tampering(round, strength, _labels(truth, game))
    path = folder.with_name(f"{folder.name}-tampering.json")
    plan.save(path)
    run(experiment, folder, split=split, tampering={client: path})
    watched = Tampering.load(path).watched()
    passive, pushed, after = (watched.at(round + later) for later in range(3))
    signals = {
        "score before tampering": passive,
        "score after repair": after,
        "repair": after - pushed,
    }
    view = _view(experiment, truth, client, round)
    note = (
        f"{len(game)} triples, no two with an entity in common, pushed apart by {strength:g} in round {round}"
    )
    rng = draw(experiment.seed, _ASK, client, 1)
    return [
        finding
        for name, value in signals.items()
        for finding in findings_of(loss_attack(-value), game, view, None, protocol, rng, name, note)
    ]


def _check(experiment: Experiment, client: int, round: int) -> None:
    settings = experiment.federation
    if "entity" not in STRATEGIES[settings.strategy].shared:
        raise SettingError(
            f"federation.strategy: {settings.strategy} shares no entity rows to tamper with; use FedE"
        )
    if not 1 <= round <= settings.rounds - 2:
        raise SettingError(
            f"tampering in round {round} of {settings.rounds}: expected 1 to {settings.rounds - 2}, since "
            "the repair is watched two rounds later; raise federation.rounds or tamper earlier"
        )
    if not 0 <= client < experiment.data.clients:
        raise SettingError(
            f"client {client} is not in the roster; choose from 0 to {experiment.data.clients - 1}"
        )


def _questions(truth: Truth, client: int, rng: np.random.Generator) -> Game:
    """As many members as others, all of labels that the client holds, no two with a common entity."""
    others = [other for other in range(len(truth.clients)) if other != client]
    game = game_about(truth, others, [client])
    head, relation, tail = game.triples.T
    held = np.isin(np.stack([head, tail]), truth.entities(client)).all(axis=0)
    game = game.among(held & np.isin(relation, truth.relations(client)))
    member = game.answers.member
    count = min(int(member.sum()), int((~member).sum()))
    order = rng.permutation(len(game))
    chosen = np.zeros(len(game), dtype=bool)
    for kind in (member, ~member):
        chosen[order[kind[order]][:count]] = True
    game = game.among(chosen)
    return game.among(apart(game.triples, len(truth.entity_ids), rng))


def _labels(truth: Truth, game: Game) -> tuple[tuple[str, str, str], ...]:
    entities, relations = tuple(truth.entity_ids), tuple(truth.relation_ids)
    return tuple((entities[h], relations[r], entities[t]) for h, r, t in game.triples.tolist())


def _view(experiment: Experiment, truth: Truth, client: int, round: int) -> View:
    graph = truth.clients[client]
    return View(
        "broadcasts after tampering",
        f"client {client}",
        experiment.federation.strategy,
        experiment.model,
        len(truth.clients),
        graph.entity_labels,
        graph.relation_labels,
        (Snapshot(round),),
        sums_only=experiment.privacy.secure_aggregation,
    )
