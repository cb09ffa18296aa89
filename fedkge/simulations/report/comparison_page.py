"""The report of several runs, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from fedkge.attacks.findings import Finding, worst
from fedkge.simulations.report.answers import GAIN, LEAK, NOT_ATTACKED, PRICE, exposure, sentence_of
from fedkge.simulations.report.charts.bars import Bar, BarChart
from fedkge.simulations.report.charts.lines import LineChart, Series
from fedkge.simulations.report.groups import Group, differences, grouped
from fedkge.simulations.report.page import Card, Figure, Page, PageAnswer, PageTable, Section
from fedkge.simulations.report.privacy_section import leakage_bar, learned, unprotected
from fedkge.simulations.report.run_page import environment_rows, unlike_sides
from fedkge.simulations.report.words import (
    MISSING,
    asked,
    bytes_of,
    figure,
    interval,
    protocol_of,
    several,
)
from fedkge.simulations.runs.rows import Row, saved
from fedkge.simulations.runs.run_folder import ALL, RunFolder
from fedkge.simulations.scoring.differences import Difference, client_difference, difference

__all__ = ["comparison_page"]

_MOST_LINES = 5
_MOST_CLIENTS = 12


def comparison_page(runs: Sequence[RunFolder]) -> Page:
    groups = grouped(runs)
    ranked = sorted(groups, key=lambda group: -group.row.mrr if group.row else 1.0)
    return Page(
        _title(groups),
        _asked(groups),
        _notices(runs),
        [_utility(ranked), _bytes(ranked), _leakage(ranked)],
        [
            Section(
                "Side by side",
                figures=_charts(groups),
                tables=[_table(groups), _filters(groups), _targets(groups), _clients(groups)],
            ),
            Section("What the server learned", cards=[_learned(group) for group in groups]),
            Section("How to check it", tables=[_runs(groups), _settings(groups), _environment(runs)]),
        ],
    )


def _learned(group: Group) -> Card:
    return Card(group.label, learned(group.runs[0]) or [("", "the run has not ended")])


def _title(groups: Sequence[Group]) -> str:
    first = groups[0].runs[0].experiment
    names = ", ".join(group.label for group in groups[:4]) + (", …" if len(groups) > 4 else "")
    same = {group.runs[0].experiment.text("data", "dataset") for group in groups}
    return f"{names} on {first.text('data', 'dataset')}" if len(same) == 1 else names


def _asked(groups: Sequence[Group]) -> list[str]:
    """What all runs have in common, as far as a sentence about the first goes for all."""
    common = asked(groups[0].runs[0].experiment)
    for group in groups[1:]:
        common = [sentence for sentence in common if sentence in asked(group.runs[0].experiment)]
    seeds = max(len(group.runs) for group in groups)
    counted = f"{several(len(groups), 'setting')}, {several(seeds, 'seed')} each."
    varied = differences([group.runs[0] for group in groups])
    named = f" They differ in {', '.join(varied[:6])}{', …' if len(varied) > 6 else ''}." if varied else ""
    return [*common, counted + named]


def _notices(runs: Sequence[RunFolder]) -> list[str]:
    cut = [run.name for run in runs if not run.is_finished]
    notices = [*unprotected(runs), *dict.fromkeys(notice for run in runs for notice in unlike_sides(run))]
    if not cut:
        return notices
    return [
        *notices,
        f"{several(len(cut), 'run')} of {len(runs)} did not end and enter no mean: {', '.join(cut)}. "
        "Go on with: fedkge run --resume FOLDER",
    ]


def _utility(ranked: Sequence[Group]) -> PageAnswer:
    rows = [group.row for group in ranked if group.row]
    if not rows:
        return PageAnswer(GAIN, "?", "", ["No run has ended."])
    beside = [(row.strategy, f"{figure(row.mrr)} ({interval(row.interval)})") for row in rows[:_MOST_LINES]]
    best = rows[0]
    lines = ["with 95 % intervals", *([protocol] if (protocol := _protocol(ranked)) else [])]
    return PageAnswer(GAIN, figure(best.mrr), f"test MRR, {best.strategy}", lines, beside)


def _protocol(groups: Sequence[Group]) -> str:
    """How clients ranked, where all runs agree in it."""
    said = {
        protocol_of(run.summary.part("utility", "protocol")) for group in groups for run in group.finished
    }
    return f"ranked with {said.pop()}" if len(said) == 1 and "" not in said else ""


def _filters(groups: Sequence[Group]) -> PageTable:
    """The MRR under each filter, and by how much it exceeds that of the first setting."""
    shown = [(group, group.row) for group in groups if group.row]
    names = [name for name in ("own", "all") if all(name in row.filters for _, row in shown)] if shown else []
    if not names:
        return PageTable("", (), (), "")
    first = shown[0][0]
    gains = {
        (group.label, name): difference(first.finished, group.finished, name)
        for group, _ in shown
        if group is not first
        for name in names
    }
    cells = [
        (
            group.label,
            *(cell for name in names for cell in _filter_cells(row, name, gains.get((group.label, name)))),
        )
        for group, row in shown
    ]
    less = f"− {first.label}"
    columns = [column for name in names for column in (f"MRR, filter {name}", "95 %", less)]
    bases = sorted({gain.basis for gain in gains.values() if gain})
    over = f" Differences ± 95 % are over {' or '.join(bases)}." if bases else ""
    note = (
        'Filter "own" leaves out a client\'s own true answers, "all" those of all clients, as only a '
        f"simulation can.{over}"
    )
    return PageTable("By filter", ("setting", *columns), cells, "l" + "r" * len(columns), note)


def _filter_cells(row: Row, name: str, gain: Difference | None) -> tuple[str, str, str]:
    score = row.filters[name]
    return figure(score.mrr, 4), interval(score.interval, 4), str(gain) if gain else ""


def _bytes(ranked: Sequence[Group]) -> PageAnswer:
    rows = [group.row for group in ranked if group.row]
    if not rows:
        return PageAnswer(PRICE, "?", "", ["No run has ended."])
    best = rows[0]
    beside = [(row.strategy, f"{bytes_of(row.bytes_total)}{_less(row, best)}") for row in rows[:_MOST_LINES]]
    return PageAnswer(PRICE, bytes_of(best.bytes_total), f"per run, {best.strategy}", rows=beside)


def _less(row: Row, than: Row) -> str:
    """How a cost compares, in words."""
    if row == than or not than.bytes_total or not row.bytes_total:
        return ""
    share = row.bytes_total / than.bytes_total
    return f", {1 - share:.1%} less" if share < 1 else f", {share:.3g} times as much"


def _leakage(ranked: Sequence[Group]) -> PageAnswer:
    attacked = {group.label: most for group in ranked if (most := _most(group))}
    seen: dict[str, list[str]] = {}
    for group in ranked[:_MOST_LINES]:
        seen.setdefault(exposure(group.runs[0]), []).append(group.label)
    lines = [f"{', '.join(labels)}: {sentence}" for sentence, labels in seen.items()]
    failed = [group.label for group in ranked if group.findings and group.label not in attacked]
    if failed and not attacked:
        return PageAnswer(LEAK, "none", "of the attacks was possible", lines)
    if not attacked:
        return PageAnswer(LEAK, "?", "not attacked", [*lines, NOT_ATTACKED])
    label, most = max(attacked.items(), key=lambda item: item[1].excess)
    beside = [(name, f"{finding.metric} {figure(finding.value)}") for name, finding in attacked.items()]
    beside += [(name, "not possible") for name in failed]
    return PageAnswer(
        LEAK, figure(most.value), f"{most.metric}, {label}", [sentence_of(most), *lines], beside
    )


def _table(groups: Sequence[Group]) -> PageTable:
    rows = [group.row for group in groups if group.row]
    cells = [
        (
            row.strategy,
            figure(row.mrr, 4),
            interval(row.interval, 4),
            *(figure(row.hits[name], 4) for name in ("hits@1", "hits@3", "hits@10")),
            f"{row.rounds:g}",
            bytes_of(row.bytes_total),
            _share(saved(rows, row, "bytes_total")),
            figure(row.seconds, 1),
        )
        for row in rows
    ]
    names = (
        "test MRR",
        "95 % interval",
        "Hits@1",
        "Hits@3",
        "Hits@10",
        "rounds",
        "bytes",
        "saved",
        "seconds",
    )
    protocol = _capital(_protocol(groups))
    cost = "Saved: against FedE's bytes, as counted on the wire." if any(cell[-2] for cell in cells) else ""
    note = f"{protocol} {cost}".strip()
    return PageTable("Gain and cost", ("setting", *names), cells, "lrrrrrrrrr", note)


def _targets(groups: Sequence[Group]) -> PageTable:
    """What each needed to reach the target."""
    target = _target(groups)
    rows = [group.row for group in groups if group.row]
    if target is None:
        return PageTable("", (), (), "")
    cells = [
        (row.strategy, "never", "", "")
        if row.rounds_to_target is None
        else (
            row.strategy,
            f"{row.rounds_to_target:g}",
            bytes_of(row.bytes_to_target),
            _share(saved(rows, row, "bytes_to_target")),
        )
        for row in rows
    ]
    return PageTable(f"To reach MRR {target:g}", ("setting", "rounds", "bytes", "saved"), cells, "lrrr")


def _target(groups: Sequence[Group]) -> float | None:
    return groups[0].runs[0].experiment.number("federation", "target_mrr")


def _clients(groups: Sequence[Group]) -> PageTable:
    """What each party has of each setting, beside what it has alone; only where all hold the same data."""
    chosen = [group for group in groups if group.row and group.runs[0].strategy != "Central"]
    parted = [group.runs[0] for group in chosen]
    scores = [run.summary.part("utility", "per_client") for run in parted]
    if len({_parties(run) for run in parted}) != 1:
        return PageTable("", (), (), "")
    alone = [_alone(run, parted) for run in parted]
    clients = sorted({client for score in scores for client in score.content}, key=int)
    rows = [(f"client {client}", *map(_against, parted, alone, [client] * len(scores))) for client in clients]
    labels = [group.label for group in chosen]
    note = (
        "In brackets: what a client gains over training alone, ± 95 % over its test triples, paired."
        if any(alone)
        else ""
    )
    return PageTable(
        "Test MRR by client",
        ("client", *labels),
        rows,
        "l" + "r" * len(labels),
        " ".join(part for part in (note, _first_seed(groups), _capital(_protocol(groups))) if part),
        folded=len(rows) > _MOST_CLIENTS,
    )


def _parties(run: RunFolder) -> str:
    """Equal where the same clients hold the same triples."""
    return repr([run.experiment.at(part) for part in ("seed", "data", "clients")])


def _alone(run: RunFolder, others: Sequence[RunFolder]) -> RunFolder | None:
    """The run of clients that train the same model, each by itself; none if there are two such runs."""
    model = run.experiment.at("model")
    local = [other for other in others if other.strategy == "Local" and other.experiment.at("model") == model]
    is_one = len(local) == 1 and run.strategy != "Local"
    return local[0] if is_one else None


def _against(run: RunFolder, alone: RunFolder | None, client: str) -> str:
    path = ("utility", "per_client", client, "test", "mrr", "value")
    value, before = run.summary.number(*path), alone.summary.number(*path) if alone else None
    if value is None or before is None or alone is None:
        return figure(value)
    gain = client_difference(alone, run, int(client))
    if gain is None:
        return f"{value:.3f} ({value - before:+.3f})"
    return f"{value:.3f} ({gain.value:+.3f} ± {(gain.interval[1] - gain.interval[0]) / 2:.3f})"


def _capital(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}." if words else ""


def _first_seed(groups: Sequence[Group]) -> str:
    return "The first seed of each." if any(len(group.runs) > 1 for group in groups) else ""


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"


def _charts(groups: Sequence[Group]) -> list[Figure]:
    rows = [(number, group.row) for number, group in enumerate(groups) if group.row]
    bars = [Bar(row.strategy, row.mrr, *row.interval, colour=number) for number, row in rows]
    prices = [Bar(row.strategy, row.bytes_total, colour=number) for number, row in rows]
    target = _target(groups)
    bound = ("target", target) if target else None
    lines = [
        LineChart("Validation MRR over rounds", "round", "MRR", _lines(groups, by_bytes=False), bound),
        LineChart(
            "Validation MRR over bytes",
            "bytes",
            "MRR",
            _lines(groups, by_bytes=True),
            bound,
            show_x=bytes_of,
            x_log=True,
        ),
        LineChart(
            "Bytes so far",
            "round",
            "bytes, all clients",
            [
                Series(group.label, group.runs[0].bytes_by_round(), number)
                for number, group in enumerate(groups)
            ],
            show_y=bytes_of,
            y_from_zero=True,
        ),
    ]
    protocol = _capital(_protocol(groups))
    parts = ("Each setting is tested with the tables of its best round.", _first_seed(groups), protocol)
    caption = " ".join(part for part in parts if part)
    return [
        *(
            [Figure.of(BarChart("Test MRR", bars), f"With 95 % intervals. {protocol}".strip())]
            if bars
            else []
        ),
        *([Figure.of(BarChart("Bytes in all", prices, bytes_of))] if prices else []),
        *(Figure.of(chart, caption) for chart in lines if not chart.is_empty),
        *_attacks(groups),
    ]


def _attacks(groups: Sequence[Group]) -> list[Figure]:
    """Of each setting the attack that found out most, from what the protocol sends."""
    bars = [
        leakage_bar(f"{group.label}: {most.metric}", most, number, most.where)
        for number, group in enumerate(groups)
        if (most := _most(group))
    ]
    chart = BarChart("The strongest attack", bars, end=1.0)
    return [Figure.of(chart, "With 95 % intervals; the tick is what guessing reaches.")] if bars else []


def _most(group: Group) -> Finding | None:
    return worst([finding for finding in group.findings if not finding.granted])


def _lines(groups: Sequence[Group], by_bytes: bool) -> list[Series]:
    """The validation curve of each group's first run."""
    lines = []
    for number, group in enumerate(groups):
        run = group.runs[0]
        points = run.curve("valid", "mrr").get(ALL, [])
        if by_bytes:
            spent = dict(run.bytes_by_round())
            points = [(spent[round], value) for round, value in points if round in spent]
        lines.append(Series(group.label, points, number))
    return lines


