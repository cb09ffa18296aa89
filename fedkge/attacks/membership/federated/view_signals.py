"""What a view's rows say of triples: their scores, beside those under other rows; no answers are here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.membership.central.signals import scores
from fedkge.attacks.membership.federated.relation_fit import fitted_relations
from fedkge.attacks.membership.federated.sight import Sight
from fedkge.attacks.membership.guess import Bools, Values
from fedkge.attacks.view import UNKNOWN, Rows, View
from fedkge.client.models import MODELS

__all__ = ["Named", "signals_of"]

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Named:
    """The triples asked about, in the view's names."""

    entities: Ids  # (n, 2) head and tail
    relations: Ids  # (n,) names in the view, or UNKNOWN
    kinds: Ids  # (n,) which triples have the same relation; the question says so much

    def possible(self, sight: Sight) -> Bools:
        """Which triples have rows for all their parts, in every step."""
        fine = np.ones(len(self.kinds), dtype=bool)
        for rows in [
            sight.entity,
            *filter(None, [sight.mean]),
            *(rows for step in sight.steps for rows in step),
        ]:
            fine &= (_places(rows, self.entities) != UNKNOWN).all(axis=1)
        if sight.relation is not None:
            fine &= _places(sight.relation, self.relations) != UNKNOWN
        return fine

    def among(self, chosen: Bools) -> Named:
        return Named(self.entities[chosen], self.relations[chosen], self.kinds[chosen])

    def scores(self, view: View, entity: Rows, relation: NDArray[np.float32], places: Ids) -> Values:
        """Under some entity rows; `places` are the relations' rows."""
        head, tail = _places(entity, self.entities).T
        model = MODELS[view.model.name].of_rows(view.model, _plain(entity.values), _plain(relation))
        return scores(model, np.stack([head, places, tail], axis=1))


def signals_of(view: View, asked: Named, sight: Sight, rng: np.random.Generator) -> dict[str, Values]:
    """Every signal, under the relation rows of the view and under fitted ones."""
    found: dict[str, Values] = {}
    if sight.relation is not None:
        places = _places(sight.relation, asked.relations)
        found |= _compared(view, asked, sight, sight.relation.values, places)
    if sight.foreign:
        kinds, places = np.unique(asked.kinds, return_inverse=True)
        head, tail = _places(sight.entity, asked.entities).T
        triples = np.stack([head, places, tail], axis=1).astype(np.int32)
        rows = fitted_relations(view.model, _plain(sight.entity.values), triples, len(kinds), rng)
        fitted = _compared(view, asked, sight, rows, places)
        found |= {f"{name} (fitted relations)": value for name, value in fitted.items()}
    return found


def _compared(
    view: View, asked: Named, sight: Sight, relation: NDArray[np.float32], places: Ids
) -> dict[str, Values]:
    """The score, and what it is beside other entity rows."""
    found = {"score": asked.scores(view, sight.entity, relation, places)}
    if sight.mean is not None:
        found["score above the mean's"] = found["score"] - asked.scores(view, sight.mean, relation, places)
    if sight.steps:
        gains = [
            asked.scores(view, stop, relation, places) - asked.scores(view, start, relation, places)
            for start, stop in sight.steps
        ]
        found["gain"] = np.mean(gains, axis=0)
    return found


def _places(rows: Rows, names: Ids) -> Ids:
    """The row of each name, all at once."""
    size = int(max(names.max(initial=0), rows.names.max(initial=0))) + 2  # the last place is UNKNOWN's
    places = np.full(size, UNKNOWN, dtype=np.int64)
    named = rows.names != UNKNOWN
    places[rows.names[named]] = np.flatnonzero(named)
    return places[names]


def _plain(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)
