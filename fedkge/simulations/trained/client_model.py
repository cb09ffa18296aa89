"""A client's model as a finished run left it: its graph, and its rows of the best round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from heapq import nlargest
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedkge.client.models import MODELS, Model
from fedkge.datasets import KnowledgeGraph
from fedkge.datasets.labels import respelt
from fedkge.errors import DataError, InputError
from fedkge.simulations.runs.run_folder import RunFolder

__all__ = ["Trained", "load_trained", "trained_clients"]

_NEAREST = 5


@dataclass(frozen=True)
class Trained:
    """One client at the end of a run."""

    client: int
    graph: KnowledgeGraph
    model: Model

    def entity(self, label: str) -> int:
        """The row of an entity; a label it does not know is answered with the nearest ones."""
        return _place(label, self.graph.entity_labels, f"entity of client {self.client}")

    def relation(self, label: str) -> int:
        return _place(label, self.graph.relation_labels, f"relation of client {self.client}")


def trained_clients(folder: Path) -> list[int]:
    """The clients whose embeddings a run folder holds."""
    clients = list(RunFolder.read(folder).embeddings)
    if not clients:
        raise InputError(
            f"{folder}: no client's embeddings; finish the run with 'fedkge run --resume {folder}' "
            "(under Flower's own runtime they stay with the clients)"
        )
    return clients


def load_trained(folder: Path, client: int) -> Trained:
    """A client's model out of the folder of a finished run."""
    clients = trained_clients(folder)
    if client not in clients:
        raise InputError(
            f"{folder}: no embeddings of client {client}; it has clients {', '.join(map(str, clients))}"
        )
    run = RunFolder.read(folder)
    settings, graph, path = run.load_experiment().model, run.graph(client), run.embeddings[client]
    try:
        parameters = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: cannot be read ({error}); run the experiment again") from error
    try:
        model = MODELS[settings.name].restore(settings, graph, parameters)
    except DataError as error:
        raise DataError(f"{path}: {error}; run the experiment again") from None
    return Trained(client, graph, model)


def _place(label: str, labels: Sequence[str], kind: str) -> int:
    try:
        return labels.index(respelt(label))
    except ValueError:
        near = ", ".join(f"'{other}'" for other in _nearest(label, labels))
        raise InputError(f"unknown {kind}: '{label}'; the nearest: {near}") from None


def _nearest(label: str, labels: Sequence[str]) -> list[str]:
    """The labels most like it; one that contains it counts as nearer than any that does not."""
    wanted = label.casefold()
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)  # what it works out about the second text is kept

    def likeness(other: str) -> tuple[bool, float]:
        matcher.set_seq1(other.casefold())
        return bool(wanted) and wanted in other.casefold(), matcher.ratio()

    return nlargest(_NEAREST, labels, key=likeness)
