"""Attacks on a finished run: every adversary's view, every attack asked for, findings beside the summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedkge.attacks import ATTACKS, PROTOCOLS, Finding, Protocol, View
from fedkge.attacks.findings import leakage_of, write_findings
from fedkge.attacks.recorded_run import RecordedRun
from fedkge.errors import InputError, UnknownNameError
from fedkge.experiment import Experiment
from fedkge.seeding import draw
from fedkge.server.records import Records
from fedkge.simulations.runs.run_folder import result_of

__all__ = ["attack_run", "check_attacks", "nothing_to_attack", "publish"]

_ATTACK = 11  # tells the draws of attacks from the other draws of a seed

Watcher = Callable[[str], None]


def check_attacks(names: Sequence[str], record: str) -> None:
    """Refuse an attack that no registry has, or that this recording cannot support."""
    for name in names:
        if name not in ATTACKS:
            raise UnknownNameError("attack", name, ATTACKS)
        if ATTACKS[name].every_round and record != "every":
            raise InputError(
                f"attack '{name}' compares rounds, but adversary.record is \"{record}\"; "
                "run again with --set adversary.record=every"
            )


def attack_run(
    folder: Path,
    names: Sequence[str] = (),
    protocols: Sequence[Protocol] = PROTOCOLS,
    colluders: Sequence[int] | None = None,
    leak_ratios: Sequence[float] = (),
    watch: Watcher | None = None,
) -> list[Finding]:
    """Everything that these attacks find; what is not given is as the run's experiment says."""
    recorded = RecordedRun(folder)
    adversary = recorded.experiment.adversary
    names = names or adversary.attacks or ("reconstruction",)
    recorded.recording  # noqa: B018 - a run without one is the likeliest mistake
    check_attacks(names, adversary.record)
    colluders = adversary.colluders if colluders is None else colluders
    views: dict[tuple[str, str, float], View] = {}  # not every view depends on the leak ratio
    for ratio in leak_ratios or (adversary.leak_ratio,):
        for view in recorded.views(colluders, ratio):
            views.setdefault((view.name, view.adversary, view.leak_ratio), view)
    found: list[Finding] = []
    for number, name in enumerate(names):
        for protocol in protocols:
            for place, view in enumerate(views.values()):
                if watch is not None:
                    watch(f"{name} ({protocol}) by {view.adversary} on {view.name}")
                rng = draw(recorded.experiment.seed, _ATTACK, number, PROTOCOLS.index(protocol), place)
                found += ATTACKS[name]().assess(view, recorded.truth, protocol, rng)
    return found


def nothing_to_attack(experiment: Experiment) -> list[Finding]:
    """What to say of a run whose strategy sends no embeddings, so that it can stand beside others."""
    why = f"{experiment.federation.strategy} sends no embeddings: the server has nothing to attack"
    return [
        Finding(name, protocol, "none", "server", "", 0.0, None, "", "any", None, note=why)
        for name in experiment.adversary.attacks
        for protocol in PROTOCOLS
    ]


def publish(folder: Path, findings: Sequence[Finding]) -> dict[str, Any]:
    """Put findings into the run's folder: findings.csv, and `leakage` in its summary, which is returned."""
    result = result_of(folder)
    write_findings(folder / "findings.csv", findings)
    summary = {**result.summary, "leakage": leakage_of(findings)}
    Records(folder).write_json("summary.json", summary)
    return summary
