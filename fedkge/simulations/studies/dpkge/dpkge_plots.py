"""SummedScalars of the DPKGE studies, each from the frame of its recipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["plot_attacker", "plot_epsilon", "plot_losses", "plot_shares", "plot_trade_off"]

_COLOURS = {"NDP": "black", "U": "grey", "paper": "tab:red", "sound": "tab:blue"}
_LINES = {"DPKGE": "-", "FullDP": "--", "NDP": ":", "U": "-."}


def plot_trade_off(frame: pd.DataFrame) -> Figure:
    """MRR against ε, a panel per dataset and model; lines across are NDP and U."""
    panels = list(_groups(frame, "dataset", "model"))
    figure, axes = _panels([f"{model} on {dataset}" for (dataset, model), _ in panels], "ε (PRV)", "test MRR")
    for axis, (_, part) in zip(axes, panels, strict=True):
        for (method,), line in _groups(part[part["mode"] == "off"], "method"):
            axis.axhline(line["mrr"].mean(), color=_COLOURS[method], linestyle=_LINES[method], label=method)
        for (method, mode), line in _groups(
            part[part["mode"] != "off"].sort_values("epsilon"), "method", "mode"
        ):
            axis.errorbar(
                line["epsilon"],
                line["mrr"],
                [line["mrr"] - line["mrr_low"], line["mrr_high"] - line["mrr"]],
                color=_COLOURS[mode],
                linestyle=_LINES[method],
                marker="o" if method == "DPKGE" else "s",
                label=f"{method}, {mode} ({line['epsilon_is'].iloc[0]})",
            )
        axis.legend(fontsize="small")
    return figure


def plot_losses(frame: pd.DataFrame) -> Figure:
    """The loss by epoch, a panel per model."""
    panels = list(_groups(frame[frame["batches"] != "confidential"], "model"))
    figure, axes = _panels([model for (model,), _ in panels], "epoch", "loss")
    for axis, (_, part) in zip(axes, panels, strict=True):
        for (method, mode, sigma), line in _groups(part, "method", "mode", "sigma"):
            label = _label(method, mode) + ("" if mode == "off" else f", σ = {sigma}")
            colour = _colour(method, mode)
            axis.plot(line["epoch"], line["loss"], color=colour, linestyle=_LINES[method], label=label)
        axis.legend(fontsize="small")
    return figure


def plot_epsilon(frame: pd.DataFrame) -> Figure:
    """ε by epoch in the paper's conversion, and dotted by PRV where it was computed, a panel per dataset."""
    panels = list(_groups(frame, "dataset"))
    figure, axes = _panels([dataset for (dataset,), _ in panels], "epoch", "ε")
    for axis, (_, part) in zip(axes, panels, strict=True):
        for (method, sigma), line in _groups(part, "method", "sigma"):
            (drawn,) = axis.plot(
                line["epoch"], line["classic"], linestyle=_LINES[method], label=f"{method}, σ = {sigma}"
            )
            if line["prv"].notna().all():
                axis.plot(line["epoch"], line["prv"], color=drawn.get_color(), linestyle=":")
        axis.legend(fontsize="small")
    return figure


def plot_shares(frame: pd.DataFrame) -> Figure:
    """ε, MR and Hits@10 by confidential share."""
    columns = {"epsilon": "ε (PRV)", "mr": "MR", "hits": "Hits@10 in %"}
    figure, axes = _panels(list(columns.values()), "confidential share", "")
    for axis, column in zip(axes, columns, strict=True):
        for (model, mode), line in _groups(frame, "model", "mode"):
            mean = line.groupby("share")[column].mean()
            axis.plot(mean.index, mean.to_numpy(), color=_COLOURS[mode], marker="o", label=f"{model}, {mode}")
        axis.legend(fontsize="small")
    return figure


def plot_attacker(frame: pd.DataFrame) -> Figure:
    """How many of the attacked statements have ranks in each range."""
    figure, (axis,) = _panels(["ranks of confidential statements"], "rank of the tail", "statements")
    kinds = list(_groups(frame, "method", "mode"))
    width = 1 / (len(kinds) + 1)
    for place, ((method, mode), part) in enumerate(kinds):
        places = [number + (place - len(kinds) / 2) * width for number in range(len(part))]
        colour, label = _colour(method, mode), _label(method, mode)
        axis.bar(places, part["count"], width=width, align="edge", color=colour, label=label)
        axis.set_xticks(range(len(part)), [f"≤ {high}" for high in part["rank_to"]], rotation=30)
    axis.legend(fontsize="small")
    return figure


def _groups(frame: pd.DataFrame, *columns: str) -> Iterator[tuple[tuple[str, ...], pd.DataFrame]]:
    """The parts of a frame by the text of some columns, as they come."""
    for key, part in frame.groupby(list(columns), sort=False, dropna=False):
        yield tuple(str(value) for value in key), part


def _label(method: str, mode: str) -> str:
    return method if mode == "off" else f"{method}, {mode}"


def _colour(method: str, mode: str) -> str:
    return _COLOURS[method if mode == "off" else mode]


def _panels(titles: Sequence[str], across: str, up: str) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(5.5 * len(titles), 4), layout="constrained")
    axes = [figure.add_subplot(1, len(titles), place) for place in range(1, len(titles) + 1)]
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel=across, ylabel=up)
    return figure, axes