def _runs(groups: Sequence[Group]) -> PageTable:
    rows = [
        (
            group.label,
            run.experiment.text("seed"),
            run.name,
            figure(run.summary.number("utility", "test", "mrr", "value"), 4),
            str(run.last_round),
            run.summary.text("utility", "best_round"),
            bytes_of(run.bytes_total),
            run.summary.text("result_hash")[:16] or "unfinished",
        )
        for group in groups
        for run in group.runs
    ]
    columns = ("setting", "seed", "folder", "test MRR", "rounds", "best", "bytes", "result hash")
    return PageTable("The runs", columns, rows, "lrlrrrrl")


def _settings(groups: Sequence[Group]) -> PageTable:
    """Where they differ, then what they share."""
    flat = [group.runs[0].experiment.flat() for group in groups]
    varied = differences([group.runs[0] for group in groups])
    rest = [name for name in flat[0] if name not in varied and name != "seed"]
    rows = [(name, *(str(settings.get(name, MISSING)) for settings in flat)) for name in (*varied, *rest)]
    columns = ("setting", *(group.label for group in groups))
    return PageTable("The experiments, what differs first", columns, rows, "l" * len(columns), folded=True)


def _environment(runs: Sequence[RunFolder]) -> PageTable:
    rows = environment_rows(runs[0])
    alike = all(environment_rows(run) == rows for run in runs)
    note = "" if alike else "Of the first run; others were made with something else."
    return PageTable("Environment", ("what", "value"), rows, "ll", note, folded=True)
