"""What DPKGE training is worth: link prediction, the clipping bound, loss curves, the confidential share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pandas as pd

from fedkge.client.privacy import MECHANISMS
from fedkge.datasets import at_hand
from fedkge.simulations.studies.cells import Key, Row, StudyCache, TableCell
from fedkge.simulations.studies.dpkge.dpkge_cells import (
    DATASETS,
    OF_FB15K,
    SIGMAS,
    Cell,
    Method,
    Mode,
    TrainedCell,
    measured,
    train_cell,
)
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = [
    "clip_study",
    "link_cells",
    "link_prediction",
    "loss_curves",
    "measure_cells",
    "share_sweep",
]

_MODES: tuple[Mode, ...] = ("paper", "sound")
_PRIVATE: tuple[Method, ...] = ("DPKGE", "FullDP")
_MODELS = {"quick": ("TransE",), "full": ("TransE", "TransM", "RESCAL", "DistMult")}
_CLIPPED = {"quick": ("FB15k-237",), "full": ("FB15k-237", "WN18RR")}  # the paper: FB15k-237
_LARGE = "YAGO3-10"  # where a user has it
_SIGMAS = {"quick": (1.0,), "full": SIGMAS}
_EPOCHS = {"quick": 15, "full": 100}
_SEEDS: dict[Scale, int] = {"quick": 1, "full": 5}

_EPSILON = Quantity("epsilon", "ε")
_SCORES = (
    Quantity("mrr", "MRR", None, "mrr_low", "mrr_high"),
    Quantity("mr", "MR", "published_mr", "mr_low", "mr_high"),
    Quantity("hits", "Hits@10 in %", "published_hits", "hits_low", "hits_high"),
    _EPSILON,
)


@study(_SCORES, seeds=_SEEDS, notes=(OF_FB15K,))
def link_prediction(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """DPKGE tables 5 to 7: NDP, U, DPKGE and FullDP by model and σ, in both modes.

    Quick: TransE on FB15k-237 and FB15k, σ = 1, 15 epochs, one seed. Full adds WN18RR, which the paper has
    not, and YAGO3-10 where its files are at hand, with σ = 1 alone.
    """
    for dataset in ("FB15k-237", "FB15k") if scale == "quick" else DATASETS[scale]:
        for cell in link_cells(dataset, _MODELS[scale], _SIGMAS[scale], _EPOCHS[scale], seeds):
            yield _trained_cell(cell, _scores)
    if scale == "full" and at_hand(_LARGE):
        for cell in link_cells(_LARGE, _MODELS[scale], (1.0,), _EPOCHS[scale], seeds):
            yield _trained_cell(cell, _scores)


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


@study(_SCORES, seeds=_SEEDS)
def clip_study(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """DPKGE tables 2–3: the clipping bound at percentiles of norms, in both modes.

    Quick: TransE, the 20th and 80th percentile, σ = 1, 15 epochs, one seed.
    """
    percentiles = (20, 50, 80, 100) if scale == "full" else (20, 80)
    for dataset in _CLIPPED[scale]:
        for seed in seeds:
            for model in _MODELS[scale]:
                for mode in _MODES:
                    for percentile in percentiles:
                        for sigma in _SIGMAS[scale]:
                            cell = Cell(
                                dataset, model, "DPKGE", mode, sigma, 0.5, percentile, _EPOCHS[scale], seed
                            )
                            yield _trained_cell(cell, _scores)


@study([Quantity("loss", "loss")], within=("batches", "epoch"), over="epoch", seeds={"quick": 1, "full": 1})
def loss_curves(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """DPKGE figure 3: the loss of each epoch by method, mode and σ; the paper prints no numbers.

    Quick: TransE, σ = 1, 15 epochs. In mode paper and without DP the losses are over all batches.
    """
    for dataset in DATASETS[scale]:
        for cell in link_cells(dataset, _MODELS[scale], _SIGMAS[scale], _EPOCHS[scale], seeds):
            yield _trained_cell(cell, _losses)


@study(_SCORES, seeds=_SEEDS, notes=(OF_FB15K,))
def share_sweep(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """DPKGE figure 5: ε, MR and Hits as more is confidential, σ = 0.7; the paper prints no numbers.

    Quick: TransE, three shares, 15 epochs, one seed.
    """
    shares = (0.25, 0.5, 0.75, 0.85, 0.95, 1.0) if scale == "full" else (0.25, 0.75, 1.0)
    for dataset in DATASETS[scale]:
        for seed in seeds:
            for model in _MODELS[scale]:
                for mode in _MODES:
                    for share in shares:
                        cell = Cell(dataset, model, "DPKGE", mode, 0.7, share, None, _EPOCHS[scale], seed)
                        yield _trained_cell(cell, _scores)


def _trained_cell(cell: Cell, rows: Callable[[TrainedCell], Iterable[Row]]) -> TableCell:
    """A cell of a table that takes one trained model."""

    def measure(cache: StudyCache) -> Iterable[Row]:
        del cache
        return rows(train_cell(cell))

    return TableCell(_named(cell), measure, repr(cell))


def measure_cells(cells: Iterable[Cell]) -> pd.DataFrame:
    """A row per cell."""
    return pd.DataFrame([_row(train_cell(cell)) for cell in cells])


def _scores(trained: TrainedCell) -> list[Row]:
    return [_row(trained)]


def _losses(trained: TrainedCell) -> Iterator[Row]:
    mechanism = MECHANISMS.get(trained.cell.mode)
    batches = "unrestricted" if mechanism and mechanism.hides_counts else "all"
    for kind, losses in ((batches, trained.losses), ("confidential", trained.confidential_losses)):
        for epoch, loss in enumerate(losses, start=1):
            yield {"epoch": epoch, "batches": kind, "loss": loss}


def _row(trained: TrainedCell) -> Row:
    cell = trained.cell
    mechanism = MECHANISMS.get(cell.mode)
    return {
        **_named(cell),
        "clip": trained.clip,
        **measured(trained),
        "published_mr": cell.published("mr"),
        "published_hits": cell.published("hits"),
        "epsilon": trained.epsilon if mechanism is None or mechanism.guaranteed else trained.classic,
        "classic_epsilon": trained.classic,
        "delta": trained.delta,
        "epsilon_is": mechanism.standing() if mechanism else "exact",
        "seconds": trained.seconds,
    }


def _named(cell: Cell) -> dict[str, Key]:
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
