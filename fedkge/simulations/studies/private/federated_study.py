"""Private clients in a federation: utility on both kinds of triples over ε, and what attacks still find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedkge.attacks import Finding
from fedkge.client.privacy.sound import SoundOptions
from fedkge.experiment import Experiment
from fedkge.server.summary import experiment_hash
from fedkge.simulations.runs.attacking import attack_run
from fedkge.simulations.studies.cells import Row, StudyCache, TableCell
from fedkge.simulations.studies.central import EVERY_SIDE, whole_graph
from fedkge.simulations.studies.kept_runs import kept_run
from fedkge.simulations.studies.leakage import largest, score, shares, worst_of
from fedkge.simulations.studies.private.utility_cells import PREDICATES, SMALL
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = ["METHODS", "named_experiment", "privacy_federated", "recorded_experiment"]

_CLIENTS = 3
_ROUNDS = {"quick": 4, "full": 20}
_STRATEGIES = {"quick": ("FedE",), "full": ("FedE", "FedR")}
_TARGETS = {"quick": (1.0,), "full": (1.0, 8.0)}

# What each client does with its confidential triples.
METHODS: Mapping[str, tuple[str, ...]] = {
    "NDP": ("privacy.dp.mode=off",),
    "U": ("privacy.dp.mode=sound", "privacy.dp.budget=0"),  # never reaches them
    "hubs": ("privacy.dp.mode=hubs",),
    # A default is no part of an experiment's digest: written down, another share is another cell and run.
    "sound": ("privacy.dp.mode=sound", f"privacy.dp.options.noise_share={SoundOptions().noise_share}"),
}


@study(
    quantities=[Quantity("measured", low="low", high="high")],
    within=("metric",),
    seeds={"quick": 1, "full": 3},
    notes=(
        "Confidential: the relations of rank 3, 6 and 9 by train triples, at every client; triples are "
        "divided at random. Clients rank among all entities, each filtered by its own triples, so that MRR "
        "is lower than where one party has the whole graph. ε is that of the client who spent most.",
        "ERR, TRR and membership are of the client who loses most to the server and one colluder, without "
        "secure aggregation, over all its triples, of which about a sixth is confidential. Pseudonyms are "
        "named in a run of three rounds with it, whose initial rows come from a seed that the server knows, "
        "as in published code; by default they do not. Labels are no part of what ε protects. cells.csv has "
        "what guessing reaches.",
    ),
)
def privacy_federated(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """Utility, ε and leakage of FedE and FedR with private clients; UMLS, TransE, three clients.

    Quick: FedE alone, ε = 1, 4 rounds instead of 20, one seed.
    """
    for seed in seeds:
        for strategy in _STRATEGIES[scale]:
            for method in METHODS:
                targets = _TARGETS[scale] if method in ("hubs", "sound") else (None,)
                for target in targets:
                    yield _measured(strategy, method, target, scale, seed)


def _measured(strategy: str, method: str, target: float | None, scale: Scale, seed: int) -> TableCell:
    recorded = recorded_experiment(strategy, method, target, scale, seed)
    named = named_experiment(recorded)
    words = "-".join(str(word) for word in (strategy, method, target, seed) if word is not None)

    def measure(cache: StudyCache) -> list[Row]:
        result = kept_run(cache, f"federated-{words}", recorded)
        return [
            *_utility(result.summary),
            *_found(attack_run(result.folder, ["reconstruction", "membership"], ["paper"])),
            *_names(attack_run(kept_run(cache, f"named-{words}", named).folder, ["naming"], ["rigorous"])),
        ]

    keys = {"strategy": strategy, "method": method, "target": target, "seed": seed}
    return TableCell(keys, measure, experiment_hash(recorded) + experiment_hash(named))


def recorded_experiment(
    strategy: str, method: str, target: float | None, scale: Scale, seed: int
) -> Experiment:
    """A federation whose server sees every upload; methods differ in `privacy.dp` alone."""
    choice, rounds = SMALL["TransE"], _ROUNDS[scale]
    training = choice.training(len(whole_graph("UMLS").train) // _CLIENTS)
    return Experiment(model=choice.model, training=training, evaluation=EVERY_SIDE).override(
        [
            "name=privacy-federated",
            f"seed={seed}",
            "data.dataset=UMLS",
            f"data.clients={_CLIENTS}",
            "data.partition=random",
            f"data.confidential={PREDICATES['UMLS']}",
            f"federation.strategy={strategy}",
            f"federation.rounds={rounds}",
            f"federation.evaluate_every={rounds}",  # the last round counts: hubs are complete then alone
            "privacy.union=plain",
            "privacy.secure_aggregation=false",
            "adversary.record=last",
            "engine.name=inline",
            *METHODS[method],
            *(() if target is None else (f"privacy.dp.target_epsilon={target}",)),
        ]
    )


def named_experiment(recorded: Experiment) -> Experiment:
    """The same with protected uploads, and initial rows that a server can compute."""
    return recorded.override(
        [
            "federation.rounds=3",
            "federation.evaluate_every=3",
            "training.local_epochs=1",
            "privacy.union=private",
            "privacy.secure_aggregation=true",
            "privacy.rows_from_seed=true",
            "adversary.record=every",
        ]
    )


def _utility(summary: Mapping[str, Any]) -> list[Row]:
    utility = summary["utility"]
    parts = {**utility["apart"]["test"], "all": utility["test"]}
    rows = [{"metric": f"MRR, {part}", **score(scores)} for part, scores in parts.items()]
    return [*rows, largest(summary["privacy"]["epsilon"])]


def _found(findings: Sequence[Finding]) -> list[Row]:
    rows = worst_of(findings, ("ERR", "TRR", "accuracy"), ("uploads", "granted entity rows"))
    return [{**row, "metric": "membership accuracy"} if row["metric"] == "accuracy" else row for row in rows]


def _names(findings: Sequence[Finding]) -> list[Row]:
    possible = [finding for finding in findings if finding.value is not None]
    return [{"metric": "pseudonyms named", **shares(finding)} for finding in possible]
