"""Federations in which an adversary acts: a malicious client, or the server itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from fedkge.attacks import ATTACKS
from fedkge.attacks.attack import PROTOCOLS, Protocol
from fedkge.attacks.behaviours.acting_server import ActingServer, Asked, Colluder, asked_in
from fedkge.attacks.behaviours.tampering import Tampering, apart
from fedkge.attacks.coalition import check_colluders
from fedkge.attacks.findings import Finding
from fedkge.attacks.membership.federated.acting import ActiveMembership, TamperedMembership
from fedkge.attacks.membership.federated.games import Game, game_about
from fedkge.attacks.membership.federated.in_federation import findings_of, with_control
from fedkge.attacks.membership.guesses import Values, loss_attack
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import Snapshot, View
from fedkge.client.models import MODELS
from fedkge.datasets.labels import is_local
from fedkge.errors import InputError, SettingError
from fedkge.experiment import Experiment, options_of
from fedkge.seeding import draw
from fedkge.server.progress import Observer
from fedkge.simulations.runs.layout import is_secure, with_clients
from fedkge.simulations.runs.run import divide, plan_file, run
from fedkge.strategy import shared_by

__all__ = ["ACTS", "act", "serve_actively", "tamper"]

_ASK = 11  # tells the draw of questions from the other draws of a seed
_SERVER = 12  # and what a malicious server draws


def act(
    name: str,
    experiment: Experiment,
    folder: Path,
    colluders: Sequence[int] | None = None,
    protocols: Sequence[Protocol] = PROTOCOLS,
    observer: Observer | None = None,
) -> list[Finding]:
    """Run an experiment in a new folder with an adversary that acts, and score what it learns.

    Args:
        name: of an attack in ATTACKS that acts.
        experiment: is run with the adversary in it; its own `adversary.attacks` are left out.
        colluders: clients that help the server, of which the first tampers; None: those of the experiment.
        protocols: "paper", "rigorous" or both.
        observer: is told of every step.
    """
    ATTACKS[name]  # an unknown name raises
    if name not in ACTS:
        raise InputError(
            f"attack '{name}' works on what a run recorded; run the experiment with --set "
            f"adversary.record=every, then: fedkge attack RUN_DIR --attack {name}"
        )
    chosen = tuple(experiment.adversary.colluders if colluders is None else colluders)
    adversary = experiment.adversary.model_copy(update={"attacks": (), "colluders": chosen})
    experiment = experiment.model_copy(update={"adversary": adversary})
    return ACTS[name](experiment, folder, chosen, protocols, observer)


def tamper(
    experiment: Experiment,
    folder: Path,
    client: int,
    round: int,
    strength: float = 0.3,
    protocols: Sequence[Protocol] = ("rigorous",),
    observer: Observer | None = None,
) -> list[Finding]:
    """Run an experiment with one client that tampers with a round, and score what it learns."""
    _check_entities(experiment, "tampering")
    _check_round(experiment, client, round)
    split = divide(experiment)
    truth = Truth(split.clients)
    game = _questions(truth, client, draw(experiment.seed, _ASK, client))
    plan = Tampering(round, strength, _labels(truth, game))
    run(experiment, folder, observer, split=split, tampering={client: plan})
    watched = Tampering.load(plan_file(folder, client)).watched()
    passive, pushed, after = (watched.at(round + later) for later in range(3))
    signals = {
        "score before tampering": passive,
        "score after repair": after,
        "repair": after - pushed,
    }
    graph = truth.clients[client]
    view = _view(
        experiment, "broadcasts after tampering", f"client {client}", graph.entity_labels, len(truth.clients)
    )
    note = (
        f"{len(game)} triples, no two with an entity in common, pushed apart by {strength:g} in round {round}"
    )
    rng = draw(experiment.seed, _ASK, client, 1)
    return list(_scored("tampering", signals, game, view, None, protocols, rng, note))


def serve_actively(
    experiment: Experiment,
    folder: Path,
    colluders: Sequence[int],
    strength: float = 0.3,
    first: int = 0,
    protocols: Sequence[Protocol] = ("rigorous",),
    observer: Observer | None = None,
) -> list[Finding]:
    """Run an experiment with a server that pushes triples apart in every second round from `first` on.

    In the open it asks about each client by itself, under secure aggregation about all others together.
    """
    _check_entities(experiment, "active")
    split = divide(experiment)
    truth, experiment = Truth(split.clients), with_clients(experiment, split)
    check_colluders(colluders, len(truth.clients))
    rounds = _acting_rounds(experiment, first)
    secure = is_secure(experiment)
    parties = " + ".join(["server", *(f"client {client}" for client in colluders)])
    name = "sums after acting" if secure else "uploads after acting"
    view = _view(experiment, name, parties, tuple(truth.entity_ids), len(truth.clients))
    if secure and not colluders:
        raise SettingError(
            "adversary.colluders: under secure aggregation rows have pseudonyms, so that a server by itself "
            "does not know which to push; name a colluder, such as --colluders 0"
        )
    others = [client for client in range(len(truth.clients)) if client not in colluders]
    if not others:
        raise SettingError(
            "adversary.colluders: all clients collude, and nobody is left to attack; name fewer"
        )
    rng = draw(experiment.seed, _SERVER)
    games = {
        target: _nameable(truth, target, others, colluders, secure, rng)
        for target in ([None] if secure else others)
    }
    asked = {
        target: Asked(game.triples, asked_in(game.triples, len(truth.entity_ids), rounds, rng))
        for target, game in games.items()
    }
    helpers = [Colluder(client, truth.clients[client].entity_labels) for client in colluders]
    server = ActingServer(experiment, tuple(truth.entity_ids), asked, helpers, strength, rng)
    run(experiment, folder, observer, split=split, server=server)
    findings: list[Finding] = []
    for target, signals in server.signals.items():
        seen = ~np.isnan(np.stack(list(signals.values()))).any(axis=0)
        game = games[target].among(seen)
        note = (
            f"{len(game)} triples pushed apart by {strength:g} in {len(rounds)} rounds, of which none had "
            "two with an entity in common"
        )
        heard = {signal: values[seen] for signal, values in signals.items()}
        findings += _scored("active", heard, game, view, target, protocols, rng, note)
    return findings


def _scored(
    attack: str,
    signals: Mapping[str, Values],
    game: Game,
    view: View,
    target: int | None,
    protocols: Sequence[Protocol],
    rng: np.random.Generator,
    note: str,
) -> Iterator[Finding]:
    """The figures of every signal; without members and others among the questions there are none."""
    if not len(game) or game.answers.member.all() or not game.answers.member.any():
        why = f"of {len(game)} triples that could be pushed apart, none or all are members; run more rounds"
        yield from _impossible(attack, view, target, protocols, why)
        return
    guesses = {name: loss_attack(-values) for name, values in signals.items()}
    for protocol in protocols:
        for name, guess in with_control(guesses, game, protocol).items():
            yield from findings_of(guess, game, view, target, protocol, rng, name, note, attack)


def _impossible(
    attack: str, view: View, target: int | None, protocols: Sequence[Protocol], why: str
) -> list[Finding]:
    """One finding for each protocol, with the reason in place of a figure."""
    metrics = {protocol: "accuracy" if protocol == "paper" else "auc" for protocol in protocols}
    return [
        Finding.of(attack, protocol, view, target, metric, None, note=why)
        for protocol, metric in metrics.items()
    ]


# What is refused.


def _check_entities(experiment: Experiment, attack: str) -> None:
    federation = experiment.federation
    if "entity" not in shared_by(federation):
        raise SettingError(
            f"federation.strategy: {federation.strategy} shares no entity rows to push apart, so that "
            f"'{attack}' is not possible; use FedE"
        )
    name = experiment.model.name
    if MODELS[name].has_encoder:
        raise SettingError(
            f"model.name: {name} scores what a client's own encoder makes of rows, and who does not have it "
            f"cannot tell which way to push them, so that '{attack}' is not possible; use a shallow model"
        )


def _check_round(experiment: Experiment, client: int, round: int) -> None:
    settings = experiment.federation
    if not 1 <= round <= settings.rounds - 2:
        raise SettingError(
            f"tampering in round {round} of {settings.rounds}: expected 1 to {settings.rounds - 2}, since "
            "the repair is watched two rounds later; raise federation.rounds or tamper earlier"
        )
    if not 0 <= client < experiment.data.clients:
        raise SettingError(
            f"client {client} is not in the roster; choose from 0 to {experiment.data.clients - 1}"
        )


def _acting_rounds(experiment: Experiment, first: int) -> range:
    """Every second round: the one before each is the server's control."""
    rounds = experiment.federation.rounds
    start = first or max(rounds // 2, 2)
    if not 2 <= start <= rounds:
        raise SettingError(
            f"adversary.options.active.first: acting from round {start} on, of {rounds}, where 2 to {rounds} "
            "were expected, since the round before is the control; raise federation.rounds or act earlier"
        )
    return range(start, rounds + 1, 2)


# What is asked.


def _questions(truth: Truth, client: int, rng: np.random.Generator) -> Game:
    """As many members as others, all of labels that the client holds, no two with a common entity."""
    others = [other for other in range(len(truth.clients)) if other != client]
    game = game_about(truth, others, [client])
    head, relation, tail = game.triples.T
    held = np.isin(np.stack([head, tail]), truth.entities(client)).all(axis=0)
    game = _balanced(game.among(held & np.isin(relation, truth.relations(client))), rng)
    return game.among(apart(game.triples, len(truth.entity_ids), rng))


def _nameable(
    truth: Truth,
    target: int | None,
    others: Sequence[int],
    colluders: Sequence[int],
    secure: bool,
    rng: np.random.Generator,
) -> Game:
    """As many members as others, of entities whose rows the server can name."""
    game = game_about(truth, others if target is None else [target], colluders)
    common = np.array([not is_local(label) for label in truth.entity_ids])
    if secure:
        known = np.zeros(len(common), dtype=bool)
        known[np.concatenate([truth.entities(client) for client in colluders])] = True
        common &= known
    head, _, tail = game.triples.T
    return _balanced(game.among(common[head] & common[tail]), rng)


def _balanced(game: Game, rng: np.random.Generator) -> Game:
    """As many members as others, at random."""
    member = game.answers.member
    count = min(int(member.sum()), int((~member).sum()))
    order = rng.permutation(len(game))
    chosen = np.zeros(len(game), dtype=bool)
    for kind in (member, ~member):
        chosen[order[kind[order]][:count]] = True
    return game.among(chosen)


def _labels(truth: Truth, game: Game) -> tuple[tuple[str, str, str], ...]:
    entities, relations = tuple(truth.entity_ids), tuple(truth.relation_ids)
    return tuple((entities[h], relations[r], entities[t]) for h, r, t in game.triples.tolist())


def _view(experiment: Experiment, name: str, adversary: str, entities: Sequence[str], clients: int) -> View:
    """Who saw what, for the findings."""
    return View(
        name,
        adversary,
        experiment.federation.strategy,
        experiment.model,
        clients,
        tuple(entities),
        (),
        (Snapshot(experiment.federation.rounds),),
        sums_only=experiment.privacy.secure_aggregation,
    )


# By name, with the options of the experiment.


def _act_as_client(
    experiment: Experiment,
    folder: Path,
    colluders: Sequence[int],
    protocols: Sequence[Protocol],
    observer: Observer | None,
) -> list[Finding]:
    if not colluders:
        raise SettingError("adversary.colluders: nobody tampers; name the client that does: --colluders 0")
    given = experiment.adversary.options.get("tampering", {})
    options = options_of(given, TamperedMembership.Options, "adversary.options.tampering", "tampering")
    round = options.round or max(
        min(3 * experiment.federation.rounds // 4, experiment.federation.rounds - 2), 1
    )
    return tamper(experiment, folder, colluders[0], round, options.strength, protocols, observer)


def _act_as_server(
    experiment: Experiment,
    folder: Path,
    colluders: Sequence[int],
    protocols: Sequence[Protocol],
    observer: Observer | None,
) -> list[Finding]:
    given = experiment.adversary.options.get("active", {})
    options = options_of(given, ActiveMembership.Options, "adversary.options.active", "active")
    return serve_actively(experiment, folder, colluders, options.strength, options.first, protocols, observer)


ACTS: Mapping[str, Callable[..., list[Finding]]] = {"tampering": _act_as_client, "active": _act_as_server}
