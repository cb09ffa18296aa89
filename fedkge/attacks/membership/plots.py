"""ROC curves on logarithmic axes, where an attack that is sure of a few members shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedkge.attacks.membership.curve import Curve

__all__ = ["plot_curves"]


def plot_curves(curves: Mapping[str, Curve], path: Path, title: str = "") -> None:
    """One line per attack, and the line of guessing."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    least = min(0.5 / min(curve.num_members, curve.num_others) for curve in curves.values())
    figure = Figure(figsize=(4.5, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, curve in curves.items():
        label = f"{name} (AUC {curve.auc:.3f})"
        axes.plot(np.maximum(curve.fpr, least), np.maximum(curve.tpr, least), label=label)
    axes.plot([least, 1], [least, 1], color="grey", linestyle="--", label="guessing")
    axes.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1.05))
    axes.set(xlabel="non-members called members", ylabel="members found", title=title)
    axes.legend(loc="lower right", fontsize="small")
    figure.savefig(path)
