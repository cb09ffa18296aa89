"""What a client does with its own graph: embed it, train on it, rank with it."""

from __future__ import annotations

from fedkge.client.kernels.losses import LOSSES
from fedkge.client.models import MODELS, Model, build_model
from fedkge.client.training.evaluate import (
    METRICS,
    Evaluation,
    evaluate,
    intervals,
    measure,
    measure_by_relation,
)
from fedkge.client.training.loop import TrainResult, train
from fedkge.client.training.optimizers import OPTIMIZERS
from fedkge.client.training.ranks import Ranks, rank

__all__ = [
    "LOSSES",
    "METRICS",
    "MODELS",
    "OPTIMIZERS",
    "Evaluation",
    "Model",
    "Ranks",
    "TrainResult",
    "build_model",
    "evaluate",
    "intervals",
    "measure",
    "measure_by_relation",
    "rank",
    "train",
]
