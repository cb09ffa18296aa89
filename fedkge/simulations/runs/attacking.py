"""Attacks on a finished run: every adversary's view, every attack asked for, findings beside the summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedkge.attacks import ATTACKS, PROTOCOLS, Attack, Finding, Protocol, View
from fedkge.attacks.coalition import views_of
from fedkge.attacks.findings import leakage_of, write_findings
from fedkge.attacks.recorded_run import RecordedRun
from fedkge.errors import InputError
from fedkge.experiment import AdversarySettings, Experiment, options_of
from fedkge.seeding import draw
from fedkge.server.records import Records
from fedkge.simulations.runs.run_folder import RunFolder, result_of
from fedkge.strategy import shared_by

__all__ = ["attack_run", "check_attacks", "nothing_to_attack", "publish"]

_ATTACK = 11  # tells the draws of attacks from the other draws of a seed


def check_attacks(
    adversary: AdversarySettings, names: Sequence[str] = (), experiment: str = "EXPERIMENT.toml"
) -> None:
    """Refuse attacks that no registry has, that are set up wrongly, or that this recording cannot support."""
    for name in names or adversary.attacks:
        _attack(name, adversary)
        if ATTACKS[name].acts:
            raise InputError(ATTACKS[name].refusal(name, experiment))
        if ATTACKS[name].every_round and adversary.record != "every":
            raise InputError(
                f"attack '{name}' compares rounds, but adversary.record is \"{adversary.record}\"; "
                "run again with --set adversary.record=every"
            )
    for name in adversary.options:
        ATTACKS[name]  # an unknown name raises


def _attack(name: str, adversary: AdversarySettings) -> Attack:
    """The attack of a name, with its options of the experiment."""
    kind = ATTACKS[name]
    options = adversary.options.get(name, {})
    return kind(options_of(options, kind.Options, f"adversary.options.{name}", name))


def attack_run(
    folder: Path,
    names: Sequence[str] = (),
    protocols: Sequence[Protocol] = PROTOCOLS,
    colluders: Sequence[int] | None = None,
    leak_ratios: Sequence[float] = (),
    watch: Callable[[str], None] | None = None,
) -> list[Finding]:
    """Attack what a run recorded, by every adversary that it could have had.

    Args:
        folder: of a run with adversary.record on.
        names: of attacks in ATTACKS; none: those of the experiment, else reconstruction.
        protocols: "paper", "rigorous" or both.
        colluders: clients that help the server; None: those of the experiment.
        leak_ratios: shares of its pairs that a colluder hands over; none: that of the experiment.
        watch: is told what is attacked now.
    """
    recorded = RecordedRun(folder)
    adversary = recorded.experiment.adversary
    names = names or adversary.attacks or ("reconstruction",)
    if not any(ATTACKS[name].acts for name in names):
        recorded.recording  # noqa: B018 - a run without one is the likeliest mistake
    check_attacks(adversary, names, str(folder / "experiment.toml"))
    colluders = adversary.colluders if colluders is None else colluders
    views: dict[tuple[str, str, float], View] = {}  # not every view depends on the leak ratio
    for ratio in leak_ratios or (adversary.leak_ratio,):
        for view in views_of(recorded, colluders, ratio):
            views.setdefault((view.name, view.adversary, view.leak_ratio), view)
    findings: list[Finding] = []
    for number, name in enumerate(names):
        attack = _attack(name, adversary)
        for protocol in protocols:
            for position, view in enumerate(views.values()):
                if watch is not None:
                    watch(f"{name} ({protocol}) by {view.adversary} on {view.name}")
                rng = draw(recorded.experiment.seed, _ATTACK, number, PROTOCOLS.index(protocol), position)
                findings += attack.assess(view, recorded.truth, protocol, rng)
    return findings


def nothing_to_attack(experiment: Experiment) -> list[Finding]:
    """What to say of a run whose strategy sends no rows, so that it can stand beside others."""
    why = f"{experiment.federation.strategy} sends no embeddings: the server has nothing to attack"
    if shared_by(experiment.federation):
        why = f"{experiment.federation.strategy} sends weights alone, and the attacks here look at rows"
    return [
        Finding(name, protocol, "none", "server", "", 0.0, None, "", "any", None, note=why)
        for name in experiment.adversary.attacks
        for protocol in PROTOCOLS
    ]


def publish(folder: Path, findings: Sequence[Finding]) -> dict[str, Any]:
    """Put findings into the run's folder: findings.csv, and `leakage` in its summary, which is returned.

    They take the place of earlier ones of the same attacks; those of other attacks stay.
    """
    result = result_of(folder)
    renewed = {finding.attack for finding in findings}
    kept = [finding for finding in RunFolder(folder).findings if finding.attack not in renewed]
    write_findings(folder / "findings.csv", [*kept, *findings])
    summary = {**result.summary, "leakage": leakage_of([*kept, *findings])}
    Records(folder).write_json("summary.json", summary)
    return summary
