"""Experiments with and without protection."""

from __future__ import annotations

from collections.abc import Callable

from fedkge.experiment import Experiment
from fedkge.simulations.runs import engines

Make = Callable[..., Experiment]
Carried = list[tuple[engines.Envelope, bytes | None]]
PLAIN = ("privacy.union=plain", "privacy.secure_aggregation=false")
FIVE = "data.clients=5"
