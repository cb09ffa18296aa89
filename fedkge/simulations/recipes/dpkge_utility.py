"""What DPKGE training is worth: link prediction, the clipping bound, loss curves, the confidential share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pandas as pd

from fedkge.simulations.recipes.dpkge_cells import Cell, Method, Mode, Trained, measured, train_cell
from fedkge.simulations.recipes.dpkge_paper import CLIP_STUDY, LINK_PREDICTION, SIGMAS, Score
from fedkge.simulations.recipes.scale import Scale

__all__ = ["clip_study", "link_cells", "link_prediction", "loss_curves", "measure_cells", "share_sweep"]

_MODES: tuple[Mode, ...] = ("paper", "sound")
_PRIVATE: tuple[Method, ...] = ("DPKGE", "FullDP")
_SHARES = (0.25, 0.5, 0.75, 0.85, 0.95, 1.0)
_EPOCHS = {"quick": 15, "full": 100}
_SEEDS = {"quick": 1, "full": 5}

Progress = Callable[[dict[str, object]], None]


def link_prediction(scale: Scale = "quick", seed: int = 0, dataset: str = "FB15k-237") -> pd.DataFrame:
    """DPKGE table 7: NDP, U, DPKGE and FullDP by model and σ, in both modes (quick: TransE and DistMult, σ = 1, 15 epochs)."""
    models = ("TransE", "TransM", "RESCAL", "DistMult") if scale == "full" else ("TransE", "DistMult")
    sigmas = SIGMAS if scale == "full" else (1.0,)
    return measure_cells(link_cells(dataset, models, sigmas, _EPOCHS[scale], _seeds(scale, seed)))


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
    """DPKGE tables 2–3: the clipping bound at a percentile of norms (quick: TransE, 20 and 80, σ = 1, 15 epochs)."""
    models = tuple(CLIP_STUDY) if scale == "full" else ("TransE",)
    percentiles = (20, 50, 80, 100) if scale == "full" else (20, 80)
    sigmas = SIGMAS if scale == "full" else (1.0,)
    cells = [
        Cell("FB15k-237", model, "DPKGE", mode, sigma, 0.5, percentile, _EPOCHS[scale], one)
        for one in _seeds(scale, seed)
        for model in models
        for mode in _MODES
        for percentile in percentiles
        for sigma in sigmas
    ]
    frame = measure_cells(cells)
    published = [CLIP_STUDY[c.model][int(c.percentile)][SIGMAS.index(c.sigma or 1.0)] for c in cells]
    return frame.assign(
        published_mr=[score.mr for score in published], published_hits=[score.hits for score in published]
    )


def loss_curves(scale: Scale = "quick", seed: int = 0) -> pd.DataFrame:
    """DPKGE figure 3: the loss of each epoch, by method, mode and σ (quick: TransE, σ = 1, 15 epochs; the paper prints no numbers)."""
    sigmas = SIGMAS if scale == "full" else (1.0,)
    models = ("TransE", "TransM", "RESCAL", "DistMult") if scale == "full" else ("TransE",)
    rows = []
    for cell in link_cells("FB15k-237", models, sigmas, _EPOCHS[scale], [seed]):
        trained = train_cell(cell)
        rows += [
            {**_named(cell), "epoch": epoch + 1, "batches": kind, "loss": loss}
            for kind, losses in (
                ("unrestricted", trained.losses),
                ("confidential", trained.confidential_losses),
            )
            for epoch, loss in enumerate(losses)
        ]
    return pd.DataFrame(rows)


def share_sweep(scale: Scale = "quick", seed: int = 0) -> pd.DataFrame:
    """DPKGE figure 5: ε, MR and Hits as more is confidential, σ = 0.7 (quick: TransE, three shares, 15 epochs; the paper prints no numbers)."""
    models = ("TransE", "TransM", "RESCAL", "DistMult") if scale == "full" else ("TransE",)
    shares = _SHARES if scale == "full" else (0.25, 0.75, 1.0)
    return measure_cells(
        Cell("FB15k-237", model, "DPKGE", mode, 0.7, share, epochs=_EPOCHS[scale], seed=one)
        for one in _seeds(scale, seed)
        for model in models
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


def _row(trained: Trained) -> dict[str, object]:
    cell = trained.cell
    score = cell.published or Score(float("nan"), float("nan"))
    return {
        **_named(cell),
        "seed": cell.seed,
        "epochs": cell.epochs,
        **measured(trained),
        "published_mr": score.mr,
        "published_hits": score.hits,
        "epsilon": trained.epsilon,
        "claimed_epsilon": trained.claimed,
        "delta": trained.delta,
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
    }


def _seeds(scale: Scale, seed: int) -> range:
    return range(seed, seed + _SEEDS[scale])
