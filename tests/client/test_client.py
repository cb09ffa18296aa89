"""The package itself: what it offers, and what it keeps out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fedkge.client
from fedkge.experiment import Experiment


def test_what_is_offered_exists():
    assert sorted(fedkge.client.__all__, key=str.lower) == sorted(set(fedkge.client.__all__), key=str.lower)
    for name in fedkge.client.__all__:
        assert hasattr(fedkge.client, name)


def test_flower_is_not_imported_here():
    code = "import sys, fedkge.client; sys.exit('flwr' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_experiment_files_are_valid_and_name_what_exists():
    files = list((Path(__file__).parents[2] / "experiments").glob("*.toml"))
    assert files
    for path in files:
        experiment = Experiment.load(path)
        assert experiment.model.name in fedkge.client.MODELS
        assert experiment.training.loss in fedkge.client.LOSSES
        assert experiment.training.optimizer in fedkge.client.OPTIMIZERS
