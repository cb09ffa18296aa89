"""What DPKGE training is worth: link prediction, the clipping bound, loss curves, the confidential share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import nan

import pandas as pd

from fedkge.simulations.recipes.dpkge_cells import DATASETS, Cell, Method, Mode, Trained, measured, train_cell
from fedkge.simulations.recipes.dpkge_paper import CLIP_STUDY, SIGMAS, Score
from fedkge.simulations.recipes.scale import Scale

__all__ = ["clip_study", "link_cells", "link_prediction", "loss_curves", "measure_cells", "share_sweep"]

_MODES: tuple[Mode, ...] = ("paper", "sound")
_PRIVATE: tuple[Method, ...] = ("DPKGE", "FullDP")
_MODELS = {"quick": ("TransE",), "full": ("TransE", "TransM", "RESCAL", "DistMult")}
_SIGMAS = {"quick": (1.0,), "full": SIGMAS}
_EPOCHS = {"quick": 15, "full": 100}
_SEEDS = {"quick": 1, "full": 5}

_UNPUBLISHED = Score(nan, nan)

Progress = Callable[[dict[str, object]], None]


def link_prediction(scale: Scale = "quick", seed: int = 0) -> pd.DataFrame:
    """DPKGE table 7: NDP, U, DPKGE and FullDP by model and σ, in both modes.

    Quick: TransE on FB15k-237, σ = 1, 15 epochs, one seed. Full adds WN18RR, which the paper has not.
    """
    return measure_cells(
        cell
        for dataset in DATASETS[scale]
        for cell in link_cells(
            dataset, _MODELS[scale], _SIGMAS[scale], _EPOCHS[scale], range(seed, seed + _SEEDS[scale])
        )
    )


def link_cells(
    dataset: str, models: Iterable[str], sigmas: Iterable[float], epochs: int, seeds: Iterable[int]
) -> Iterator[Cell]:
    """Every method of the table, the two without noise once."""
    for seed in seeds:
        for model in models:
            yield Cell(dataset, model, "NDP", epochs=epochs, seed=seed)
            yield Cell(dataset, model, "U", epochs=epochs, seed=seed)
            for sigma in sigmas:
                for mode in _MODES:
                    for method in _PRIVATE:
                        yield Cell(dataset, model, method, mode, sigma, epochs=epochs, seed=seed)


def clip_study(scale: Scale = "quick", seed: int = 0) -> pd.DataFrame:
    """DPKGE tables 2–3: the clipping bound at percentiles of norms, in both modes.

    Quick: TransE, the 20th and 80th percentile, σ = 1, 15 epochs, one seed.
    """
    percentiles = (20, 50, 80, 100) if scale == "full" else (20, 80)
    cells = [
        Cell(dataset, model, "DPKGE", mode, sigma, 0.5, percentile, _EPOCHS[scale], one)
        for dataset in DATASETS[scale]
        for one in range(seed, seed + _SEEDS[scale])
        for model in _MODELS[scale]
        for mode in _MODES
        for percentile in percentiles
        for sigma in _SIGMAS[scale]
    ]
    published = [_clip_score(cell) for cell in cells]
    return measure_cells(cells).assign(
        published_mr=[score.mr for score in published], published_hits=[score.hits for score in published]
    )


def loss_curves(scale: Scale = "quick", seed: int = 0) -> pd.DataFrame:
    """DPKGE figure 3: the loss of each epoch by method, mode and σ; the paper prints no numbers.

    Quick: TransE, σ = 1, 15 epochs. In mode paper and without DP the losses are over all batches.
    """
    rows = []
    for cell in (
        cell
        for dataset in DATASETS[scale]
        for cell in link_cells(dataset, _MODELS[scale], _SIGMAS[scale], _EPOCHS[scale], [seed])
    ):
        trained = train_cell(cell)
        batches = "unrestricted" if cell.mode == "sound" else "all"
        curves = {batches: trained.losses, "confidential": trained.confidential_losses}
        rows += [
            {**_named(cell), "epoch": epoch, "batches": kind, "loss": loss}
            for kind, losses in curves.items()
            for epoch, loss in enumerate(losses, start=1)
        ]
    return pd.DataFrame(rows)


def share_sweep(scale: Scale = "quick", seed: int = 0) -> pd.DataFrame:
    """DPKGE figure 5: ε, MR and Hits as more is confidential, σ = 0.7; the paper prints no numbers.

    Quick: TransE, three shares, 15 epochs, one seed.
    """
    shares = (0.25, 0.5, 0.75, 0.85, 0.95, 1.0) if scale == "full" else (0.25, 0.75, 1.0)
    return measure_cells(
        Cell(dataset, model, "DPKGE", mode, 0.7, share, epochs=_EPOCHS[scale], seed=one)
        for dataset in DATASETS[scale]
        for one in range(seed, seed + _SEEDS[scale])
        for model in _MODELS[scale]
        for mode in _MODES
        for share in shares
    )


def measure_cells(cells: Iterable[Cell], each: Progress | None = None) -> pd.DataFrame:
    """A row per cell; `each` sees it as soon as it is there."""
    rows = []
    for cell in cells:
        rows.append(_row(train_cell(cell)))
        if each is not None:
            each(rows[-1])
    return pd.DataFrame(rows)


def _clip_score(cell: Cell) -> Score:
    """What tables 2 and 3 print for a cell of the clip study."""
    if cell.dataset != "FB15k-237":
        return _UNPUBLISHED
    return CLIP_STUDY[cell.model][int(cell.percentile or 0)][SIGMAS.index(cell.sigma or 0.0)]


def _row(trained: Trained) -> dict[str, object]:
    cell = trained.cell
    score = cell.published or _UNPUBLISHED
    return {
        **_named(cell),
        "clip": trained.clip,
        **measured(trained),
        "published_mr": score.mr,
        "published_hits": score.hits,
        "epsilon": trained.epsilon,
        "classic_epsilon": trained.classic,
        "delta": trained.delta,
        "epsilon_is": {"paper": "claimed", "sound": "guaranteed"}.get(cell.mode, "exact"),
        "seconds": trained.seconds,
    }


def _named(cell: Cell) -> dict[str, object]:
    return {
        "dataset": cell.dataset,
        "model": cell.model,
        "method": cell.method,
        "mode": cell.mode,
        "sigma": cell.sigma,
        "share": cell.share,
        "percentile": cell.percentile,
        "epochs": cell.epochs,
        "seed": cell.seed,
    }
