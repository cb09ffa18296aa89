"""What a client does with its own graph: embed it, train on it, rank with it."""

from __future__ import annotations

from fedkge.client.losses import LOSSES
from fedkge.client.metrics import METRICS, Evaluation, evaluate, intervals, measure, measure_by_relation
from fedkge.client.models import MODELS, Model, build_model
from fedkge.client.optimizers import OPTIMIZERS
from fedkge.client.ranking import Ranks, rank
from fedkge.client.training import TrainResult, train

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
