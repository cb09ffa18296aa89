"""Knowledge-graph embeddings across organisations that do not share their graphs.

What the command line does, as functions: `load_graph`, `partition` and `audit` data; `train` and `evaluate`
a model; `run`, `resume`, `compare` and `attack` federations; `open_run`, `predict` and `export` the results;
`tune_privacy` on public triples.
Registries, which scripts and other packages extend: `MODELS`, `STRATEGIES`, `ATTACKS`, `PARTITIONERS`.
All are imported when first asked for, so that `import fedkge` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedkge.attacks import ATTACKS
    from fedkge.client.models import MODELS
    from fedkge.client.privacy import MECHANISMS
    from fedkge.client.training.evaluate import evaluate
    from fedkge.client.training.loop import train
    from fedkge.datasets import PARTITIONERS, load_graph, partition
    from fedkge.datasets.formats import FORMATS
    from fedkge.experiment import Experiment
    from fedkge.simulations.runs.api import attack, audit, compare, open_run, resume, run
    from fedkge.simulations.trained.export import export
    from fedkge.simulations.trained.prediction import predict, predict_new
    from fedkge.simulations.tuning.tuning import tune_privacy
    from fedkge.strategy import STRATEGIES

__version__ = "0.2.0"
__all__ = [
    "ATTACKS",
    "FORMATS",
    "MECHANISMS",
    "MODELS",
    "PARTITIONERS",
    "STRATEGIES",
    "Experiment",
    "attack",
    "audit",
    "compare",
    "evaluate",
    "export",
    "load_graph",
    "open_run",
    "partition",
    "predict",
    "predict_new",
    "resume",
    "run",
    "train",
    "tune_privacy",
]

_API = "fedkge.simulations.runs.api"
_HOMES = {
    "ATTACKS": "fedkge.attacks",
    "FORMATS": "fedkge.datasets.formats",
    "MECHANISMS": "fedkge.client.privacy",
    "MODELS": "fedkge.client.models",
    "PARTITIONERS": "fedkge.datasets",
    "STRATEGIES": "fedkge.strategy",
    "Experiment": "fedkge.experiment",
    **dict.fromkeys(("attack", "audit", "compare", "open_run", "resume", "run"), _API),
    "evaluate": "fedkge.client.training.evaluate",
    "export": "fedkge.simulations.trained.export",
    "load_graph": "fedkge.datasets",
    "partition": "fedkge.datasets",
    **dict.fromkeys(("predict", "predict_new"), "fedkge.simulations.trained.prediction"),
    "train": "fedkge.client.training.loop",
    "tune_privacy": "fedkge.simulations.tuning.tuning",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedkge' has no attribute '{name}'; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
