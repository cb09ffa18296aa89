"""Relation rows that nobody sent: those under which the triples asked about look truest."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import softplus

from fedkge.attacks.membership.central.signals import corrupted
from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.models import MODELS
from fedkge.client.models.initial import seed_key
from fedkge.client.training.threads import one_thread
from fedkge.experiment import ModelSettings

__all__ = ["fitted_relations"]

_STEPS = 150
_BATCH = 4096


def fitted_relations(
    settings: ModelSettings, entity: Floats, triples: Ids, num_relations: int, rng: np.random.Generator
) -> Floats:
    """Train relation rows alone on the triples against corrupted ones; entity rows stay as they are.

    Members and non-members serve alike, so nothing of the answers enters.
    """
    kind = MODELS[settings.name]
    labels = [f"relation {number}" for number in range(num_relations)]
    start = kind.initial_table(kind.relation_table, labels, settings, seed_key(0, kind.relation_table))
    model = kind.of_rows(settings, entity, start)
    rows = model.relation.clone().requires_grad_()
    spread = float(np.abs(start).mean()) + float(np.abs(entity).mean())
    optimizer = torch.optim.Adam([rows], lr=0.1 * spread)
    with one_thread():
        for _ in range(_STEPS):
            true = triples[rng.integers(0, len(triples), min(_BATCH, len(triples)))]
            false = corrupted(true, len(entity), rng)
            optimizer.zero_grad()
            scores = [
                model.score(model.entity[head], rows[relation], model.entity[tail]) + model.shift
                for head, relation, tail in (
                    torch.from_numpy(part.astype(np.int64)).T for part in (true, false)
                )
            ]
            (softplus(-scores[0]) + softplus(scores[1])).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    fitted: Floats = rows.detach().numpy()
    return fitted
