"""What a run refuses before it starts: unknown names, a folder that is taken, impossible private training."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedkge.attacks import ATTACKS
from fedkge.attacks.coalition import check_adversary
from fedkge.client.models import MODELS
from fedkge.client.models.model import Model
from fedkge.client.models.text_encoders import Described
from fedkge.client.privacy import MECHANISMS, mechanism_of
from fedkge.client.training.kvsall import check_kvsall
from fedkge.client.training.negatives import check_negatives
from fedkge.client.training.optimizers import build_optimizer
from fedkge.datasets import Split
from fedkge.datasets.features import split_coverage
from fedkge.errors import InputError, SettingError, UnknownNameError
from fedkge.experiment import Experiment
from fedkge.plugins import Registry
from fedkge.server.app import check_strategy
from fedkge.simulations.runs.attacking import check_attacks
from fedkge.simulations.runs.run_folder import RunFolder, is_run
from fedkge.simulations.scoring.shared_rows import check_union
from fedkge.strategy import STRATEGIES, build_strategy, check_shared

__all__ = ["check_federation", "check_folder", "check_names"]

_log = logging.getLogger(__name__)


def check_names(experiment: Experiment) -> None:
    """Refuse what no registry has; what Ray's workers look up too must be known to their processes."""
    for registry, name in _names_of_workers(experiment):
        registry.require_everywhere(name) if experiment.engine.name == "ray" else registry[name]
    for attack in experiment.adversary.attacks:
        ATTACKS[attack]


def _names_of_workers(experiment: Experiment) -> Iterator[tuple[Registry[Any], str]]:
    yield STRATEGIES, experiment.federation.strategy
    yield MODELS, experiment.model.name
    for client in range(experiment.data.clients):
        mode = experiment.dp_of(client).mode
        if mode not in ("off", *MECHANISMS):
            raise UnknownNameError("DP mode", mode, ("off", *MECHANISMS))
        if mode != "off":
            yield MECHANISMS, mode


def check_folder(folder: Path, resumable: bool = True) -> None:
    """Refuse a folder that has something in it; `resumable` is whether the caller could go on with a run."""
    if folder.exists() and any(folder.iterdir()):
        goes_on = resumable and is_run(folder) and not RunFolder(folder).adversary
        resume = f", or go on with --resume {folder}" if goes_on else ""
        raise InputError(f"{folder} is not empty; choose another --out{resume}")


def check_federation(experiment: Experiment, split: Split) -> None:
    """Refuse what these clients cannot do together; the split is the one that they will train on."""
    _check_clients(experiment)
    check_strategy(experiment)
    _check_parameters(experiment, split)
    _check_vocabulary(experiment)
    check_adversary(experiment)
    check_attacks(experiment.adversary)
    _check_confidential(experiment, split)
    check_union(experiment)
    _tell_of_texts(experiment, split)
    if unlike := experiment.unlike_sides():
        _log.warning("%s", unlike)
    if experiment.privacy.rows_from_seed and experiment.privacy.union != "plain":
        _log.warning(
            "privacy.rows_from_seed: the server can name pseudonyms by their initial rows (measure it with "
            "'fedkge attack --attack naming'); leave it out unless that is what you want to see"
        )


def _check_parameters(experiment: Experiment, split: Split) -> None:
    """Refuse options that model or strategy do not take, and a strategy that shares what the model lacks."""
    settings, federation = experiment.model, experiment.federation
    model, strategy = MODELS[settings.name], build_strategy(federation)
    model.options_of(settings)
    training = experiment.training
    model.check(settings, training)
    if training.type == "negatives" and model.stages is Model.stages:  # others may train in their own way
        check_negatives(training)
    build_optimizer(training.optimizer, {}, training.learning_rate, training.weight_decay)
    weights = model.shareable_weights(settings, split.clients[0])
    known = [*model.table_specs(settings), *weights]
    own = model.own_weights(settings, split.clients[0])
    check_shared(federation.strategy, strategy.shared, settings.name, known, weights, own)
    if training.type == "KvsAll":
        check_kvsall(model.build(settings, split.clients[0], experiment.seed), training)
    if training.negatives_from == "first" and model.entity_table not in strategy.shared:
        raise SettingError(
            f'training.negatives_from = "first" counts by shared numbers of entities, and '
            f'{federation.strategy} shares none; set it to "own", or take FedE'
        )


def _tell_of_texts(experiment: Experiment, split: Split) -> None:
    """Warn of entities that a model of texts cannot tell apart; of named files, loading has warned."""
    if not issubclass(MODELS[experiment.model.name], Described) or experiment.data.features:
        return
    coverage = split_coverage(split, "entity")
    if coverage.having < coverage.labels:
        _log.warning("%s: %s", split.name, coverage)


def _check_vocabulary(experiment: Experiment) -> None:
    """Refuse vocabularies in common where an entity's row is a matter of who holds it."""
    federation, place = experiment.federation, 'data.vocabulary = "all"'
    if experiment.data.vocabulary == "own" or federation.strategy == "Central":
        return
    specs = MODELS[experiment.model.name].table_specs(experiment.model)
    shared = build_strategy(federation).shared
    if tables := [name for name, spec in specs.items() if spec.vocabulary == "entity" and name in shared]:
        raise SettingError(
            f"{place}: {federation.strategy} takes means of '{tables[0]}' rows over the clients that hold an "
            'entity, and each client would hold all; set it to "own", or take Local or FedR'
        )
    if experiment.adversary.record != "off":
        raise SettingError(
            f"{place}: attacks are scored by which entities a client holds, and each client would hold all; "
            'set it to "own", or adversary.record = "off"'
        )


def _check_clients(experiment: Experiment) -> None:
    last = experiment.data.clients - 1
    for settings in experiment.clients:
        if settings.client > last:
            raise SettingError(
                f"clients.client: there is no client {settings.client}; the last of {last + 1} is {last}"
            )


def _check_confidential(experiment: Experiment, split: Split) -> None:
    """Refuse private training that cannot be done, before a client is asked; warn where there is none."""
    bare = []
    for client, graph in enumerate(split.clients):
        dp = experiment.dp_of(client)
        if dp.mode != "off":
            mechanism, model = mechanism_of(dp), MODELS[experiment.model.name]
            mechanism.check(model, graph, experiment.training)
            mechanism.check_options(model, experiment.model)
        elif graph.confidential and graph.marks("train").any():
            bare.append(client)
    if bare:
        _log.warning(
            "clients %s train on confidential triples without differential privacy; switch it on with "
            "--set privacy.dp.sigma=1.0, or set data.confidential = 0",
            ", ".join(map(str, bare)),
        )
