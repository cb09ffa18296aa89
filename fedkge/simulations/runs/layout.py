"""What a run's folder holds before the run starts: each client's data, its keys, and what the run is."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedkge.agreement import run_name
from fedkge.client.keyring import ROSTER, create_identity
from fedkge.crypto import Roster
from fedkge.datasets import (
    SPLITS,
    KnowledgeGraph,
    Split,
    load,
    load_graph,
    mark,
    mark_split,
    partition,
    write_graph,
)
from fedkge.datasets.features import described_by, described_split, find, with_all_entities, with_features_of
from fedkge.datasets.inductive import check_held_out, inductive
from fedkge.errors import SettingError
from fedkge.experiment import DataSettings, Experiment
from fedkge.simulations.runs.engines import NodeConfig
from fedkge.simulations.runs.environment import describe
from fedkge.simulations.runs.run_folder import RunFolder
from fedkge.storage import storage_errors
from fedkge.strategy import shared_by

__all__ = ["divide", "is_secure", "lay_out", "node_configs", "pooled", "with_clients"]


def divide(experiment: Experiment) -> Split:
    """The data of every client, as the experiment says."""
    split = _with_own_data(_divided(experiment), experiment)
    return with_all_entities(split) if experiment.data.vocabulary == "all" else split


def _divided(experiment: Experiment) -> Split:
    data, seed = experiment.data, experiment.seed
    source = load(data.dataset, _columns_of_dataset(experiment))
    rule = str(data.confidential)
    files = [find(path) for path in data.features]
    if isinstance(source, Split):
        if data.inductive is not None:
            raise SettingError(
                f"data.inductive: {data.dataset} is already split among clients; hold out entities of a "
                "whole graph, before it is divided"
            )
        source = described_split(source, files) if files else source
        default = DataSettings.model_fields["partition"].default  # nobody asked for it: take them as they are
        split = partition(source, "given" if data.partition == default else data.partition, clients=0)
        return mark_split(split, rule, seed) if rule != "0.0" else split
    graph = described_by(source, files) if files else source
    graph = inductive(graph, data.inductive, seed) if data.inductive is not None else graph
    graph = mark(graph, rule, seed) if rule != "0.0" else graph
    split = partition(graph, data.partition, data.clients, seed)
    if data.inductive is not None:
        check_held_out(split, graph)
    return split


def _columns_of_dataset(experiment: Experiment) -> str | None:
    """They may be those of clients' own files alone, where the dataset has a name."""
    data = experiment.data
    bring_own = any(client.data is not None for client in experiment.clients)
    return None if bring_own and not Path(data.dataset).exists() else data.columns


def _with_own_data(split: Split, experiment: Experiment) -> Split:
    """Clients that bring their own triples, instead of their part."""
    given = {client.client: Path(client.data) for client in experiment.clients if client.data is not None}
    if not given:
        return split
    rule = str(experiment.data.confidential)
    graphs = list(split.clients)
    for client, path in given.items():
        if client < len(graphs):
            graph = replace(load_graph(path, experiment.data.columns), name=f"client-{client}")
            graphs[client] = mark(graph, rule, experiment.seed) if rule not in ("0.0", "column") else graph
    return Split.of(split.name, graphs, split.partition, split.seed)


def with_clients(experiment: Experiment, split: Split) -> Experiment:
    """A given split knows how many clients there are; Central has one."""
    clients = 1 if experiment.federation.strategy == "Central" else split.num_clients
    data = experiment.data.model_copy(update={"clients": clients})
    return experiment.model_copy(update={"data": data})


def pooled(split: Split) -> Split:
    """All clients' triples in one client's hands; a triple that one trains on is no longer held out."""
    seen: set[tuple[int, int, int]] = set()
    arrays, marks = {}, {}
    for name in SPLITS:
        parts = np.concatenate([split.global_triples(client, name) for client in range(split.num_clients)])
        triples = list(map(tuple, parts.tolist()))
        rows = [row for row in dict.fromkeys(triples) if row not in seen]
        seen.update(rows)
        arrays[name] = np.array(rows, dtype=np.int32).reshape(-1, 3)
        confidential = np.concatenate([graph.marks(name) for graph in split.clients]).tolist()
        secret = {row for row, is_marked in zip(triples, confidential, strict=True) if is_marked}
        marks[name] = np.array([row in secret for row in rows], dtype=bool)  # to one client is to all
    marked = marks if any(graph.confidential for graph in split.clients) else None
    labels = split.entity_labels, split.relation_labels
    class_of = {
        label: kind
        for client in split.clients
        for label, kind in zip(client.entity_labels, client.classes, strict=False)
    }
    classes = [class_of.get(label, "") for label in split.entity_labels] if class_of else ()
    graph = KnowledgeGraph.from_ids("client-0", *labels, arrays, marked, classes=classes)
    if counts := split.clients[0].edge_list:
        graph = replace(graph, edge_list=counts.part(graph.num_triples))
    return Split.single(with_features_of(graph, split.clients))


def lay_out(folder: Path, experiment: Experiment, split: Split, adversary: str = "") -> None:
    """Write each client's data into a folder of its own, and what the run is and who acts in it."""
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for client, graph in enumerate(split.clients):
            write_graph(RunFolder(folder).data(client), graph)
        run = {"run": f"{run_name(experiment, {})}-{secrets.token_hex(8)}"}
        if adversary:
            run["adversary"] = adversary
        (folder / "run.json").write_text(json.dumps(run) + "\n", encoding="utf-8")
        (folder / "environment.json").write_text(json.dumps(describe(), indent=2) + "\n", encoding="utf-8")
        (folder / "experiment.toml").write_text(experiment.to_toml(), encoding="utf-8")
        if is_secure(experiment):
            _make_identities(folder, experiment.data.clients)


def is_secure(experiment: Experiment) -> bool:
    """Whether clients send masked rows, and so need keys."""
    return experiment.privacy.secure_aggregation and bool(shared_by(experiment.federation))


def _make_identities(folder: Path, num_clients: int) -> None:
    """Each client's key in its own folder, and the roster for everybody; no secret is the server's."""
    keys = [_keys(folder, client) for client in range(num_clients)]
    roster = Roster.of(map(create_identity, keys)).to_text()
    for path in (*(client_keys / ROSTER for client_keys in keys), folder / "roster.txt"):
        path.write_text(roster, encoding="utf-8")


def node_configs(
    folder: Path, experiment: Experiment, tampering: Mapping[int, Path]
) -> dict[int, NodeConfig]:
    """Flower's node config of every client: where its data, state and keys are; node 1 is client 0."""
    return {
        client + 1: {
            "partition-id": client,
            "num-partitions": experiment.data.clients,
            "data": str(RunFolder(folder).data(client)),
            "state": str(folder / "clients"),
            "run": RunFolder(folder).run_name,
            "simulated": True,
            **({"keys": str(_keys(folder, client))} if is_secure(experiment) else {}),
            **({"tampering": str(tampering[client].resolve())} if client in tampering else {}),
        }
        for client in range(experiment.data.clients)
    }


def _keys(folder: Path, client: int) -> Path:
    return folder / "clients" / f"keys-{client}"
