"""Views of a run whose model has an encoder: what travels goes in, and what comes out is scored.

An adversary without a graph and weights can only take input rows for what is scored. A colluding client has
an encoder of its own, and puts the rows that it received through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedkge.attacks.view import UNKNOWN, Rows, Snapshot, View
from fedkge.client.models import MODELS
from fedkge.client.models.text_encoders import Described
from fedkge.client.training.threads import one_thread
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import ModelSettings

__all__ = ["OwnEncoder", "encoded", "of_inputs", "unscorable"]

Ids = NDArray[np.int64]
Pair = tuple[Rows | None, Rows | None]  # entity and relation rows


def unscorable(settings: ModelSettings) -> str:
    """Why an adversary cannot score rows of a model; empty where it can."""
    kind = MODELS[settings.name]
    if kind.has_encoder:
        return (
            f"{settings.name} scores what its encoder makes of rows, with parts that never travel, and no "
            "shallow model scores its input rows in their place"
        )
    if kind.decoder_of(settings) is None:
        return f"{settings.name} scores rows with weights of its own, which never travel"
    return ""


def of_inputs(view: View) -> View:
    """Input rows taken for what is scored; the view itself where there is no encoder, or no such decoder."""
    decoder = MODELS[view.model.name].decoder_of(view.model)
    if decoder is None or decoder == view.model or not _fits(view, decoder):
        return view
    width = MODELS[decoder.name].relation_columns(decoder.dim)
    shots = tuple(
        replace(
            shot,
            gre=_cut(shot.gre, width) if shot.gre else None,
            lre={client: _cut(rows, width) for client, rows in shot.lre.items()},
        )
        for shot in view.rounds
    )
    handed = tuple(replace(other, relation=_cut(other.relation, width)) for other in view.handed)
    return replace(view, name=f"{view.name}, input rows", model=decoder, rounds=shots, handed=handed)


def _fits(view: View, decoder: ModelSettings) -> bool:
    """Whether input rows are as wide as those that are scored."""
    kind, shallow = MODELS[view.model.name], MODELS[decoder.name]
    wide = kind.entity_columns(view.model.dim) == shallow.entity_columns(decoder.dim)
    return wide and kind.relation_columns(view.model.dim) >= shallow.relation_columns(decoder.dim)


def _cut(rows: Rows, width: int) -> Rows:
    """What is scored of a relation row comes first."""
    return replace(rows, values=np.ascontiguousarray(rows.values[:, :width]))


@dataclass(frozen=True, eq=False)
class OwnEncoder:
    """What a colluding client encodes with: its graph, its parameters, and its labels' names in the view."""

    client: int
    settings: ModelSettings
    graph: KnowledgeGraph
    parameters: Mapping[str, NDArray[np.float32]]
    entities: Ids  # (n,) the name of each of its entities
    relations: Ids

    def __call__(self, pair: Pair) -> Pair:
        """Rows of others, put in the place of its own; those that it has no place for get one without edges.

        Relations that it does not know have no place.
        """
        entity, relation = pair
        kind = MODELS[self.settings.name]
        parameters = {name: array.copy() for name, array in self.parameters.items()}
        graph, places = self.graph, np.empty(0, dtype=np.int64)
        if entity is not None:
            places = Rows(self.entities, np.empty((len(self.entities), 0), np.float32)).rows_of(entity.names)
            places[entity.names == UNKNOWN] = UNKNOWN
            new = np.flatnonzero(places == UNKNOWN)
            places[new] = graph.num_entities + np.arange(len(new))
            labels = (*graph.entity_labels, *(f"\0{number}" for number in range(len(new))))
            graph = replace(graph, entity_labels=labels, classes=())
            table = parameters[kind.entity_table]
            table = np.concatenate([table, np.zeros((len(new), table.shape[1]), dtype=np.float32)])
            table[places] = entity.values
            parameters[kind.entity_table] = table
        known, slots = self._slots(relation)
        if relation is not None:
            parameters[kind.relation_table][slots] = relation.values[known]
        with one_thread(), torch.no_grad():
            rows = kind.restore(self.settings, graph, parameters).encode()
        return (
            None if entity is None else replace(entity, values=rows.entities.numpy()[places]),
            None if relation is None else replace(relation.pick(known), values=rows.relations.numpy()[slots]),
        )

    def _slots(self, relation: Rows | None) -> tuple[Ids, Ids]:
        """Which relation rows it has a place for, and where."""
        nothing = np.empty(0, dtype=np.int64)
        if relation is None:
            return nothing, nothing
        own = Rows(self.relations, np.empty((len(self.relations), 0), np.float32))
        places = own.rows_of(relation.names)
        known = np.flatnonzero((places != UNKNOWN) & (relation.names != UNKNOWN))
        return known, places[known]


def encoded(view: View, encoder: OwnEncoder) -> View | None:
    """The view with every row put through a colluder's encoder; None where no shallow model scores that.

    None too where rows are made of texts: those of others' entities never travel.
    """
    kind = MODELS[view.model.name]
    decoder = kind.decoder_of(view.model)
    if decoder is None or issubclass(kind, Described):
        return None
    width = MODELS[decoder.name].relation_columns(decoder.dim)
    handed = []
    for other in view.handed:
        entity, relation = encoder((other.entity, other.relation))
        assert entity is not None  # it handed over both
        assert relation is not None
        handed.append(replace(other, entity=entity, relation=_cut(relation, width)))
    return replace(
        view,
        name=f"{view.name}, encoded by client {encoder.client}",
        model=decoder,
        rounds=tuple(_encoded(shot, encoder, width) for shot in view.rounds),
        handed=tuple(handed),
    )


def _encoded(shot: Snapshot, encoder: OwnEncoder, width: int) -> Snapshot:
    gee, gre = encoder((shot.gee, shot.gre))
    clients = sorted({*shot.lee, *shot.lre})
    pairs = {client: encoder((shot.lee.get(client), shot.lre.get(client))) for client in clients}
    return replace(
        shot,
        gee=gee,
        gre=None if gre is None else _cut(gre, width),
        lee={client: entity for client, (entity, _) in pairs.items() if entity is not None},
        lre={
            client: _cut(relation, width) for client, (_, relation) in pairs.items() if relation is not None
        },
    )
