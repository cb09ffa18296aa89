"""Knowledge-graph embeddings across organisations that do not share their graphs.

What the command line does, as functions: `run`, `resume`, `compare`, `open_run`, `predict`, `export`.
They are imported when first asked for, so that `import fedkge` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedkge.experiment import Experiment
    from fedkge.simulations.runs.api import compare, open_run, resume, run
    from fedkge.simulations.trained.export import export
    from fedkge.simulations.trained.prediction import predict

__version__ = "0.1.0"
__all__ = ["Experiment", "compare", "export", "open_run", "predict", "resume", "run"]

_HOMES = {
    "Experiment": "fedkge.experiment",
    "compare": "fedkge.simulations.runs.api",
    "export": "fedkge.simulations.trained.export",
    "open_run": "fedkge.simulations.runs.api",
    "predict": "fedkge.simulations.trained.prediction",
    "resume": "fedkge.simulations.runs.api",
    "run": "fedkge.simulations.runs.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedkge' has no attribute '{name}'; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
