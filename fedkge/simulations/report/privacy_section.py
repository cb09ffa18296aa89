"""What the server learned, what attacks made of it, and what differential privacy bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite

from fedkge.attacks.findings import Finding
from fedkge.simulations.report.charts.bars import Bar, BarChart
from fedkge.simulations.report.charts.lines import NUM_COLOURS, LineChart, Series
from fedkge.simulations.report.page import Figure, PageTable, Section
from fedkge.simulations.report.words import MISSING, epsilon_of, figure, interval
from fedkge.simulations.runs.run_folder import RunFolder

__all__ = [
    "budget_section",
    "by_client",
    "leakage_bar",
    "leakage_section",
    "learned",
    "learned_section",
    "unprotected",
]

_MOST_BARS = 8
_MOST_GRANTED = 4
_MOST_ROWS = 300
_LONGEST_TERM = 20
_STANDING = ("delta", "claimed_or_guaranteed")


def learned_section(run: RunFolder) -> Section:
    text = "" if run.is_finished else "The run has not ended: what the server learned is said at its end."
    return Section("What the server learned", text, learned(run))


def learned(run: RunFolder) -> list[tuple[str, str]]:
    """Statements; what stands before a colon says of what kind they are."""
    return [_parted(str(line)) for line in run.summary.listed("privacy", "what_the_server_learned")]


def _parted(line: str) -> tuple[str, str]:
    term, colon, rest = line.partition(": ")
    return (f"{term}:", rest) if colon and len(term) <= _LONGEST_TERM else ("", line)


def unprotected(runs: Sequence[RunFolder]) -> list[str]:
    """Whether triples that are marked confidential were trained on like all others."""
    bare = [
        run.name
        for run in runs
        if run.experiment.text("data", "confidential") not in ("", "0", "0.0")
        and run.is_finished
        and not by_client(run.summary.at("privacy", "epsilon"))
    ]
    if not bare:
        return []
    return [
        f"Confidential triples were trained on without differential privacy: {', '.join(bare)}. "
        "Switch it on with: --set privacy.dp.sigma=1.0"
    ]


def leakage_section(run: RunFolder) -> Section:
    if not run.findings:
        return Section("What attacks found")
    bars = _strongest(each for each in run.findings if each.is_success)
    num_impossible = sum(each.value is None for each in run.findings)
    caption = (
        "Of each attack the client for which it went best, with its 95 % interval; the tick is what "
        "guessing reaches. “Given” names rows that the protocol does not send and the attack was handed."
    )
    chart = BarChart("The strongest attacks", bars, end=max([1.0, *(bar.value for bar in bars)]))
    return Section(
        "What attacks found",
        f"{len(run.findings)} findings; {num_impossible} of them say that an attack was not possible.",
        figures=[Figure.of(chart, caption)] if bars else [],
        tables=[_impossible(run.findings), _found(run.findings)],
    )


def _strongest(findings: Iterable[Finding]) -> list[Bar]:
    """The best over targets of each attack: from what was received, then from what was also given."""
    best: dict[tuple[str, str], Finding] = {}
    for each in findings:
        given = f", given {each.granted}" if each.granted else ""
        names = (each.metric, f"{each.attack} ({each.protocol}) by {each.where}{given}")
        if names not in best or each.excess > best[names].excess:
            best[names] = each
    order = sorted(best.items(), key=lambda item: (item[1].protocol != "rigorous", -item[1].excess, item[0]))
    received = [item for item in order if not item[1].granted][:_MOST_BARS]
    granted = [item for item in order if item[1].granted][:_MOST_GRANTED]
    return [
        leakage_bar(label, each, colour=1 if each.granted else 0, detail=detail)
        for (label, detail), each in (*received, *granted)
    ]


def leakage_bar(label: str, finding: Finding, colour: int, detail: str) -> Bar:
    return Bar(
        label, finding.value or 0.0, finding.low, finding.high, finding.baseline, colour=colour, detail=detail
    )


def _found(findings: Sequence[Finding]) -> PageTable:
    rows = [
        (
            each.attack,
            each.protocol,
            each.where,
            each.granted or "nothing",
            "all" if each.target is None else str(each.target),
            each.metric,
            figure(each.value, 4),
            interval((each.low, each.high), 4),
            "" if each.baseline is None else figure(each.baseline, 4),
            "" if each.count is None else str(each.count),
            each.note,
        )
        for each in findings
        if each.value is not None
    ]
    more = f"{len(rows) - _MOST_ROWS} more stand in findings.csv." if len(rows) > _MOST_ROWS else ""
    who = ("attack", "protocol", "adversary", "given", "client")
    what = ("metric", "value", "95 % interval", "guessing", "of", "note")
    title = f"All findings ({len(rows)})"
    return PageTable(title, (*who, *what), rows[:_MOST_ROWS], "llllrlrrrrl", more, folded=True)


def _impossible(findings: Sequence[Finding]) -> PageTable:
    """Each reason once."""
    rows = dict.fromkeys((each.metric, each.where, each.note) for each in findings if each.value is None)
    return PageTable(
        f"Not possible ({len(rows)})", ("metric", "adversary", "why"), list(rows), "lll", folded=True
    )


def budget_section(run: RunFolder) -> Section:
    """ε by round and by client; empty without private training."""
    privacy = run.summary.part("privacy")
    spent = by_client(privacy.at("epsilon"))
    rows = [
        (client, epsilon_of(value), *(_cell(privacy.at(name), client) for name in _STANDING))
        for client, value in spent.items()
    ]
    chart = _spending(run)
    return Section(
        "What differential privacy bounds",
        items=[_parted(str(line)) for line in privacy.listed("outside_epsilon")],
        figures=[] if chart.is_empty else [Figure.of(chart)],
        tables=[PageTable("ε at the end", ("client", "ε", "δ", "standing"), rows, "lrrl")],
    )


def _spending(run: RunFolder) -> LineChart:
    curves = run.curve("train", "epsilon")
    few = len(curves) <= NUM_COLOURS
    lines = [
        Series(f"client {client}", points, number if few else None)
        for number, (client, points) in enumerate(curves.items())
    ]
    budget = run.experiment.number("privacy", "dp", "budget")
    return LineChart(
        "ε spent",
        "round",
        "ε",
        lines,
        bound=("budget", budget) if budget else None,
        show_y=epsilon_of,
        y_from_zero=True,
    )


def by_client(value: object) -> dict[str, float]:
    """One number for all, or one for each client."""
    if isinstance(value, dict):
        return {str(client): float(own) for client, own in value.items() if isinstance(own, int | float)}
    return {"all": float(value)} if isinstance(value, int | float) else {}


def _cell(value: object, client: str) -> str:
    own = value.get(client) if isinstance(value, dict) else value
    if isinstance(own, float) and isfinite(own):
        return f"{own:.3g}"
    return MISSING if own is None else str(own)
