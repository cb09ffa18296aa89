"""The answers of a run in one JSON: what it gained, cost and leaked, and hashes to compare by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedkge.experiment import Experiment
from fedkge.metrics import MetricSums
from fedkge.server.ledger import Ledger
from fedkge.server.loop import Outcome

__all__ = ["experiment_hash", "metrics_of", "summarise"]


def summarise(experiment: Experiment, outcome: Outcome, ledger: Ledger, workers: int) -> dict[str, Any]:
    """The content of summary.json."""
    state = outcome.state
    busy = (state.trained + state.ranked + state.crypto) / min(workers, experiment.data.clients)
    return {
        "utility": {
            "test": metrics_of(outcome.test),
            "valid": metrics_of(outcome.valid),
            "best_round": state.best_round,
            "protocol": experiment.evaluation.as_clients_rank().protocol("own"),
            "per_client": {
                str(client): {split: metrics_of(sums) for split, sums in splits.items()}
                for client, splits in outcome.per_client.items()
            },
        },
        "communication": {
            "bytes_up": ledger.total("up"),
            "bytes_down": ledger.total("down"),
            "by_phase": ledger.by_phase(),
            "rounds": state.round,
            "rounds_to_target": state.target_round,
            "bytes_to_target": state.target_bytes,
        },
        "leakage": {},
        "privacy": outcome.privacy.report(),
        "speed": {
            "train_triples_per_s": state.triples / state.trained if state.trained else 0.0,
            "eval_triples_per_s": state.evaluated / state.ranked if state.ranked else 0.0,
            "seconds_training": state.trained,
            "seconds_ranking": state.ranked,
            "seconds_engine": max(outcome.seconds - busy, 0.0),
            "seconds_crypto": state.crypto,
            "seconds_setup": outcome.setup_seconds,
            "seconds_total": outcome.setup_seconds + outcome.seconds,
            "peak_rss_mb": state.peak_rss_mb,
        },
        "experiment_hash": experiment_hash(experiment),
        "result_hash": _result_hash(outcome),
    }


def experiment_hash(experiment: Experiment) -> str:
    """Equal for experiments that must give the same result: where they run and who looks on do not enter."""
    return experiment.digest()


def metrics_of(sums: MetricSums) -> dict[str, Any]:
    """Means, their intervals, and over how many triples."""
    means, intervals = sums.means(), sums.intervals()
    values = {name: {"value": means[name], "interval": list(intervals[name])} for name in means}
    return {**values, "count": sums.count, "unseen": sums.unseen}


def _result_hash(outcome: Outcome) -> str:
    """A digest of the clients' final tables, the shared tables and all metrics: equal when the bits are."""
    digest = hashlib.sha256()
    for client, parameters in sorted(outcome.digests.items()):
        digest.update(f"{client}:{parameters}\n".encode())
    for name, table in sorted(outcome.tables.items()):
        digest.update(name.encode() + np.ascontiguousarray(table.ids).tobytes() + table.rows.tobytes())
    metrics: Mapping[str, Any] = {"test": vars(outcome.test), "valid": vars(outcome.valid)}
    digest.update(json.dumps(metrics, sort_keys=True).encode())
    return digest.hexdigest()
