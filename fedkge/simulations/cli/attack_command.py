"""`fedkge attack`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedkge.errors import InputError, SettingError, UnknownNameError
from fedkge.simulations.cli.display import RunDisplay
from fedkge.simulations.experiments.defaults import free_folder

if TYPE_CHECKING:
    from fedkge.attacks import Finding, Protocol

__all__ = ["attack_recorded_run"]

_HEADLINES = (
    "ERR",
    "TRR",
    "entity recall",
    "relation recall",
    "recall",
    "presence AUC",
    "pseudonyms named",
    "count Spearman",
    "holding AUC",
)


def attack_recorded_run(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_DIR|EXPERIMENT.toml",
            help="A run with adversary.record on; for active and tampering, an experiment to run.",
        ),
    ],
    attack: Annotated[
        list[str] | None, typer.Option(help="See 'fedkge list attacks'. May be repeated.")
    ] = None,
    protocol: Annotated[str | None, typer.Option(help="paper or rigorous (default: both).")] = None,
    colluders: Annotated[
        str | None, typer.Option(help="Clients separated by commas (default: the experiment's).")
    ] = None,
    leak_ratio: Annotated[
        list[float] | None, typer.Option(help="Share of its pairs that a colluder leaks. May be repeated.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override in an experiment: section.key=value. May be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A new folder for an experiment's run (default: runs/NAME-ATTACK-N).")
    ] = None,
    plots: Annotated[
        bool | None, typer.Option("--plots/--no-plots", help="Also draw the findings (default: yes).")
    ] = None,
    beside: Annotated[
        list[Path] | None, typer.Option(help="Another attacked run for the privacy–utility plot.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")] = False,
) -> None:
    """Attack what a run recorded: what could the server, its colluders or a curious client reconstruct?"""
    from fedkge.attacks import PROTOCOLS  # takes seconds to import
    from fedkge.simulations.report import write_report
    from fedkge.simulations.runs.attacking import attack_run, publish

    if protocol is not None and protocol not in PROTOCOLS:
        raise UnknownNameError("protocol", protocol, PROTOCOLS)
    chosen = [name for name in PROTOCOLS if protocol in (None, name)]
    if folder.is_file() or (folder.suffix == ".toml" and not folder.exists()):
        _check_unused({"--leak-ratio": leak_ratio, "--plots/--no-plots": plots, "--beside": beside})
        acted = _act(folder, sets or (), out, attack or (), _clients(colluders), chosen, quiet)
        _print(*acted, as_json)
        return
    if sets or out:
        raise SettingError("--set and --out go with an experiment file; a run that is over has its own")
    with Console(stderr=True, quiet=quiet).status("attacking") as status:
        findings = attack_run(
            folder, attack or (), chosen, _clients(colluders), leak_ratio or (), status.update
        )
    publish(folder, findings)
    write_report([folder])
    beside_others = folder.resolve().parent
    if (beside_others / "comparison.json").exists():
        write_report([beside_others])
    if plots is not False:
        from fedkge.simulations.report.charts.attack_plots import draw_findings

        draw_findings(folder, findings, beside or ())
    _print(folder, findings, as_json)


def _check_unused(options: Mapping[str, object]) -> None:
    """Refuse options of attacks on what was recorded, where an experiment is run instead."""
    given = [name for name, value in options.items() if value is not None and value != []]
    if given:
        raise SettingError(
            f"{' and '.join(given)}: for attacks on a recorded run, fedkge attack RUN_DIR; an adversary that "
            "acts in an experiment takes its options by --set adversary.options.ATTACK.KEY=VALUE"
        )


def _act(
    file: Path,
    sets: Sequence[str],
    out: Path | None,
    names: Sequence[str],
    colluders: Sequence[int] | None,
    protocols: Sequence[Protocol],
    quiet: bool,
) -> tuple[Path, list[Finding]]:
    """Run an experiment with an adversary in it; the run's folder and what was found."""
    from fedkge.experiment import Experiment  # these take seconds to import
    from fedkge.simulations.report import write_report
    from fedkge.simulations.runs.attacking import publish
    from fedkge.simulations.runs.tampered import ACTS, act

    if not file.exists():
        raise InputError(f"{file}: no such experiment file; give one that exists, or the folder of a run")
    if len(names) != 1:
        raise SettingError(
            f"{file}: an experiment is run with one attack that acts; name it: --attack {' or '.join(ACTS)}"
        )
    experiment = Experiment.load(file).override(list(sets))
    folder = out or free_folder(f"{experiment.name}-{names[0]}")
    with RunDisplay(quiet) as display:
        observer = display.track(f"{names[0]} in {experiment.federation.strategy}")
        findings = act(names[0], experiment, folder, colluders, protocols, observer)
    publish(folder, findings)
    write_report([folder])
    return folder, findings


def _print(folder: Path, findings: Sequence[Finding], as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
        return
    _show(findings)
    print(f"written to {folder / 'findings.csv'}")


def _is_headline(finding: Finding) -> bool:
    """The first figures of each attack; of membership, those that cold starts do not explain."""
    if not finding.possible:
        return False
    if finding.attack in ("membership", "active", "tampering"):
        return finding.metric in ("auc", "accuracy") and finding.regime.endswith("entity-seen without it")
    return finding.metric in _HEADLINES


def _guessing(finding: Finding) -> str:
    """What guessing reaches; what was read off is no guess."""
    if finding.baseline is not None:
        return f"{finding.baseline:.4f}"
    return "read" if finding.note.startswith("read:") else ""


def _clients(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise SettingError(f"--colluders '{text}': expected client numbers such as 0,1") from None


def _show(findings: Sequence[Finding]) -> None:
    table = Table(
        "protocol",
        "adversary",
        "view",
        "leak",
        "client",
        "metric",
        "value",
        "95 % interval",
        "guessing",
        box=None,
    )
    for finding in findings:
        if not _is_headline(finding):
            continue
        what = f"{finding.metric} ({finding.regime})" if finding.regime else finding.metric
        interval = "" if finding.low is None else f"{finding.low:.4f}–{finding.high:.4f}"
        value = f"{finding.value:.4f}"
        guess = _guessing(finding)
        where = (
            finding.protocol,
            finding.adversary,
            finding.view,
            f"{finding.leak_ratio:.0%}",
            "all" if finding.target is None else str(finding.target),
        )
        table.add_row(*where, what, value, interval, guess)
    Console(width=None if Console().is_terminal else 200).print(table)
    reasons = {
        f"{finding.metric} by {finding.adversary} on {finding.view}: {finding.note}"
        for finding in findings
        if not finding.possible
    }
    for reason in sorted(reasons):
        print(f"not possible: {reason}")
