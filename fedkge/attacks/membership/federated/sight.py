"""What an adversary can score a client's triples with: the rows in its view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.encoders import unscorable
from fedkge.attacks.view import UNKNOWN, Rows, Snapshot, View

__all__ = ["Sight", "sight_of", "targets_in"]

Ids = NDArray[np.int64]

_LAST = 10  # rounds whose change is averaged


@dataclass(frozen=True)
class Sight:
    """Entity rows of the last round, relation rows, and other entity rows to compare the first with."""

    entity: Rows
    relation: Rows | None  # None: nobody sent any
    foreign: bool  # whether no relation rows are the target's: a colluder's are trained on other triples
    steps: tuple[tuple[Rows, Rows], ...]  # entity rows as a round began and as it ended
    mean: Rows | None  # over all clients, where the target's own rows stand beside it


def targets_in(view: View) -> list[int | None]:
    """Each client whose own rows are there; None for all of them behind the global rows."""
    colluders = {handed.client for handed in view.handed}
    targets: list[int | None] = [client for client in sorted(view.last.lee) if client not in colluders]
    if view.last.gee is not None or not targets:
        targets.append(None)
    return targets


def sight_of(view: View, target: int | None) -> Sight | str:
    """What serves to attack a target, or the reason why nothing does."""
    if why := unscorable(view.model):
        return why
    entity = _entity_rows(view, view.last, target)
    if entity is None:
        return (
            f"the score of a triple needs its entities' rows, and {view.strategy} brings none to "
            f"the {view.adversary}"
        )
    if (entity.names == UNKNOWN).all():
        masked = "masked, and " if entity.masked else ""
        return f"the entity rows are {masked}without names: the {view.adversary} cannot tell whose they are"
    mean = view.last.gee if target is not None else None
    sent = _sent_relation_rows(view.last, target)
    handed = _joined([handed.relation for handed in view.handed]) if view.handed else None
    relation = handed if sent is None else sent
    return Sight(entity, relation, sent is None, tuple(_steps(view, target)), mean)


def _entity_rows(view: View, shot: Snapshot, target: int | None) -> Rows | None:
    if target is not None:
        return shot.lee.get(target)
    if shot.gee is not None:
        return shot.gee
    alone = view.adversary.startswith("client")
    return view.handed[0].entity if alone and view.handed else None


def _sent_relation_rows(shot: Snapshot, target: int | None) -> Rows | None:
    """The target's own, else the global ones."""
    if target is not None and target in shot.lre:
        return shot.lre[target]
    return shot.gre


def _joined(parts: Sequence[Rows]) -> Rows:
    """One row per name: of several colluders, the first one's."""
    names = np.concatenate([part.names for part in parts])
    distinct, first = np.unique(names, return_index=True)
    return Rows(distinct, np.concatenate([part.values for part in parts])[first])


def _steps(view: View, target: int | None) -> Iterator[tuple[Rows, Rows]]:
    """From the broadcast to the client's upload; where uploads are not seen, from broadcast to broadcast."""
    for before, after in pairwise(view.rounds[-1 - _LAST :]):
        start = before.gee
        stop = _entity_rows(view, after, target)
        if after.round == before.round + 1 and start is not None and stop is not None:
            yield start, stop
