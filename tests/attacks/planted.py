"""Views whose answer is known: triples that their embeddings fit exactly, or not at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedkge.attacks.collusion import hand_over
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import UNKNOWN, Rows, Snapshot, Source, View
from fedkge.client.models import MODELS
from fedkge.datasets import KnowledgeGraph
from fedkge.experiment import ModelSettings

BASES, KINDS = 24, 6
NUM_ENTITIES = BASES * (1 + KINDS)


def settings(name: str = "TransE") -> ModelSettings:
    return ModelSettings(name=name, dim=16, margin=10.0, norm=1)


def _relations(name: str, rng: np.random.Generator) -> NDArray[np.float32]:
    """Relation rows under which a query keeps its length, so that its own relation fits a pair best."""
    dim = settings().dim
    if name in ("TransE", "TransM"):
        rows = rng.normal(size=(KINDS, dim))
    elif name == "RotatE":
        rows = rng.uniform(-12 / dim, 12 / dim, size=(KINDS, dim))
    elif name == "DistMult":
        rows = rng.choice([-1.0, 1.0], size=(KINDS, dim))
    elif name == "ComplEx":
        phases = rng.uniform(-np.pi, np.pi, size=(KINDS, dim))
        rows = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
    elif name == "QuatE":
        rows = rng.normal(size=(KINDS, 4 * dim))
    elif name == "RESCAL":
        rows = np.stack([np.linalg.qr(rng.normal(size=(dim, dim)))[0].ravel() for _ in range(KINDS)])
    elif name == "TransR":
        rows = np.concatenate(
            [rng.normal(size=(KINDS, dim)), np.tile(np.eye(dim).ravel(), (KINDS, 1))], axis=1
        )
    else:  # TransH: the translation lies in the relation's plane
        normal = rng.normal(size=(KINDS, dim))
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
        along = rng.normal(size=(KINDS, dim))
        rows = np.concatenate([along - (along * normal).sum(1, keepdims=True) * normal, normal], axis=1)
    return rows.astype(np.float32)


def planted_tables(name: str, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Entity b·(1+K) is a base, and the K after it are what each relation makes of it."""
    kind = MODELS[name]
    relations = _relations(name, rng)
    columns = kind.entity_columns(settings().dim)
    bases = rng.normal(size=(BASES, columns)).astype(np.float32)
    if name == "DistMult":
        bases = np.sign(bases)
    if name == "ComplEx":
        phases = rng.uniform(-np.pi, np.pi, size=(BASES, columns // 2))
        bases = np.concatenate([np.cos(phases), np.sin(phases)], axis=1).astype(np.float32)
    model = kind.of_rows(settings(name), bases, relations)
    entities = np.empty((BASES, 1 + KINDS, columns), dtype=np.float32)
    entities[:, 0] = bases
    for number, row in enumerate(torch.from_numpy(relations)):
        entities[:, 1 + number] = model.query_tail(torch.from_numpy(bases), row.expand(BASES, -1)).numpy()
    return {"entity": entities.reshape(NUM_ENTITIES, columns), "relation": relations}


def graphs(num_clients: int = 3) -> tuple[KnowledgeGraph, ...]:
    """Every client knows every label; the triples are dealt out, and nobody holds another's."""
    entities = [f"e{number}" for number in range(NUM_ENTITIES)]
    relations = [f"r{number}" for number in range(KINDS)]
    triples = np.array(
        [(b * (1 + KINDS), k, b * (1 + KINDS) + 1 + k) for b in range(BASES) for k in range(KINDS)]
    )
    owner = (triples[:, 0] // (1 + KINDS) + triples[:, 1]) % num_clients  # each client has every relation
    return tuple(
        KnowledgeGraph.from_ids(f"client-{c}", entities, relations, {"train": triples[owner == c]})
        for c in range(num_clients)
    )


def global_view(
    tables: dict[str, NDArray[np.float32]],
    model: str = "TransE",
    leak_ratio: float = 1.0,
    seed: int = 0,
    clients: tuple[KnowledgeGraph, ...] | None = None,
) -> tuple[View, Truth]:
    """FedE in the clear: the server with client 0 sees the whole global table."""
    clients = clients or graphs()
    names = {"entity": np.arange(NUM_ENTITIES), "relation": np.arange(KINDS)}
    rng = np.random.default_rng(seed)
    handed = hand_over(0, clients[0], tables, names, leak_ratio, rng)
    whole = Rows(names["entity"], tables["entity"])
    view = View(
        "uploads",
        "server + client 0",
        "FedE",
        settings(model),
        len(clients),
        clients[0].entity_labels,
        clients[0].relation_labels,
        (Snapshot(1, gee=whole, lee={1: whole, 2: whole}),),
        (handed,),
        leak_ratio,
        presence={"entity": dict.fromkeys(range(len(clients)), names["entity"])},
    )
    return view, Truth(clients)


def granted_view(
    tables: dict[str, NDArray[np.float32]], rows: NDArray[np.float32], model: str = "TransE"
) -> tuple[View, Truth]:
    """FedR under the paper's assumption: unnamed entity rows of each other client."""
    view, truth = global_view(tables, model)
    unnamed = Rows(np.full(len(rows), UNKNOWN), rows, Source.GRANTED)
    shot = Snapshot(1, gre=Rows(np.arange(KINDS), tables["relation"]), lee={1: unnamed, 2: unnamed})
    return replace(view, name="granted entity rows", strategy="FedR", rounds=(shot,), presence={}), truth
