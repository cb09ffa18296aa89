"""Run folders to look into: what a run leaves, with rows drawn at random instead of trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedkge.client.models import build_model
from fedkge.datasets import load_graph, partition, write_graph
from fedkge.experiment import Experiment, ModelSettings
from fedkge.server.records import Records
from fedkge.simulations.trained.client_model import Trained

GRAPH = "synthetic:entities=30,relations=4,triples=100"


def write_run(folder: Path, model: str, norm: int = 1) -> list[Trained]:
    """The folder of a run of three clients, and the clients."""
    settings = ModelSettings(name=model, dim=8, norm=norm)  # type: ignore[arg-type]
    split = partition(load_graph(GRAPH), "random", clients=3)
    found = []
    for number, undescribed in enumerate(split.clients):
        texts = tuple(f"thing {label}" for label in undescribed.entity_labels)
        graph = replace(undescribed, texts={"entity": texts})
        write_graph(folder / "data" / f"client-{number}", graph)
        own = load_graph(folder / "data" / f"client-{number}")
        found.append(Trained(number, own, build_model(settings, own, seed=number)))
        labels = {"entity": own.entity_labels, "relation": own.relation_labels}
        Records(folder).write_tables(
            f"client-{number}", found[-1].model.parameters | found[-1].model.state_buffers, labels
        )
    experiment = Experiment().model_copy(update={"model": settings})
    (folder / "experiment.toml").write_text(experiment.to_toml(), encoding="utf-8")
    return found
