"""Quality of centralised training: MRR beside the literature's, from the experiment files in experiments/.

Each file trains for its epochs or until the minutes given are over, whichever comes first; the learning rate
falls to a fifth for the last quarter. A run that time cut short is printed as partial.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path
from time import perf_counter

import numpy as np
from graphs import load

from fedkge.client.metrics import evaluate
from fedkge.client.models import build_model
from fedkge.client.training import train
from fedkge.experiment import Experiment

FILES = Path(__file__).parent.parent / "experiments"
LITERATURE = {  # two-sided filtered test MRR
    ("FB15k-237", "TransE"): "0.294 (Nguyen et al., 2018)",
    ("FB15k-237", "RotatE"): "0.338 (Sun et al., 2019; d=1000)",
    ("WN18RR", "TransE"): "0.226 (Nguyen et al., 2018)",
    ("WN18RR", "RotatE"): "0.476 (Sun et al., 2019; d=500)",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "files", nargs="*", type=Path, help="experiment files; by default every central-*.toml"
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="time for each run")
    options = parser.parse_args()
    print(
        f"{'graph':11}{'model':8}{'dim':>5}{'epochs':>16}{'minutes':>9}{'MRR':>7}"
        "  95 %          Hits@10  literature"
    )
    for path in options.files or sorted(FILES.glob("central-*.toml")):
        print(row(Experiment.load(path), options.minutes * 60), flush=True)


def row(experiment: Experiment, seconds: float) -> str:
    graph = load(experiment.data.dataset)
    model = build_model(experiment.model, graph, experiment.seed)
    rng = np.random.default_rng(experiment.seed)
    settings, wanted = experiment.training, experiment.training.local_epochs
    slow = settings.model_copy(update={"learning_rate": settings.learning_rate / 5})
    state, epochs, start = None, 0, perf_counter()
    while epochs < wanted and perf_counter() - start < seconds:
        late = epochs >= 0.75 * wanted or perf_counter() - start > 0.75 * seconds
        state = train(model, graph, rng, slow if late else settings, epochs=1, optimizer=state).optimizer
        epochs += 1
    minutes = (perf_counter() - start) / 60
    found = evaluate(model, graph, "test", experiment.evaluation, np.random.default_rng(0))
    low, high = found.intervals["mrr"]
    share = f"{epochs}/{wanted}" + ("" if epochs == wanted else " partial")
    name = experiment.model.name
    return (
        f"{graph.name:11}{name:8}{experiment.model.dim:5}{share:>16}{minutes:9.1f}{found.metrics['mrr']:7.3f}"
        f"  {low:.3f}–{high:.3f}  {found.metrics['hits@10']:9.3f}  {LITERATURE.get((graph.name, name), '—')}"
    )


if __name__ == "__main__":
    main()
