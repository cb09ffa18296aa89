"""PyKEEN's model with our rows: the same triple gets the same score from both.

PyKEEN holds complex numbers as one number each; a row of ours is all real parts, then all imaginary ones.
Its own RotatE takes the length of the whole difference, whatever `p` says (1.11.1), and that ranks otherwise
than the sum of moduli in the paper. Its LineaRE, −‖h ∘ a − t ∘ b + c‖₁, is that sum when a is the rotation,
b = 1 and c = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedkge.client.models import Model
from fedkge.datasets import KnowledgeGraph
from fedkge.errors import UnknownNameError

if TYPE_CHECKING:
    from pykeen.models import ERModel
    from pykeen.triples import TriplesFactory

__all__ = ["PEERS", "pykeen_model", "pykeen_triples"]


@dataclass(frozen=True)
class Peer:
    """How PyKEEN writes a model: its interaction and options, and our rows as it has them."""

    interaction: str
    entity: Callable[[Model], list[Tensor]]
    relation: Callable[[Model], list[Tensor]]
    options: Callable[[Model], dict[str, Any]] | None = None


def _entity(model: Model) -> list[Tensor]:
    return [model.entity]


def _relation(model: Model) -> list[Tensor]:
    return [model.relation]


def _complex_entity(model: Model) -> list[Tensor]:
    return [torch.complex(*model.entity.chunk(2, dim=1))]


def _complex_relation(model: Model) -> list[Tensor]:
    return [torch.complex(*model.relation.chunk(2, dim=1))]


def _rotations(model: Model) -> list[Tensor]:
    """What each relation makes of 1 + 0i, for LineaRE."""
    one = torch.ones_like(model.relation)
    turned = model.query_tail(torch.cat([one, torch.zeros_like(one)], dim=1), model.relation)
    rotation = torch.complex(*turned.chunk(2, dim=1))
    return [rotation, torch.zeros_like(rotation), torch.ones_like(rotation)]


def _scaled_translations(model: Model) -> list[Tensor]:
    """w ‖h + r − t‖ = ‖w h + w r − w t‖, for LineaRE."""
    scale = model.scale[:, None].expand_as(model.relation).contiguous()
    return [scale, scale * model.relation, scale]


def _planes(model: Model) -> list[Tensor]:
    translation, normal = model.relation.chunk(2, dim=1)
    return [normalize(normal, dim=1), translation]


def _matrices(model: Model) -> list[Tensor]:
    return [model.relation.reshape(-1, model.settings.dim, model.settings.dim)]


def _quaternion_entity(model: Model) -> list[Tensor]:
    return [model.entity.reshape(len(model.entity), 4, -1).transpose(1, 2)]  # (n, d, 4), the real part first


def _quaternion_relation(model: Model) -> list[Tensor]:
    """Of length one, and negative: PyKEEN turns the sign of its score, as its authors' code does."""
    parts = normalize(model.relation.reshape(len(model.relation), 4, -1), dim=1)
    return [-parts.transpose(1, 2)]


def _norm(model: Model) -> dict[str, Any]:
    return {"p": model.settings.norm}


def _sum_of_moduli(model: Model) -> dict[str, Any]:
    del model
    return {"p": 1}


PEERS: dict[str, Peer] = {
    "TransE": Peer("TransE", _entity, _relation, _norm),
    "TransH": Peer("TransH", _entity, _planes, _norm),
    "TransM": Peer("LineaRE", _entity, _scaled_translations, _norm),
    "RESCAL": Peer("RESCAL", _entity, _matrices),
    "DistMult": Peer("DistMult", _entity, _relation),
    "ComplEx": Peer("ComplEx", _complex_entity, _complex_relation),
    "RotatE": Peer("LineaRE", _complex_entity, _rotations, _sum_of_moduli),
    "QuatE": Peer("QuatE", _quaternion_entity, _quaternion_relation),
    "NoGE": Peer("QuatE", _quaternion_entity, _quaternion_relation),  # the rows that it encodes
}


def pykeen_model(model: Model, graph: KnowledgeGraph) -> ERModel[Any, Any, Any]:
    """A model that PyKEEN evaluates, saves and trains on as one of its own."""
    from pykeen.models import ERModel  # takes seconds to import
    from pykeen.utils import NoRandomSeedNecessary

    name = type(model).__name__
    if name not in PEERS:
        raise UnknownNameError("model that PyKEEN scores as we do", name, PEERS)
    peer = PEERS[name]
    entity, relation = peer.entity(model), peer.relation(model)  # tables of (n, …) rows
    made: ERModel[Any, Any, Any] = ERModel(
        triples_factory=pykeen_triples(graph),
        interaction=peer.interaction,
        interaction_kwargs=peer.options(model) if peer.options else None,
        entity_representations_kwargs=[_layout(rows) for rows in entity],
        relation_representations_kwargs=[_layout(rows) for rows in relation],
        random_seed=NoRandomSeedNecessary,
    )
    for representations, tables in (
        (made.entity_representations, entity),
        (made.relation_representations, relation),
    ):
        for representation, rows in zip(representations, tables, strict=True):
            _fill(representation, rows)
    return made


def pykeen_triples(graph: KnowledgeGraph) -> TriplesFactory:
    """The train triples with their labels."""
    from pykeen.triples import TriplesFactory  # takes seconds to import

    return TriplesFactory(
        torch.from_numpy(graph.train.astype("int64")),
        entity_to_id={label: number for number, label in enumerate(graph.entity_labels)},
        relation_to_id={label: number for number, label in enumerate(graph.relation_labels)},
    )


def _layout(rows: Tensor) -> dict[str, Any]:
    return {"shape": tuple(rows.shape[1:]), "dtype": rows.dtype}


def _fill(representation: Any, rows: Tensor) -> None:
    weight = representation._embeddings.weight
    real = torch.view_as_real(rows) if rows.is_complex() else rows
    with torch.no_grad():
        weight.copy_(real.reshape(weight.shape))
