"""MRR on confidential test triples against ε: a line a method, between U and NDP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_utility"]

_LEVELS = {"NDP": ("black", "--", "NDP (ε = ∞)"), "U": ("grey", ":", "U (ε = 0)")}
_COLOURS = {"hubs": "tab:blue", "sound": "tab:orange", "sound, pretrained": "tab:green", "paper": "tab:red"}
_SCORE = "mrr_confidential"
_ACROSS = 3  # panels in a row


def plot_utility(frame: pd.DataFrame) -> Figure:
    """A panel for each graph, model and marking; bands are the means of the 95 % intervals over seeds."""
    from matplotlib.figure import Figure  # half a second to import

    panels = list(frame.groupby(["dataset", "model", "marking"], sort=False))
    across = min(len(panels), _ACROSS)
    down = -(-len(panels) // across)
    figure = Figure(figsize=(5.5 * across, 4.2 * down), layout="constrained")
    for number, (names, part) in enumerate(panels, start=1):
        dataset, model, marking = names
        axis = figure.add_subplot(down, across, number)
        _levels(axis, part)
        _lines(axis, part)
        ends = part.loc[part["target"].notna(), "target"]
        _log_axis(axis, sorted(ends.unique()))
        axis.set(title=f"{model} on {dataset}, {marking}", ylabel="MRR, confidential test triples")
        axis.set_ylim(bottom=0)
        axis.legend(fontsize="small")
    return figure


def _log_axis(axis: Axes, targets: Sequence[float]) -> None:
    axis.set_xscale("log")
    axis.set_xticks(targets, [f"{target:g}" for target in targets])
    axis.minorticks_off()
    axis.set_xlabel("ε")


def _levels(axis: Axes, part: pd.DataFrame) -> None:
    """Methods that have one ε, at an end of the axis."""
    for method, (colour, style, label) in _LEVELS.items():
        level = part.loc[part["method"] == method]
        if len(level):
            axis.axhline(level[_SCORE].mean(), color=colour, linestyle=style, label=label)
            low, high = level[f"{_SCORE}_low"].mean(), level[f"{_SCORE}_high"].mean()
            axis.axhspan(low, high, color=colour, alpha=0.08, linewidth=0)


def _lines(axis: Axes, part: pd.DataFrame) -> None:
    columns = ["epsilon", _SCORE, f"{_SCORE}_low", f"{_SCORE}_high"]
    for method, rows in part[part["target"].notna()].groupby("method", sort=False):
        line = rows.groupby("target")[columns].mean()
        colour = _COLOURS.get(str(method))
        label = f"{method} ({rows['epsilon_is'].iloc[0]} ε)"
        axis.plot(line["epsilon"], line[_SCORE], marker="o", color=colour, label=label)
        bounds = line[f"{_SCORE}_low"], line[f"{_SCORE}_high"]
        axis.fill_between(line["epsilon"], *bounds, color=colour, alpha=0.15, linewidth=0)
