"""What a view's rows say of triples: their scores, beside those under other rows; no answers are here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.membership.central.signals import scores
from fedkge.attacks.membership.federated.relation_fit import fitted_relations
from fedkge.attacks.membership.federated.sight import Sight
from fedkge.attacks.membership.guesses import Bools, Values
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
            fine &= (rows.rows_of(self.entities) != UNKNOWN).all(axis=1)
        if sight.relation is not None:
            fine &= sight.relation.rows_of(self.relations) != UNKNOWN
        return fine

    def among(self, chosen: Bools) -> Named:
        return Named(self.entities[chosen], self.relations[chosen], self.kinds[chosen])

    def scores(self, view: View, entity: Rows, relation: NDArray[np.float32], relation_rows: Ids) -> Values:
        """Under some entity rows; `relation_rows` (n,) are those of the triples' relations."""
        head, tail = entity.rows_of(self.entities).T
        model = MODELS[view.model.name].of_rows(view.model, _plain(entity.values), _plain(relation))
        return scores(model, np.stack([head, relation_rows, tail], axis=1))


def signals_of(view: View, asked: Named, sight: Sight, rng: np.random.Generator) -> dict[str, Values]:
    """Every signal, under the relation rows of the view and under fitted ones."""
    if MODELS[view.model.name].relation_columns(view.model.dim) == 0:  # edges of a network
        nothing = np.empty((int(asked.kinds.max(initial=0)) + 1, 0), dtype=np.float32)
        return _compared(view, asked, sight, nothing, asked.kinds)
    signals: dict[str, Values] = {}
    if sight.relation is not None:
        relation_rows = sight.relation.rows_of(asked.relations)
        signals |= _compared(view, asked, sight, sight.relation.values, relation_rows)
    if sight.foreign:
        kinds, relation_rows = np.unique(asked.kinds, return_inverse=True)
        head, tail = sight.entity.rows_of(asked.entities).T
        triples = np.stack([head, relation_rows, tail], axis=1).astype(np.int32)
        rows = fitted_relations(view.model, _plain(sight.entity.values), triples, len(kinds), rng)
        fitted = _compared(view, asked, sight, rows, relation_rows)
        signals |= {f"{name} (fitted relations)": value for name, value in fitted.items()}
    return signals


def _compared(
    view: View, asked: Named, sight: Sight, relation: NDArray[np.float32], relation_rows: Ids
) -> dict[str, Values]:
    """The score, and what it is beside other entity rows."""
    signals = {"score": asked.scores(view, sight.entity, relation, relation_rows)}
    if sight.mean is not None:
        signals["score above the mean's"] = signals["score"] - asked.scores(
            view, sight.mean, relation, relation_rows
        )
    if sight.steps:
        gains = [
            asked.scores(view, stop, relation, relation_rows)
            - asked.scores(view, start, relation, relation_rows)
            for start, stop in sight.steps
        ]
        signals["gain"] = np.mean(gains, axis=0)
    return signals


def _plain(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)
