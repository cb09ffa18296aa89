"""Knowledge-graph reconstruction (Algorithm 2 of FedR, Zhang et al., 2022): entities, relations, triples.

Everything here works on a View. Which pairs of rows belong together is either granted, as the paper does, or
found by scoring all pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.encoders import unscorable
from fedkge.attacks.reconstruction.alignment import nearest, superpose
from fedkge.attacks.reconstruction.relations import Inferred, RelationModel
from fedkge.attacks.view import UNKNOWN, Rows, View
from fedkge.client.models import MODELS
from fedkge.errors import FedkgeError

__all__ = [
    "Claims",
    "Identified",
    "ImpossibleError",
    "claim_all_pairs",
    "claim_pairs",
    "global_rows",
    "identify",
    "local_rows",
    "pool_of",
    "relation_model",
]

Names = NDArray[np.int64]
Indices = NDArray[np.int64]


class ImpossibleError(FedkgeError):
    """The view does not allow the attack; the message says what is missing."""


@dataclass(frozen=True, eq=False)
class Identified:
    """The rows by which a client is attacked, and the name that each is taken for."""

    rows: Rows
    names: Names  # (n,) read where the row came with its name, inferred where it did not
    similarity: NDArray[np.float32]  # (n,) one where the name was read

    @property
    def read(self) -> bool:
        return bool((self.rows.names != UNKNOWN).all())


@dataclass(frozen=True, eq=False)
class Claims:
    """Triples that the attacker says are there, with its confidence in each."""

    triples: Names  # (n, 3) names
    confidence: NDArray[np.float32]  # (n,)

    def ranked(self) -> Claims:
        order = np.argsort(-self.confidence, kind="stable")
        return Claims(self.triples[order], self.confidence[order])


def pool_of(view: View) -> Rows:
    """The entity–embedding pairs of all colluders together."""
    if not view.handed:
        raise ImpossibleError(
            "no client colludes, so no element–embedding pair is known; name adversary.colluders"
        )
    names = np.concatenate([other.entity.names for other in view.handed])
    return Rows(names, np.concatenate([other.entity.values for other in view.handed]))


def global_rows(view: View) -> Rows:
    """The global rows of the entities that colluders named: all that the published FedE attack uses."""
    if view.last.gee is None:
        raise ImpossibleError(f"{view.strategy} shares no global entity rows with this adversary")
    pool = pool_of(view)
    known = np.flatnonzero(np.isin(view.last.gee.names, pool.names))
    if len(known) == 0:
        raise ImpossibleError("no global row has a name that a colluder handed over")
    return view.last.gee.pick(known)


def local_rows(view: View, target: int) -> Rows:
    """The target's own entity rows, as it sent them or as they are granted."""
    if target not in view.last.lee:
        raise ImpossibleError(f"{view.strategy} sends no entity rows of a client to this adversary")
    rows = view.last.lee[target]
    named = np.flatnonzero(rows.names != UNKNOWN)
    return rows.pick(named) if len(named) else rows  # where some have names, the others have nothing to match


def relation_model(view: View) -> tuple[RelationModel, Names]:
    """The relations that can be told apart, and their names: the colluders', else the server's own."""
    if why := unscorable(view.model):
        raise ImpossibleError(why)
    if MODELS[view.model.name].relation_columns(view.model.dim) == 0:
        raise ImpossibleError(
            f"{view.model.name} has no relation rows, by which pairs would be told to be joined or not; the "
            "attack on edges is membership"
        )
    if view.handed:
        names = np.concatenate([other.relation.names for other in view.handed])
        values = np.concatenate([other.relation.values for other in view.handed])
    elif view.last.gre is not None and (view.last.gre.names != UNKNOWN).all():
        names, values = view.last.gre.names, view.last.gre.values
    else:
        raise ImpossibleError("no relation row with a name is known, so no relation can be told from another")
    return RelationModel(view.model, values), names


def identify(rows: Rows, view: View, *, rotate: bool = False) -> Identified:
    """Names for a client's rows: read where they came with it, else the nearest row of the colluders' pool.

    `rotate` first superposes the two spaces.
    """
    if len(rows) and (rows.names != UNKNOWN).all() and not rotate:
        return Identified(rows, rows.names, np.ones(len(rows), dtype=np.float32))
    pool = pool_of(view)
    moved, still = superpose(rows.values, pool.values) if rotate else (rows.values, pool.values)
    matches = nearest(moved, still)
    return Identified(rows, pool.names[matches.indices[:, 0]], matches.similarity[:, 0])


def claim_pairs(
    identified: Identified,
    pairs: Indices,
    infer: Callable[[NDArray[np.float32], NDArray[np.float32]], Inferred],
    relation_names: Names,
) -> Claims:
    """One relation for each pair of rows; unnamed rows are claimed under the name they are taken for."""
    head, tail = pairs.T
    values = identified.rows.values
    inferred = infer(values[head], values[tail])
    triples = np.stack(
        [identified.names[head], relation_names[inferred.relations], identified.names[tail]], axis=1
    )
    doubt = np.minimum(identified.similarity[head], identified.similarity[tail])
    # A name that was read is certain; one that was inferred holds the claim back.
    return Claims(triples, inferred.confidence + (0 if identified.read else np.log(np.maximum(doubt, 1e-6))))


def claim_all_pairs(
    identified: Identified, heads: Indices, model: RelationModel, relation_names: Names, most: int
) -> Claims:
    """The best triples from some heads to any other row, over all relations."""
    values = identified.rows.values
    top = model.top_triples(values[heads], values, most + len(heads) * len(relation_names))
    inside = heads[top.heads] != top.tails  # no loops
    triples = np.stack(
        [identified.names[heads[top.heads]], relation_names[top.relations], identified.names[top.tails]],
        axis=1,
    )
    return Claims(triples[inside][:most], top.confidence[inside][:most])
