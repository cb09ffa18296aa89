"""The report of a reproduction: how close it came, how much is done, every line, and how to check it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from math import isfinite
from typing import Any

import pandas as pd
from markupsafe import Markup

from fedkge.simulations.report.charts.bars import Bar, BarChart
from fedkge.simulations.report.charts.lines import LineChart, Series
from fedkge.simulations.report.page import Figure, Page, PageAnswer, PageTable, Section
from fedkge.simulations.report.words import several
from fedkge.simulations.studies.reproduction import HEADER, Reproduction, shown

__all__ = ["reproduction_page"]

_MOST_BARS = 40
_LONG = 60


def reproduction_page(reproduction: Reproduction, environment: Mapping[str, Any]) -> Page:
    return Page(
        reproduction.recipe.about.removesuffix("."),
        [f"Published and measured, at scale {reproduction.scale}.", reproduction.common],
        reproduction.notices,
        [_closeness(reproduction.lines), _coverage(reproduction.lines), _progress(reproduction)],
        [
            Section("Line by line", tables=[_table(reproduction)]),
            Section("To look at", figures=list(_figures(reproduction))),
            Section("What to know", items=[("", note) for note in reproduction.notes if note]),
            Section("How to check it", tables=[_checks(reproduction, environment)]),
        ],
    )


def _closeness(lines: pd.DataFrame) -> PageAnswer:
    """Relative, since a table may hold quantities of several sizes."""
    both = lines[lines["difference"].notna() & (lines["published"] != 0)]
    if both.empty:
        return PageAnswer(
            "How close is it?", "?", "", ["No published number stands beside a measured one yet."]
        )
    gaps = (both["difference"] / both["published"]).abs()
    worst = max(both.to_dict("records"), key=lambda line: abs(line["difference"] / line["published"]))
    return PageAnswer(
        "How close is it?",
        f"{gaps.median():.1%}",
        "median difference",
        [
            f"over {several(len(both), 'published number')}",
            f"the largest: {shown(worst['published'])} published, {shown(worst['measured'])} measured "
            f"({_words(worst, _names(lines))})",
        ],
    )


def _coverage(lines: pd.DataFrame) -> PageAnswer:
    both = lines.dropna(subset=["difference", "low", "high"])
    inside = both["published"].between(both["low"], both["high"]).sum()
    question = "Is the published number within our interval?"
    if both.empty:
        return PageAnswer(question, "?", "", ["No interval stands beside a published number yet."])
    return PageAnswer(question, str(inside), f"of {len(both)}", ["The others are shown as they are."])


def _progress(reproduction: Reproduction) -> PageAnswer:
    line = "Go on with the same command." if reproduction.is_partial else "Nothing is missing."
    return PageAnswer(
        "How much of it is done?", str(reproduction.finished), f"of {reproduction.total} cells", [line]
    )


def _table(reproduction: Reproduction) -> PageTable:
    rows = reproduction.texts()
    is_long = len(rows) > _LONG
    align = "l" * (len(reproduction.header) - len(HEADER)) + "r" * len(HEADER)
    title = f"Every line ({len(rows)})" if is_long else ""
    return PageTable(title, reproduction.header, rows, align, folded=is_long)


def _names(lines: pd.DataFrame) -> list[str]:
    """The columns that tell lines apart."""
    return list(lines.columns[: list(lines.columns).index("published")])


def _figures(reproduction: Reproduction) -> Iterator[Figure]:
    """The recipe's own plot, or what its lines give."""
    if reproduction.drawing:
        _, mark, drawing = reproduction.drawing.partition("<svg")  # a page has no place for its prologue
        yield Figure("", Markup(mark + drawing))
        return
    yield from _curves(reproduction) if reproduction.recipe.over else _bars(reproduction)


def _bars(reproduction: Reproduction) -> Iterator[Figure]:
    """A chart for each quantity, and each value of the first column if there are more."""
    lines = reproduction.lines[
        reproduction.lines["measured"].map(lambda value: isfinite(value) and value >= 0)
    ]
    names = _names(lines)
    first = ["metric", *(name for name in names[:1] if len(names) > 2)]
    rest = [name for name in names if name not in first]
    for key, part in lines.groupby(first, sort=False, dropna=False):
        if len(part) > _MOST_BARS:
            continue
        records = part.to_dict("records")
        colours = list(dict.fromkeys(_words(line, rest[-1:]) for line in records))  # a cell may be empty
        bars = [
            Bar(
                _words(line, rest) or str(key[0]),
                line["measured"],
                _known(line["low"]),
                _known(line["high"]),
                _known(line["published"]),
                colours.index(_words(line, rest[-1:])),
            )
            for line in records
        ]
        title = _words(records[0], first)
        tick = "The tick is the published number."
        spans = " The thin line is our 95 % interval." if any(bar.low is not None for bar in bars) else ""
        yield Figure.of(BarChart(title, bars, shown), tick + spans)


def _curves(reproduction: Reproduction) -> Iterator[Figure]:
    """A chart for each cell but for the last column, whose values are its lines."""
    over = reproduction.recipe.over or ""
    names = [name for name in _names(reproduction.lines) if name not in (over, "metric")]
    lines = reproduction.lines.sort_values(["metric", *names, over], kind="stable").to_dict("records")
    for title, chart in groupby(lines, lambda line: _words(line, ["metric", *names[:-1]])):
        series = [
            Series(label, [(point[over], point["measured"]) for point in curve], number)
            for number, (label, curve) in enumerate(
                (label, list(curve)) for label, curve in groupby(chart, lambda line: _words(line, names[-1:]))
            )
        ]
        drawn = LineChart(title, over, str(title).partition(",")[0], series)
        if not drawn.is_empty:
            yield Figure.of(drawn)


def _words(line: Mapping[Any, Any], names: list[str]) -> str:
    """What tells a line from others; a bare number says of what."""
    values = {name: line[name] for name in names if not pd.isna(line[name])}
    words = [f"{name} {it:g}" if isinstance(it, int | float) else str(it) for name, it in values.items()]
    return ", ".join(words)


def _known(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def _checks(reproduction: Reproduction, environment: Mapping[str, Any]) -> PageTable:
    packages = environment["packages"]
    rows = [
        ("command", reproduction.command),
        ("written", environment["started"]),
        ("fedkge", f"{environment['fedkge']}, commit {environment['commit'] or 'unknown'}"),
        ("machine", f"{environment['processor']}, {several(environment['cores'], 'core')}"),
        ("python", environment["python"]),
        *packages.items(),
    ]
    return PageTable("", ("what", "value"), rows, "ll", "Every measured number by seed is in cells.csv.")
