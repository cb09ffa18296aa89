"""Charts of one run, in the order of its page; one more is a function and a line in CHARTS.

A chart takes a run and gives a figure, or None where the run has no numbers for it.
"""

from __future__ import annotations

from collections.abc import Callable

from fedkge.simulations.report.charts.bars import Bar, BarChart
from fedkge.simulations.report.charts.lines import LineChart, Series
from fedkge.simulations.report.page import Figure
from fedkge.simulations.report.words import bytes_of, protocol_of
from fedkge.simulations.report.words import figure as number
from fedkge.simulations.runs.run_folder import ALL, RunFolder

__all__ = ["CHARTS", "charts"]

_MOST_CLIENTS = 24
_MOST_PHASES = 6


def charts(run: RunFolder) -> list[Figure]:
    """All for which there are numbers."""
    return [figure for chart in CHARTS if (figure := chart(run))]


def _line(chart: LineChart, caption: str = "") -> Figure | None:
    return None if chart.is_empty else Figure.of(chart, caption)


def _mrr(run: RunFolder) -> Figure | None:
    target = run.experiment.number("federation", "target_mrr")
    bound = ("target", target) if target else None
    chart = LineChart("Validation MRR", "round", "MRR", _with_clients(run, "valid", "mrr"), bound)
    protocol = protocol_of(run.experiment.part("evaluation"), filter="own")
    return _line(chart, f"Ranked with {protocol}." if protocol else "")


def _loss(run: RunFolder) -> Figure | None:
    return _line(LineChart("Training loss", "round", "loss", _with_clients(run, "train", "loss")))


def _with_clients(run: RunFolder, split: str, metric: str) -> list[Series]:
    """All clients together before each of them; where only single ones are known, their mean."""
    curves = run.curve(split, metric)
    single = [Series(f"client {client}", points) for client, points in curves.items() if client != ALL]
    if ALL in curves:
        return [Series("all clients", curves[ALL], 0), *single]
    by_round: dict[float, list[float]] = {}
    for series in single:
        for round, value in series.points:
            by_round.setdefault(round, []).append(value)
    mean = [(round, sum(values) / len(values)) for round, values in sorted(by_round.items())]
    return [Series("mean of the clients", mean, 0), *single]


def _bytes(run: RunFolder) -> Figure | None:
    series = [
        Series("up, to the server", run.bytes_by_round("up"), 0),
        Series("down, to the clients", run.bytes_by_round("down"), 1),
    ]
    chart = LineChart(
        "Bytes so far", "round", "bytes, all clients", series, show_y=bytes_of, y_from_zero=True
    )
    return _line(chart)


def _phases(run: RunFolder) -> Figure | None:
    """What the bytes were for, the most first."""
    phases = sorted(run.ledger.by_phase().items(), key=lambda item: -item[1])
    bars = [Bar(name, value, colour=int(name.endswith("down"))) for name, value in phases]
    caption = "The rest is in the table." if len(bars) > _MOST_PHASES else ""
    return Figure.of(BarChart("Bytes by phase", bars[:_MOST_PHASES], bytes_of), caption) if bars else None


def _clients(run: RunFolder) -> Figure | None:
    bars = []
    per_client = run.summary.part("utility", "per_client")
    for client in per_client.content:
        test = per_client.part(client, "test")
        value, bounds = test.number("mrr", "value"), test.listed("mrr", "interval")
        if value is not None:
            low, high = bounds if len(bounds) == 2 else (None, None)
            count = number(test.number("count"), 0)
            bars.append(Bar(f"client {client}, {count} triples", value, low, high))
    if not bars:
        return None
    shown, left_out = _ends(bars)
    protocol = protocol_of(run.summary.part("utility", "protocol"))
    captions = [f"With 95 % intervals over each client's test triples{f'; {protocol}' if protocol else ''}."]
    if left_out:
        captions.append(f"The lowest and the highest; {left_out} between them are in the table.")
    if run.summary.at("privacy", "secure_aggregation"):
        captions.append("The server saw only their sum: a simulation may look into its clients' folders.")
    return Figure.of(BarChart("Test MRR by client", shown), " ".join(captions))


def _ends(bars: list[Bar]) -> tuple[list[Bar], int]:
    if len(bars) <= _MOST_CLIENTS:
        return bars, 0
    order = sorted(bars, key=lambda bar: bar.value)
    half = _MOST_CLIENTS // 2
    return [*order[:half], *order[-half:]], len(bars) - _MOST_CLIENTS


CHARTS: list[Callable[[RunFolder], Figure | None]] = [_mrr, _clients, _bytes, _phases, _loss]
