"""Figures of the DPKGE studies, each from the frame of its recipe."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["plot_attacker", "plot_epsilon", "plot_losses", "plot_shares", "plot_trade_off"]

_COLOURS = {"NDP": "black", "U": "grey", "paper": "tab:red", "sound": "tab:blue"}
_LINES = {"DPKGE": "-", "FullDP": "--", "NDP": ":", "U": "-."}


def plot_trade_off(frame: pd.DataFrame) -> Figure:
    """MRR against ε, a panel per dataset and model; lines without ε are NDP (above) and U (nothing spent)."""
    panels = list(frame.groupby(["dataset", "model"], sort=False))
    figure, axes = _panels([f"{model} on {dataset}" for (dataset, model), _ in panels], "ε (PRV)", "test MRR")
    for axis, (_, part) in zip(axes, panels, strict=True):
        for method, line in part[part["mode"] == "off"].groupby("method"):
            axis.axhline(line["mrr"].mean(), color=_COLOURS[method], linestyle=_LINES[method], label=method)
        private = part[part["mode"] != "off"].sort_values("epsilon")
        for (method, mode), line in private.groupby(["method", "mode"]):
            errors = [line["mrr"] - line["mrr_low"], line["mrr_high"] - line["mrr"]]
            axis.errorbar(
                line["epsilon"],
                line["mrr"],
                errors,
                color=_COLOURS[mode],
                linestyle=_LINES[method],
                marker="o" if method == "DPKGE" else "s",
                label=f"{method}, {mode} ({'claimed' if mode == 'paper' else 'guaranteed'})",
            )
        axis.legend(fontsize="small")
    return figure


def plot_losses(frame: pd.DataFrame) -> Figure:
    """The loss by epoch, a panel per model."""
    panels = list(frame[frame["batches"] != "confidential"].groupby("model", sort=False))
    figure, axes = _panels([str(model) for model, _ in panels], "epoch", "loss")
    for axis, (_, part) in zip(axes, panels, strict=True):
        for (method, mode, sigma), line in part.groupby(["method", "mode", "sigma"], dropna=False):
            label = method if mode == "off" else f"{method}, {mode}, σ = {sigma:g}"
            colour = _COLOURS.get(mode, _COLOURS.get(method))
            axis.plot(line["epoch"], line["loss"], color=colour, linestyle=_LINES[method], label=label)
        axis.legend(fontsize="small")
    return figure


def plot_epsilon(frame: pd.DataFrame) -> Figure:
    """ε by epoch in the paper's conversion and by PRV where it was computed, a panel per dataset."""
    panels = list(frame.groupby("dataset", sort=False))
    figure, axes = _panels([str(dataset) for dataset, _ in panels], "epoch", "ε")
    for axis, (_, part) in zip(axes, panels, strict=True):
        for (method, sigma), line in part.groupby(["method", "sigma"]):
            drawn = axis.plot(
                line["epoch"], line["classic"], linestyle=_LINES[method], label=f"{method}, σ = {sigma:g}"
            )
            if line["prv"].notna().all():
                axis.plot(line["epoch"], line["prv"], color=drawn[0].get_color(), linestyle=":")
        axis.legend(fontsize="small")
    return figure


def plot_shares(frame: pd.DataFrame) -> Figure:
    """ε, MR and Hits@10 by confidential share."""
    columns = {"epsilon": "ε (PRV)", "mr": "MR", "hits": "Hits@10 in %"}
    figure, axes = _panels(list(columns.values()), "confidential share", "")
    for axis, column in zip(axes, columns, strict=True):
        for (model, mode), line in frame.groupby(["model", "mode"]):
            mean = line.groupby("share")[column].mean()
            axis.plot(mean.index, mean.to_numpy(), color=_COLOURS[mode], marker="o", label=f"{model}, {mode}")
        axis.legend(fontsize="small")
    return figure


def plot_attacker(frame: pd.DataFrame) -> Figure:
    """How many of the attacked statements have ranks in each range."""
    figure, (axis,) = _panels(["ranks of confidential statements"], "rank of the tail", "statements")
    kinds = list(frame.groupby(["method", "mode"], sort=False))
    for place, ((method, mode), part) in enumerate(kinds):
        places = [bin + (place - len(kinds) / 2) / (len(kinds) + 1) for bin in range(len(part))]
        label = str(method) if mode == "off" else f"{method}, {mode}"
        colour = _COLOURS.get(str(mode), _COLOURS.get(str(method)))
        axis.bar(places, part["count"], width=1 / (len(kinds) + 1), align="edge", color=colour, label=label)
        axis.set_xticks(range(len(part)), [f"≤ {high}" for high in part["rank_to"]], rotation=30)
    axis.legend(fontsize="small")
    return figure


def _panels(titles: Sequence[str], across: str, up: str) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(5.5 * len(titles), 4), layout="constrained")
    axes = [figure.add_subplot(1, len(titles), place) for place in range(1, len(titles) + 1)]
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel=across, ylabel=up)
    return figure, axes
