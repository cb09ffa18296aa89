"""Runs that recipes share: each is run once, and gone on with where it was cut."""

from __future__ import annotations

import shutil

from fedkge.experiment import Experiment
from fedkge.server.summary import experiment_hash
from fedkge.simulations.runs.run import run_or_resume
from fedkge.simulations.runs.run_folder import RunResult, is_run
from fedkge.simulations.studies.cells import StudyCache

__all__ = ["kept_run"]


def kept_run(cache: StudyCache, words: str, experiment: Experiment) -> RunResult:
    """The finished run of an experiment, from its folder if it is there; other settings have another."""
    folder = cache.runs / f"{words}-{experiment_hash(experiment)[:10]}"
    if folder.exists() and not is_run(folder):  # cut before anything was trained
        shutil.rmtree(folder)
    return run_or_resume(experiment, folder, cache.watch)
