"""Trackers: a run's numbers, as they come, in TensorBoard, MLflow or Weights & Biases.

A tracker only watches: the result of a run is the same with and without it. Each is an extra of the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol

from fedkge.errors import InputError, UnknownNameError
from fedkge.experiment import Experiment
from fedkge.server.progress import Observer, Progress
from fedkge.simulations.runs.metadata import Metadata

__all__ = ["TRACKERS", "Tracker", "check_trackers", "tracked"]


class Tracker(Protocol):
    """Whatever keeps numbers by round."""

    def log(self, metrics: Mapping[str, float], round: int) -> None:
        """Numbers of one round."""

    def close(self) -> None:
        """Nothing more comes."""


class TensorBoard:
    """Event files in RUN_DIR/tensorboard; look at them with 'tensorboard --logdir RUN_DIR'."""

    package: ClassVar[str] = "tensorboard"

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter  # an extra

        self.writer = SummaryWriter(str(folder / "tensorboard"))
        self.writer.add_text("experiment", f"```toml\n{experiment.to_toml()}```")

    def log(self, metrics: Mapping[str, float], round: int) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, round)

    def close(self) -> None:
        self.writer.close()


class MLflow:
    """A run of the experiment's name, where MLFLOW_TRACKING_URI says."""

    package: ClassVar[str] = "mlflow"

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        import mlflow  # an extra

        self.mlflow = mlflow
        mlflow.set_experiment(experiment.name)
        mlflow.start_run(run_name=folder.name, nested=True)  # within a run that the caller has open, if any
        mlflow.log_params(Metadata(experiment.model_dump()).flat())

    def log(self, metrics: Mapping[str, float], round: int) -> None:
        clean = {name.replace("@", "_at_"): value for name, value in metrics.items()}  # it refuses '@'
        self.mlflow.log_metrics(clean, step=round)

    def close(self) -> None:
        self.mlflow.end_run()


class WandB:
    """A run in the project of the experiment's name; WANDB_MODE=offline keeps it on this machine."""

    package: ClassVar[str] = "wandb"

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        import wandb  # an extra

        self.run = wandb.init(
            project=experiment.name, name=folder.name, config=experiment.model_dump(), dir=str(folder)
        )

    def log(self, metrics: Mapping[str, float], round: int) -> None:
        self.run.log(dict(metrics), step=round)

    def close(self) -> None:
        self.run.finish()


TRACKERS: dict[str, type[TensorBoard] | type[MLflow] | type[WandB]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


class Watch:
    """Shows each step of a run to an observer, and its numbers to trackers."""

    def __init__(self, observer: Observer | None, trackers: Sequence[Tracker]) -> None:
        self.observer = observer
        self.trackers = trackers
        self.round = 0

    def __call__(self, now: Progress) -> None:
        if self.observer is not None:
            self.observer(now)
        self.round = now.round
        if now.loss is not None:
            self._log({"train/loss": now.loss, "bytes": now.bytes})
        if now.mrr is not None:
            self._log({"valid/mrr": now.mrr})

    def end(self, summary: Mapping[str, Any]) -> None:
        """The test scores and costs of the whole run."""
        test = summary["utility"]["test"]
        scores = {
            f"test/{name}": score["value"] for name, score in test.items() if isinstance(score, Mapping)
        }
        self._log({**scores, **{name: summary["communication"][name] for name in ("bytes_up", "bytes_down")}})

    def _log(self, metrics: Mapping[str, float]) -> None:
        for tracker in self.trackers:
            tracker.log(metrics, self.round)


def check_trackers(names: Sequence[str]) -> None:
    """Refuse what is not known or not installed, before anything is written."""
    for name in names:
        if name not in TRACKERS:
            raise UnknownNameError("tracker", name, TRACKERS)
        if find_spec(TRACKERS[name].package) is None:
            raise InputError(f"--track {name}: not installed; run 'pip install fedkge[{name}]'")


@contextmanager
def tracked(
    names: Sequence[str], experiment: Experiment, folder: Path, observer: Observer | None
) -> Iterator[Watch]:
    """Open the trackers, and close them whatever happens to the run."""
    with ExitStack() as stack:
        trackers: list[Tracker] = []
        for name in names:
            trackers.append(TRACKERS[name](experiment, folder))
            stack.callback(trackers[-1].close)
        yield Watch(observer, trackers)
