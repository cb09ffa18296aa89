"""Findings as pictures: ERR and TRR over the leak ratio, ranks, utility against leakage, leakage over ε."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks import Finding, Truth, View
from fedkge.attacks.coalition import views_of
from fedkge.attacks.reconstruction.histograms import ranks_of
from fedkge.attacks.recorded_run import RecordedRun
from fedkge.errors import InputError
from fedkge.simulations.runs.run_folder import RunFolder
from fedkge.storage import staged, storage_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_budgets", "draw_findings", "draw_leak_ratios", "draw_ranks", "draw_utility"]

_LEAK = "triples recovered, above guessing"


def draw_findings(folder: Path, findings: Sequence[Finding], beside: Iterable[Path] = ()) -> list[Path]:
    """All pictures that these findings give, in the run's folder `plots`."""
    plots = folder / "plots"
    with storage_errors(plots):
        plots.mkdir(exist_ok=True)
    paths = [draw_leak_ratios(plots / "leak-ratio.png", findings)]
    recorded = RecordedRun(folder)
    colluders = recorded.experiment.adversary.colluders
    paths.append(draw_ranks(plots / "ranks.png", views_of(recorded, colluders, 1.0), recorded.truth))
    runs = [folder, *beside]
    if len(runs) > 1:
        paths.append(draw_utility(plots / "privacy-utility.png", runs))
    if any(_point(run).epsilon is not None for run in runs):
        paths.append(draw_budgets(plots / "epsilon.png", runs))
    return paths


def draw_leak_ratios(path: Path, findings: Sequence[Finding]) -> Path:
    """ERR and TRR, as published, over the share of its pairs that the colluder leaks."""
    figure, axes = _figure(2)
    for axis, metric in zip(axes, ("ERR", "TRR"), strict=True):
        lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for finding in findings:
            if finding.protocol == "paper" and finding.metric == metric and finding.value is not None:
                label = f"{finding.attack}, {finding.view}, client {finding.target}"
                lines[label].append((finding.leak_ratio, finding.value))
        for label, points in lines.items():
            ratios, values = zip(*sorted(points), strict=True)
            axis.plot(ratios, values, marker="o", label=label)
        axis.set(xlabel="leak ratio", ylabel=metric, xlim=(0, 1.05), ylim=(0, 1.05))
        if lines:
            axis.legend(fontsize="x-small")
    return _save(figure, path)


def draw_ranks(path: Path, views: Sequence[View], truth: Truth) -> Path:
    """Where the right answer stands among all answers, for entities and for relations."""
    figure, axes = _figure(2)
    for axis, kind in zip(axes, ("entity", "relation"), strict=True):
        for view in views:
            ranks = [ranks_of(view, truth, target).get(kind) for target in view.targets]
            known = [of_target for of_target in ranks if of_target is not None and len(of_target)]
            if known:
                _histogram(axis, np.concatenate(known), f"{view.name} ({view.adversary})")
        axis.set(xlabel=f"rank of the right {kind}", ylabel="share", xscale="log")
        if axis.has_data():
            axis.legend(fontsize="x-small")
    return _save(figure, path)


def draw_utility(path: Path, folders: Sequence[Path]) -> Path:
    """Each attacked run as a point: what its users gain, and what its strongest adversary recovers."""
    figure, (axis,) = _figure(1)
    for point in map(_point, folders):
        position = (point.leak, point.gain)
        axis.scatter(*position)
        axis.annotate(point.label, position, fontsize="x-small", xytext=(4, 4), textcoords="offset points")
    axis.set(xlabel=_LEAK, ylabel="test MRR", xlim=(0, None))
    return _save(figure, path)


def draw_budgets(path: Path, folders: Sequence[Path]) -> Path:
    """Utility and leakage over ε; a run without differential privacy is a dashed line."""
    figure, axes = _figure(2)
    points = [_point(folder) for folder in folders]
    known = sorted((p.epsilon, p.gain, p.leak) for p in points if p.epsilon is not None)
    budgets, gains, leaks = zip(*known, strict=True)
    for axis, values, name in ((axes[0], gains, "test MRR"), (axes[1], leaks, _LEAK)):
        axis.plot(budgets, values, marker="o")
        for point in points:
            if point.epsilon is None:
                level = point.gain if name == "test MRR" else point.leak
                axis.axhline(level, linestyle="--", color="grey", label=point.label)
        axis.set(xlabel="ε", ylabel=name, xscale="log")
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize="x-small")
    return _save(figure, path)


@dataclass(frozen=True)
class _Point:
    """A run in a picture of runs."""

    label: str
    gain: float
    leak: float
    epsilon: float | None


def _point(folder: Path) -> _Point:
    run = RunFolder.read(folder)
    if not run.is_finished:
        raise InputError(f"{folder}: no finished run (it has no summary.json); attack a finished run first")
    if not run.findings:
        raise InputError(f"{folder} was not attacked; run: fedkge attack {folder}")
    leaks = [
        finding.value - (finding.baseline or 0.0)  # rows that say nothing still name the commonest relation
        for finding in run.findings
        if finding.metric in ("TRR", "recall") and finding.value is not None and not finding.granted
    ]
    gain, spent = run.summary.number("utility", "test", "mrr", "value"), run.summary.at("privacy", "epsilon")
    epsilon = max(spent.values()) if spent else None  # that of the client who spent most
    return _Point(_defence(run), gain or 0.0, max(leaks, default=0.0), epsilon)


def _defence(run: RunFolder) -> str:
    privacy = run.experiment.part("privacy")
    kind = f"SecAgg + {privacy.text('union')} union" if privacy.at("secure_aggregation") else "plain"
    return f"{run.strategy}, {kind}"


def _histogram(axis: Axes, ranks: NDArray[np.int64], label: str) -> None:
    edges = np.unique(np.geomspace(1, max(int(ranks.max()), 2) + 1, 30).astype(int))
    counts, _ = np.histogram(ranks, bins=edges)
    axis.stairs(counts / max(counts.sum(), 1), edges, label=label)


def _figure(columns: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure  # takes a while to import

    figure = Figure(figsize=(5.5 * columns, 4), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)
    return figure, list(axes[0])


def _save(figure: Figure, path: Path) -> Path:
    with staged(path) as partial:
        figure.savefig(partial, format="png", dpi=150)
    return path
