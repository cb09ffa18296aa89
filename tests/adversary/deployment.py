"""Clients as operators deploy them: own data, keys, journal, policy and state, and nothing simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

from fedkge.client.journal_file import JournalFile
from fedkge.client.keyring import create_identity
from fedkge.crypto import Roster
from fedkge.datasets import write_graph
from fedkge.exchange import Download, Upload, decode, encode
from fedkge.experiment import Experiment
from fedkge.server.app import serve
from fedkge.server.progress import Observer
from fedkge.simulations.runs.engines import InlineGrid, NodeConfig
from fedkge.simulations.runs.layout import divide
from fedkge.simulations.runs.worker import Worker

__all__ = ["FIVE", "Deployment", "small"]

FIVE = "data.clients=5"
_SMALL = [
    FIVE,
    "model.dim=8",
    "training.negatives=4",
    "training.batch_size=256",
    "training.learning_rate=0.01",
    "federation.rounds=4",
    "federation.evaluate_every=2",
]
_run_ids = count(10_000)  # Flower numbers runs by itself


def small(*changes: str) -> Experiment:
    """UMLS over five clients, four short rounds."""
    return Experiment().override([*_SMALL, *changes])


class Nodes(Worker):
    """Nodes that are told the run's name by whoever starts it, and keep nothing between two messages."""

    def __init__(self, experiment: Experiment, nodes: Mapping[int, NodeConfig], run: str) -> None:
        super().__init__(next(_run_ids), experiment.to_json(), nodes)
        for context in self.contexts.values():
            context.run_config["run"] = run


class DeployedGrid(InlineGrid):
    """Carries a server's messages to deployed nodes."""

    def __init__(self, experiment: Experiment, nodes: Mapping[int, NodeConfig], run: str) -> None:
        self.nodes_of_run = Nodes(experiment, nodes, run)
        super().__init__(self.nodes_of_run.run_id, experiment.to_json(), nodes, experiment.engine)

    def start(self) -> None:
        self.worker = self.nodes_of_run
        self.pool = ThreadPoolExecutor(self.settings.workers)


class Deployment:
    """Some clients, and whatever server speaks with them."""

    def __init__(self, folder: Path, experiment: Experiment) -> None:
        self.folder = folder
        self.experiment = experiment
        self.graphs = divide(experiment).clients
        for client, graph in enumerate(self.graphs):
            write_graph(folder / f"data-{client}", graph)
        self.roster = Roster.of(create_identity(self.keys(client)) for client in range(len(self.graphs)))
        for client in range(len(self.graphs)):
            (self.keys(client) / "roster.txt").write_text(self.roster.to_text())

    def keys(self, client: int) -> Path:
        return self.folder / f"keys-{client}"

    def nodes(self, **changes: Any) -> dict[int, dict[str, Any]]:
        return {
            client + 1: {
                "partition-id": client,
                "num-partitions": len(self.graphs),
                "data": str(self.folder / f"data-{client}"),
                "state": str(self.folder / f"state-{client}"),
                "keys": str(self.keys(client)),
                **changes,
            }
            for client in range(len(self.graphs))
        }

    def serve(
        self,
        folder: Path,
        run: str = "",
        observer: Observer | None = None,
        resume: bool = False,
        experiment: Experiment | None = None,
    ) -> dict[str, Any]:
        """A server's part of a run, from a folder of its own."""
        experiment = experiment or self.experiment
        folder.mkdir(exist_ok=True)
        (folder / "roster.txt").write_text(self.roster.to_text())
        with DeployedGrid(experiment, self.nodes(), run) as grid:
            return serve(grid, experiment, folder, observer, resume, run)

    def ask(
        self,
        client: int,
        kind: str,
        download: Download,
        run: str = "",
        experiment: Experiment | None = None,
    ) -> Upload | str:
        """One message to one client: its answer, or why there is none."""
        return self.ask_all([(client, kind, download)], run, experiment)[0]

    def ask_all(
        self,
        messages: Sequence[tuple[int, str, Download]],
        run: str = "",
        experiment: Experiment | None = None,
    ) -> list[Upload | str]:
        nodes = Nodes(experiment or self.experiment, self.nodes(), run)
        answers: list[Upload | str] = []
        try:
            for client, kind, download in messages:
                payload, reason = nodes.handle(client + 1, kind, str(download.round), encode(download))
                answers.append(reason if payload is None else decode(payload, Upload))
        finally:
            nodes.close()
        return answers

    def forget_journals(self) -> None:
        """What clients were before they had one journal per identity."""
        for client in range(len(self.graphs)):
            (self.keys(client) / "journal.mark").unlink(missing_ok=True)
            JournalFile.create(self.keys(client))

    def files(self) -> dict[str, bytes]:
        """All that the clients keep."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and path.relative_to(self.folder).parts[0].startswith(("keys-", "state-"))
        }
