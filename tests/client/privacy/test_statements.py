"""Statements clipped apart: against a loop over statements in autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedkge.client.kernels.gradients import Objective, triple_gradients
from fedkge.client.kernels.losses import LOSSES, loss_per_triple
from fedkge.client.models import MODELS, Model
from fedkge.client.privacy.as_printed.statements import Statements
from fedkge.client.training.negatives import Batch
from tests.client.privacy.conftest import single
from tests.client.privacy.test_norms import perturbed, summed
from tests.contracts.model import MARGIN, SHALLOW, mixed_batch, tail_batch


def naive_statements(model: Model, objective: Objective, batch: Batch) -> list[np.ndarray]:
    """slope of the loss at a statement's score · gradient of that score, for every statement."""
    found = []
    for i in range(len(batch.anchors)):
        one = single(batch, i)
        entity = model.entity.double().requires_grad_()
        relation = model.relation.double().requires_grad_()
        tables = [entity, relation][: len(model.tables)]  # a model of networks has no relation rows
        candidates = torch.from_numpy(one.candidates.astype(np.int64))
        kept, r = entity[int(one.anchors[0])][None, None], relation[int(one.relations[0])][None, None]
        offered = entity[candidates.clamp(min=0)]
        scores = model.score(kept, r, offered) if one.num_tails else model.score(offered, r, kept)
        scores = scores * model.scale.double()[int(one.relations[0])]
        shifted = (scores.detach() + model.shift).masked_fill(candidates < 0, -torch.inf).requires_grad_()
        loss = loss_per_triple(objective.loss, shifted, objective.margin, objective.temperature).sum()
        (slopes,) = torch.autograd.grad(loss, shifted)
        for j in range(candidates.shape[1]):
            parts = torch.autograd.grad(scores[0, j], tables, retain_graph=True)
            slope = 0.0 if candidates[0, j] < 0 else float(slopes[0, j])
            found.append(slope * np.concatenate([part.numpy().ravel() for part in parts]))
    return found


@pytest.mark.parametrize("loss", ["margin-ranking", "self-adversarial"])
@pytest.mark.parametrize("name", [name for name in SHALLOW if not MODELS[name].projects])
def test_statements_are_clipped_as_in_a_loop(name: str, loss: str) -> None:
    model = perturbed(name)
    objective = Objective(LOSSES[loss], MARGIN, temperature=0.7)
    for batch in (tail_batch(), mixed_batch()):
        statements = Statements(model, triple_gradients(model, objective, batch))
        alone = naive_statements(model, objective, batch)
        lengths = np.array([np.linalg.norm(each) for each in alone])
        np.testing.assert_allclose(statements.norms.ravel(), lengths, rtol=1e-5, atol=1e-6)
        bound = float(np.percentile(lengths[lengths > 0], 20))
        expected = sum(each * min(1, bound / max(np.linalg.norm(each), 1e-12)) for each in alone)
        found = summed(model, statements.clipped(bound))
        assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)
