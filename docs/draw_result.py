"""Draw the three answers of a comparison: `python docs/draw_result.py FOLDER docs/result.svg`."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedkge.attacks.findings import most_recovered
from fedkge.simulations.cli.display import human_bytes
from fedkge.simulations.report.groups import Group, grouped
from fedkge.simulations.runs.rows import interval_over_seeds
from fedkge.simulations.runs.run_folder import RunFolder, runs_in
from fedkge.strategy import STRATEGIES

COLOURS = ("#64748b", "#16a34a", "#2563eb", "#d97706", "#9333ea")
TITLES = ("gain: MRR, own | all filter", "price: bytes of a run", "leak: triples recovered")
WIDTH = 0.4  # of one of two bars side by side


def draw(folder: Path, path: Path) -> None:
    """Test MRR, bytes and triples recovered by attack of each strategy, the cheapest first."""
    groups = grouped(RunFolder.read(each) for each in runs_in(folder))
    groups = sorted((group for group in groups if group.row), key=lambda group: group.row.bytes_total)
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    gain, price, leak = axes = figure.subplots(1, 3)
    for place, (group, colour) in enumerate(zip(groups, COLOURS, strict=False)):
        row = group.row
        for side, score in zip((-1, 1), row.filters.values(), strict=False):
            draw_bar(gain, place + side * WIDTH / 2, score.mrr, score.interval, colour, WIDTH, side)
        price.bar(place, row.bytes_total, color=colour)
        price.text(place, row.bytes_total, human_bytes(row.bytes_total), ha="center", va="bottom")
        draw_leak(leak, place, group, colour)
    for axis, title in zip(axes, TITLES, strict=True):
        axis.set_title(title, loc="left", fontweight="bold")
        axis.set_xticks(range(len(groups)), [group.label for group in groups])
        axis.set_xlim(-0.6, len(groups) - 0.4)
        axis.spines[["top", "right"]].set_visible(False)
    price.set_yscale("log")
    price.margins(y=0.15)
    leak.set_ylim(0, 1)
    with rc_context({"svg.hashsalt": "fedkge"}):  # the same runs give the same file
        figure.savefig(path, metadata={"Date": None})


def draw_bar(
    axis: Axes,
    place: float,
    value: float,
    interval: tuple[float, float],
    colour: str,
    width: float = 2 * WIDTH,
    side: int = 1,
) -> None:
    """A bar with its interval; those on the left are paler."""
    low, high = interval
    errors = [[value - low], [high - value]]
    axis.bar(place, value, width, yerr=errors, color=colour, alpha=0.5 if side < 0 else 1.0, capsize=4)
    axis.text(place, high, f"{value:.3f}", ha="center", va="bottom")


def draw_leak(axis: Axes, place: int, group: Group, colour: str) -> None:
    """The success furthest above guessing, from what the protocol sends; guessing is a dotted line."""
    found = [most for run in group.runs if (most := most_recovered(run.findings)) is not None]
    if not found:
        sends = STRATEGIES[group.runs[0].strategy].shared
        why = "not possible" if group.findings else "not attacked"
        why = why if sends else "sends no rows"
        axis.text(place, 0.01, why, ha="center", va="bottom")
        return
    value = mean(most.value for most in found)
    over_seeds = interval_over_seeds([most.value for most in found])
    draw_bar(axis, place, value, over_seeds if len(found) > 1 else (found[0].low, found[0].high), colour)
    axis.plot(
        [place - 0.4, place + 0.4], [mean(most.baseline for most in found)] * 2, color="black", linestyle=":"
    )


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
